"""The background work of the broker: retention, compaction, checkpoints, expiry, statistics.

Also uploads and local retention, the bucket's journal, a standby, and files that are read again:
certificates, keys of identity providers. Owns the schedule and the jobs. Knows no requests.
Imported by `broker.node`.
"""
