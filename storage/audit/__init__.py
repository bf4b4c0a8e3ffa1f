"""Audit of a data directory at rest: is every file correct, and do the files agree?

Owns `tidelog fsck` and the operator's command that accepts the loss of damaged records. Parses
formats a second time on purpose where an audit must not share the mistakes of the audited code.
Imported by the CLI; `record_times`, the audit of a topic's times, by `broker.operator`.
"""
