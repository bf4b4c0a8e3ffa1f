"""Consumer groups of both protocols, committed offsets, and their memory in `__consumer_offsets`.

    classic     the protocol of JoinGroup and SyncGroup: a pure state machine and its values
    consumer    the protocol of KIP-848: a pure state machine, assignors, its values
    share       share groups (KIP-932): delivery states, membership, sessions
    streams     groups of Kafka Streams (KIP-1071): topology, assignor, membership
    offsets     committed offsets: the table and its log, lag

The modules beside them put timers, waiters and storage around the state machines: `coordinator` for
all groups, one beside it for each protocol since KIP-848. Refuses to know sockets and requests;
handlers translate. Imported by `broker.handlers`, `broker.requests`, `broker.transactions`,
`broker.workers`, `broker.jobs`, `broker.operator` and `broker.node`.
"""
