"""Metadata (key 3): the brokers, and which of them leads each partition.

Every client starts here. "All topics" is an empty array in v0 and null from v1 on, where an empty
array means none.

| version | change                                                            |
|---------|-------------------------------------------------------------------|
| 0       | brokers, topics, partitions                                       |
| 1       | racks, controller, internal topics; null means all topics         |
| 2       | cluster id                                                        |
| 3       | answer carries throttle_time_ms                                   |
| 4       | auto-creation can be declined                                     |
| 5       | offline replicas                                                  |
| 6       | client, not broker, waits out a throttle                          |
| 7       | leader epoch of partitions (KIP-320)                              |
| 8       | authorized operations on request (KIP-430)                        |
| 9       | flexible                                                          |
| 10      | topic ids in the answer; requests by id do not work yet           |
| 11      | operations on the cluster moved to DescribeCluster (KIP-700)      |
| 12      | topics may be requested by id, without a name (KIP-516)           |
| 13      | error for the whole answer, to make clients start over (KIP-1102) |
"""

from protocol.declare import primitives as wire


class MetadataRequestTopic(wire.Struct):
    """A topic by name, or by id with a null name."""

    topic_id: bytes = wire.uuid(since=10)
    name: str | None = wire.string(nullable_since=10)


class MetadataRequest(wire.Message, max_version=13, flexible_since=9):
    """The topics of interest."""

    topics: list[MetadataRequestTopic] | None = wire.array(nullable_since=1)
    """Null for all topics, from v1 on."""

    allow_auto_topic_creation: bool = wire.boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = wire.boolean(since=8, until=10)
    include_topic_authorized_operations: bool = wire.boolean(since=8)


class MetadataResponseBroker(wire.Struct):
    """One broker and how to reach it."""

    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string(since=1, nullable_since=1, default=None)


class MetadataResponsePartition(wire.Struct):
    """One partition and its replicas."""

    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    """-1 while there is none."""

    leader_epoch: int = wire.int32(since=7, default=-1)
    replica_nodes: list[int] = wire.array(wire.INT32)
    """All replicas, the preferred leader first."""

    isr_nodes: list[int] = wire.array(wire.INT32)
    """Replicas in step with the leader."""

    offline_replicas: list[int] = wire.array(wire.INT32, since=5)


class MetadataResponseTopic(wire.Struct):
    """One topic and its partitions."""

    error_code: int = wire.int16()
    name: str | None = wire.string(nullable_since=12)
    """Null only for a requested id that is unknown."""

    topic_id: bytes = wire.uuid(since=10)
    is_internal: bool = wire.boolean(since=1)
    """Whether the topic serves the broker's own purposes."""

    partitions: list[MetadataResponsePartition] = wire.array()
    topic_authorized_operations: int = wire.operations(since=8)


class MetadataResponse(wire.Message, max_version=13, flexible_since=9):
    """The cluster as this broker sees it."""

    throttle_time_ms: int = wire.int32(since=3)
    brokers: list[MetadataResponseBroker] = wire.array()
    cluster_id: str | None = wire.string(since=2, nullable_since=2, default=None)
    controller_id: int = wire.int32(since=1, default=-1)
    """Must name a listed broker: clients send admin requests there and give up on -1."""

    topics: list[MetadataResponseTopic] = wire.array()
    cluster_authorized_operations: int = wire.operations(since=8, until=10)
    error_code: int = wire.int16(since=13)
