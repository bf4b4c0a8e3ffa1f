"""The bucket as a second place of the whole data directory: its journal, tails, restore, audit.

Owns what a bucket has besides the segments of `storage.remote`: the journal and the fence between
two brokers (`journal`), what is shipped of metadata and unsealed records (`shipping`, with a
`shipped_log` for each log, and how the log differs from it in `differences`), a directory made from
a bucket (`restore`), one that follows it (`follower`, `standby_directory`), what tells an emptied
bucket from a new one (`emptied`), and clusters from other folders (`clusters`).

Refuses to know when it works: `broker.jobs.bucket` and `broker.jobs.standby` do. Imported by these
jobs, the CLI, and `pipeline.plan.bucket`, which reads the journal.
"""
