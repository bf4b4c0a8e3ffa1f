"""Groups of the consumer protocol (KIP-848) as values and pure decisions.

Owns the state machine of heartbeats, the server-side assignors and subscriptions by pattern.
Refuses to know timers and storage.
"""
