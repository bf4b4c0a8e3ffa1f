"""What operators see: metrics, health, explained lookups, segments; all on the metrics port.

Owns the HTTP listener, its paths and the names of metrics. Refuses to change anything. Reads the
other parts of the broker; only `broker.node` imports it.
"""
