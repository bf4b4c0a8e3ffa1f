"""What the broker does without a request: retention, compaction, checkpoints, expiry, statistics.

Owns the schedule, the trust in the clock that deletion needs, and the jobs. Refuses to know
requests. Imported by `broker.node`.
"""
