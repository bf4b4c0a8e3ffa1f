"""Opening a partition directory as a `Log`, after a clean stop or a crash.

Owns the passes of recovery and the decision between cutting a tail that was never durable and
putting a partition into quarantine. Refuses to know topics and settings. Imported by
`storage.directory` only.
"""
