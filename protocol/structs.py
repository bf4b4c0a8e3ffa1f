"""Structs that several messages and stored records have in common.

Kafka's specifications give each use a name of its own; the bytes and the fields are the same. What
only Kafka Streams has is in ``protocol.streams``.
"""

from protocol.declare import primitives as wire


class TopicPartitions(wire.Struct):
    """Partitions of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class NamedPartitions(wire.Struct):
    """Partitions of one topic, by its id and its name."""

    topic_id: bytes = wire.uuid()
    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class TopicIndexes(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class NamedIndexes(wire.Struct):
    """As `TopicIndexes`, in messages that call the topic ``name``."""

    name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class PartitionIndexes(wire.Struct):
    """As `NamedIndexes`, in messages that call the partitions ``partition_indexes``."""

    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.INT32)


class PartitionIndex(wire.Struct):
    """One partition."""

    partition_index: int = wire.int32()


class PartitionError(wire.Struct):
    """The outcome for one partition."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class TopicErrors(wire.Struct):
    """The outcome for the partitions of one topic."""

    name: str = wire.string()
    partitions: list[PartitionError] = wire.array()


class ConfigText(wire.Struct):
    """A setting and its value; null clears it."""

    name: str = wire.string()
    value: str | None = wire.string(nullable_since=0)


class TokenPrincipal(wire.Struct):
    """A principal, such as User and alice."""

    principal_type: str = wire.string()
    principal_name: str = wire.string()


class ProtocolMetadata(wire.Struct):
    """One protocol of a member of a classic group, with the member's metadata for it."""

    name: str = wire.string()
    metadata: bytes = wire.binary()


class Assignment(wire.Struct):
    """The partitions that a member reads or should read."""

    topic_partitions: list[TopicPartitions] = wire.array()


class NamedAssignment(wire.Struct):
    """As `Assignment`, with the names of the topics."""

    topic_partitions: list[NamedPartitions] = wire.array()


class AcknowledgementBatch(wire.Struct):
    """What became of the records first_offset to last_offset, both included."""

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    acknowledge_types: list[int] = wire.array(wire.INT8)
    """One for the whole range, or one for each offset: 0 gap, 1 accept, 2 release, 3 reject,
    4 renew (since version 2)."""


class LeaderIdAndEpoch(wire.Struct):
    """Where the partition lives now; -1 is unknown."""

    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32()


class NodeEndpoint(wire.Struct):
    """Address of a leader named by ``current_leader``."""

    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string(nullable_since=0, default=None)


class StoredBatch(wire.Struct):
    """A range of offsets, both included, in one state."""

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    delivery_state: int = wire.int8()
    """0 available, 2 acknowledged, 4 archived."""

    delivery_count: int = wire.int16()


class StateToRead(wire.Struct):
    """A partition whose stored state to read."""

    partition: int = wire.int32()
    leader_epoch: int = wire.int32()
    """Of the broker that reads; -1 is not checked, and not stored. A summary ignores it."""


class StatesToRead(wire.Struct):
    """The partitions of one topic whose stored states to read."""

    topic_id: bytes = wire.uuid()
    partitions: list[StateToRead] = wire.array()


class StateError(wire.Struct):
    """The outcome for the stored state of one partition."""

    partition: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0, default=None)


class StateErrors(wire.Struct):
    """The outcome for the stored states of one topic."""

    topic_id: bytes = wire.uuid()
    partitions: list[StateError] = wire.array()
