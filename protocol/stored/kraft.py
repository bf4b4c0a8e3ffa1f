"""Records of Kafka's metadata log that define its topics (KIP-631), all flexible.

| kind | record                | versions | meaning                                          |
|------|-----------------------|----------|--------------------------------------------------|
| 2    | TopicRecord           | 0        | a name has this id                               |
| 3    | PartitionRecord       | 0 to 2   | the id has this partition, on these nodes        |
| 4    | ConfigRecord          | 0        | a setting of a topic or broker; null removes it  |
| 5    | PartitionChangeRecord | 0 to 2   | what changed of a partition                      |
| 9    | RemoveTopicRecord     | 0        | the id is gone, with its partitions and settings |
| 12   | FeatureLevelRecord    | 0        | a feature, ``metadata.version`` among them       |
| 15   | ProducerIdsRecord     | 0        | producer ids below this one have been given out  |

Unused fields are declared only where they precede a used one, or where they are written; unknown
tags are skipped.

Source: KIP-631, KIP-858, KIP-966; Kafka ``metadata/src/main/resources/common/metadata``.
"""

from protocol.declare import primitives as wire


class TopicRecord(wire.Stored, max_version=0, flexible_since=0):
    """A topic has come into being."""

    name: str = wire.string()
    topic_id: bytes = wire.uuid()


class PartitionRecord(wire.Stored, max_version=2, flexible_since=0):
    """A partition has come into being on these nodes, the first one preferred."""

    partition_id: int = wire.int32(default=-1)
    topic_id: bytes = wire.uuid()
    replicas: list[int] = wire.array(wire.INT32)
    isr: list[int] = wire.array(wire.INT32)
    removing_replicas: list[int] = wire.array(wire.INT32)
    adding_replicas: list[int] = wire.array(wire.INT32)
    leader: int = wire.int32(default=-1)
    leader_epoch: int = wire.int32(default=-1)
    partition_epoch: int = wire.int32(default=-1)
    directories: list[bytes] = wire.array(wire.UUID, since=1)


class ConfigRecord(wire.Stored, max_version=0, flexible_since=0):
    """A setting of a resource; the broker name "" means all brokers."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    name: str = wire.string()
    value: str | None = wire.string(nullable_since=0, default=None)


class PartitionChangeRecord(wire.Stored, max_version=2, flexible_since=0):
    """The changes of a partition; `replicas` is None where they did not change."""

    partition_id: int = wire.int32(default=-1)
    topic_id: bytes = wire.uuid()
    replicas: list[int] | None = wire.array(wire.INT32, nullable_since=0, tag=2, default=None)


class RemoveTopicRecord(wire.Stored, max_version=0, flexible_since=0):
    """A topic was removed."""

    topic_id: bytes = wire.uuid()


class FeatureLevelRecord(wire.Stored, max_version=0, flexible_since=0):
    """A feature of the cluster is at this level; 0 is off."""

    name: str = wire.string()
    feature_level: int = wire.int16()


class ProducerIdsRecord(wire.Stored, max_version=0, flexible_since=0):
    """The producer ids below `next_producer_id` are taken; the node is the last requester."""

    broker_id: int = wire.int32()
    broker_epoch: int = wire.int64(default=-1)
    next_producer_id: int = wire.int64()
