"""CreatePartitions (key 37): give a topic more partitions.

=======  ===================================================
version  change
=======  ===================================================
0        new total per topic
1        client, not broker, waits out a throttle
2        flexible
3        THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599)
=======  ===================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    INT32,
    Direction,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsAssignment:
    """Brokers for one new partition."""

    broker_ids: list[int] = array(INT32)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic:
    """A topic and its new total."""

    name: str = string()
    count: int = int32()
    """The total afterwards, not the difference."""

    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )
    """One per new partition, or null to let the broker choose."""


@message(ApiKey.CREATE_PARTITIONS, Direction.REQUEST, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    """Topics to grow, each on its own merits."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult:
    """The outcome for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@message(ApiKey.CREATE_PARTITIONS, Direction.RESPONSE, max_version=3, flexible_since=2)
@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    """The outcome for every topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
