"""Records that brokers and group members keep or exchange, declared like messages.

    codec               a version, then a declared body; frames of the metadata log
    group_log           `__consumer_offsets`: committed offsets and classic groups
    consumer_group_log  `__consumer_offsets`: groups of the consumer protocol (KIP-848)
    transaction_log     `__transaction_state`
    consumer_protocol   what members of a consumer group send one another through the broker
    kraft               the metadata log of Apache Kafka (KIP-631)

Owns bytes; does not know the meaning of the records. The groups and transactions of `broker`,
`storage.kafka` and its commands, and `client.subscription` import it, and translate the declared
classes into values of their own.
"""
