"""Kafka's record formats, magic 0, 1 and 2: read, checked, stamped, built and converted.

The same bytes travel on the wire and lie on disk, so this package is shared by `storage`,
`broker` and `client`; together with `protocol.errors` it is all of `protocol` that `storage` may
see. It knows no requests, files or clocks, and borrows buffers instead of copying them.

Read in this order: `layout` (the formats as numbers), `batch` (magic 2 in place), `record_loops`
(the compiled loops every hot path runs), `record` and `legacy` (records as values), `scan` (what
is in a buffer), `compression`, `builder`, `convert`.
"""
