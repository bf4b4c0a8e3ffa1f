"""Opening a partition directory as a `Log`, after a clean stop or a crash.

Owns the passes of recovery and the decision between cutting a tail that was never durable and
putting a partition into quarantine. Knows settings as values of `config`,
and refuses to know which partitions exist. Imported by
`storage.directory` only.
"""
