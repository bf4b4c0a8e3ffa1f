"""The interface for operators: metrics, health, explained lookups and segments on the metrics port.

Owns the HTTP listener, its paths and the names of metrics. Changes nothing. Reads the other parts
of the broker; only `broker.node` imports it.
"""
