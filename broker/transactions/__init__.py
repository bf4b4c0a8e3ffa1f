"""Producer ids and transactions: the state machine, its stored form and its coordinator.

Owns `__transaction_state` and the markers that end a transaction. `state` is pure; `coordinator`
adds time, storage and waiters. Refuses to know requests. Imported by handlers, `broker.requests`,
`broker.jobs`, `broker.workers` and `broker.node`.
"""
