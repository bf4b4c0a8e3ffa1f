"""OffsetDelete (key 47): delete single offsets of a group (KIP-496).

=======  =====================
version  change
=======  =====================
0        never became flexible
=======  =====================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition:
    """A partition whose offset to delete."""

    partition_index: int = int32()


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(ApiKey.OFFSET_DELETE, Direction.REQUEST, max_version=0)
@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest:
    """The offsets to delete from a group."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition:
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(ApiKey.OFFSET_DELETE, Direction.RESPONSE, max_version=0)
@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse:
    """The outcome for every partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
