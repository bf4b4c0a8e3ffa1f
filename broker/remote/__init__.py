"""The broker's side of tiered storage: requests to the object store, off the event loop.

Owns the bytes of remote segments in memory and the GETs under way. Refuses to know what is in a
segment, and uploads, which are jobs. Imported by handlers, `broker.requests`, `broker.operator`,
`broker.jobs` and `broker.node`.
"""
