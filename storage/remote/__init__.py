"""Tiered storage: closed segments in an object store, their local copies removed.

    object_store   the seam to the store; `engine` is the one that users have (obstore)
    folder         writes the objects of a store that is a folder, so that they survive a power cut
    upload         when an object counts
    local          local retention: which local copies go
    erase          objects of segments that are gone
    cleaning       what compaction needs of the store

Owns the order of these steps, so that no crash loses a record. Requests to the store are calls that
the broker makes in threads. Refuses to know when it works (`broker.jobs.tiering`) and how a remote
segment is read (`storage.segment.remote`). Imported by `storage.directory`, `storage.bucket`,
`storage.audit`, the broker's jobs and reads, the CLI, and the tasks of `pipeline.plan`.
"""
