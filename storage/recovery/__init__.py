"""From a partition directory to a `Log`, after a clean stop or any other.

Owns the passes of recovery and the decision between cutting a tail that was never durable and
putting a partition into quarantine. Refuses to know topics and settings. Imported by
`storage.directory` only.
"""
