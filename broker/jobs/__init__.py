"""The background work of the broker: retention, compaction, checkpoints, expiry, statistics.

Owns the schedule, the trust in the clock that deletion needs, and the jobs. Knows no requests.
Imported by `broker.node`.
"""
