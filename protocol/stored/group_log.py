"""`__consumer_offsets`, first half: committed offsets and classic groups.

    ====  ===============  =====================================================================
    key   kind             value versions
    ====  ===============  =====================================================================
    0, 1  offset commit    0 as first written; 1 with an expiry; 2 without; 3 leader epoch;
                           4 flexible, topic id (tag 0)
    2     group metadata   0 as first written; 1 rebalance timeout; 2 time of the state;
                           3 instance ids; 4 flexible
    ====  ===============  =====================================================================

The key's version is the kind of record. A null value is a tombstone.

Source: Kafka ``OffsetCommitKey/Value.json``, ``GroupMetadataKey/Value.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.declare.primitives import array, binary, int32, int64, stored, string, uuid

OFFSET_COMMIT_KEY: Final = 1
GROUP_METADATA_KEY: Final = 2


@stored(max_version=1)
@dataclass(slots=True, kw_only=True)
class OffsetCommitKey:
    """Whose position in which partition."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@stored(max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class OffsetCommitValue:
    """A position that a group has committed; times in ms, -1 for none."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1)
    topic_id: bytes = uuid(since=4, tag=0)


@stored(max_version=2)
@dataclass(slots=True, kw_only=True)
class GroupMetadataKey:
    """Whose metadata; the version is `GROUP_METADATA_KEY`."""

    group: str = string()


@dataclass(slots=True, kw_only=True)
class GroupMetadataMember:
    """One member of a classic group; timeouts in ms."""

    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@stored(max_version=4, flexible_since=4)
@dataclass(slots=True, kw_only=True)
class GroupMetadataValue:
    """A classic group in one of its generations."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable_since=0, default=None)
    leader: str | None = string(nullable_since=0, default=None)
    current_state_timestamp: int = int64(since=2, default=-1)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)
