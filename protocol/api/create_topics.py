"""CreateTopics (key 19): create topics.

=======  =================================================================================
version  change
=======  =================================================================================
0        partitions or assignments, replication factor, configuration
1        dry run; error message
2        answer carries throttle_time_ms
3        client, not broker, waits out a throttle
4        -1 asks for the broker's default partition count and replication factor (KIP-464)
5        flexible; answer carries the effective configuration (KIP-525)
6        THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
7        answer carries the topic id (KIP-516)
=======  =================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    uuid,
)


@dataclass(slots=True, kw_only=True)
class CreatableReplicaAssignment:
    """Brokers for one partition, the preferred leader first."""

    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig:
    """A setting that differs from the broker's default."""

    name: str = string()
    value: str | None = string(nullable_since=0)


@dataclass(slots=True, kw_only=True)
class CreatableTopic:
    """A topic to create."""

    name: str = string()
    num_partitions: int = int32()
    """-1 when assignments are given, or for the default."""

    replication_factor: int = int16()
    """-1 when assignments are given, or for the default."""

    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(ApiKey.CREATE_TOPICS, Direction.REQUEST, max_version=7, flexible_since=5)
@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    """Topics to create, each on its own merits."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs:
    """One effective setting of a new topic."""

    name: str = string(since=5)
    value: str | None = string(since=5, nullable_since=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(since=5, default=-1)
    """Same codes as in DescribeConfigs."""

    is_sensitive: bool = boolean(since=5)


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult:
    """The outcome for one topic."""

    name: str = string()
    topic_id: bytes = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable_since=1)
    topic_config_error_code: int = int16(since=5, tag=0)
    """Set when the caller may not see the configuration."""

    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5
    )
    """Null when the caller may not see it, or the topic was not created."""


@message(ApiKey.CREATE_TOPICS, Direction.RESPONSE, max_version=7, flexible_since=5)
@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    """The outcome for every topic."""

    throttle_time_ms: int = int32(since=2)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
