"""Records of Kafka's metadata log that define its topics (KIP-631), all flexible.

    ====  ======================  ========  ==================================================
    kind  record                  versions  meaning
    ====  ======================  ========  ==================================================
    2     TopicRecord             0         a name has this id
    3     PartitionRecord         0 to 2    the id has this partition, on these nodes
    4     ConfigRecord            0         a setting of a topic or broker; null removes it
    5     PartitionChangeRecord   0 to 2    what changed of a partition
    9     RemoveTopicRecord       0         the id is gone, with its partitions and settings
    12    FeatureLevelRecord      0         a feature, ``metadata.version`` among them
    15    ProducerIdsRecord       0         producer ids below this one have been given out
    ====  ======================  ========  ==================================================

Unused fields are declared only where they precede a used one, or where they are written; unknown
tags are skipped.

Source: KIP-631, KIP-858, KIP-966; Kafka ``metadata/src/main/resources/common/metadata``.
Read next: `storage.kafka.kraft_records`.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.declare.primitives import (
    INT32,
    UUID,
    array,
    int8,
    int16,
    int32,
    int64,
    stored,
    string,
    uuid,
)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class TopicRecord:
    """A topic has come into being."""

    name: str = string()
    topic_id: bytes = uuid()


@stored(max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class PartitionRecord:
    """A partition has come into being on these nodes, the first one preferred."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(INT32)
    isr: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    leader: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(UUID, since=1)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ConfigRecord:
    """A setting of a resource; the broker name "" means all brokers."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable_since=0, default=None)


@stored(max_version=2, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class PartitionChangeRecord:
    """The changes of a partition; `replicas` is None where they did not change."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] | None = array(INT32, nullable_since=0, tag=2, default=None)


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class RemoveTopicRecord:
    """A topic was removed."""

    topic_id: bytes = uuid()


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class FeatureLevelRecord:
    """A feature of the cluster is at this level; 0 is off."""

    name: str = string()
    feature_level: int = int16()


@stored(max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class ProducerIdsRecord:
    """The producer ids below `next_producer_id` are taken; the node is the last requester."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()
