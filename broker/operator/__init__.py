"""The interface for operators: metrics, health, explained lookups and segments on the metrics port.

Owns the HTTP listener, its paths and the names of metrics. Reads the other parts of the broker and
changes nothing, with two exceptions: a settable clock, and the promotion of a standby. Imported by
`broker.node`, by `broker.workers` for the questions that other workers answer, and by
`broker.startup_lines` for the facts of the build.
"""
