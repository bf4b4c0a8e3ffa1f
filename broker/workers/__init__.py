"""Several processes that share the partitions of one broker: docs/adr/0016.

Owns the processes (`parent`), the links between them (`link`), and the two ends of a link: worker 1
(`first`), which keeps the metadata and all coordinators, and the others (`further`), which lead
partitions of users and forward every other request (`forward`). With one worker none of this runs.

Refuses to know messages: a forwarded request crosses a link as the bytes of its frame. Imported by
`broker.server` and `broker.node`.
"""
