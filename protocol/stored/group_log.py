"""`__consumer_offsets`: committed offsets, classic groups, and the keys of all other groups.

| key  | kind           | value versions                                                   |
|------|----------------|------------------------------------------------------------------|
| 0, 1 | offset commit  | 0 as first written; 1 with an expiry; 2 without; 3 leader epoch; |
|      |                | 4 flexible, topic id (tag 0)                                     |
| 2    | group metadata | 0 as first written; 1 rebalance timeout; 2 time of the state;    |
|      |                | 3 instance ids; 4 flexible                                       |

The key's version is the kind of record. A null value is a tombstone. The other kinds are in
`consumer_group_log`, `share_group_log` and `streams_group_log`, all with the same two keys.

Source: Kafka ``OffsetCommitKey/Value.json``, ``GroupMetadataKey/Value.json``.
"""

from typing import Final

from protocol.declare import primitives as wire

OFFSET_COMMIT_KEY: Final = 1
GROUP_METADATA_KEY: Final = 2


class OffsetCommitKey(wire.Stored, max_version=1):
    """Whose position in which partition."""

    group: str = wire.string()
    topic: str = wire.string()
    partition: int = wire.int32()


class OffsetCommitValue(wire.Stored, max_version=4, flexible_since=4):
    """A position that a group has committed; times in ms, -1 for none."""

    offset: int = wire.int64()
    leader_epoch: int = wire.int32(since=3, default=-1)
    metadata: str = wire.string()
    commit_timestamp: int = wire.int64()
    expire_timestamp: int = wire.int64(since=1, until=1, default=-1)
    topic_id: bytes = wire.uuid(since=4, tag=0)


class GroupMetadataKey(wire.Stored, max_version=2):
    """Whose metadata; the version is `GROUP_METADATA_KEY`."""

    group: str = wire.string()


class GroupMetadataMember(wire.Struct):
    """One member of a classic group; timeouts in ms."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string(since=3, nullable_since=3, default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    rebalance_timeout: int = wire.int32(since=1, default=-1)
    session_timeout: int = wire.int32()
    subscription: bytes = wire.binary()
    assignment: bytes = wire.binary()


class GroupMetadataValue(wire.Stored, max_version=4, flexible_since=4):
    """A classic group in one of its generations."""

    protocol_type: str = wire.string()
    generation: int = wire.int32()
    protocol: str | None = wire.string(nullable_since=0, default=None)
    leader: str | None = wire.string(nullable_since=0, default=None)
    current_state_timestamp: int = wire.int64(since=2, default=-1)
    members: list[GroupMetadataMember] = wire.array()


class GroupKey(wire.Stored, max_version=23):
    """The key of a record about a group; its version is the kind."""

    group_id: str = wire.string()


class MemberKey(wire.Stored, max_version=22):
    """The key of a record about one member; its version is the kind."""

    group_id: str = wire.string()
    member_id: str = wire.string()


class AssignmentEpochValue(wire.Stored, max_version=0, flexible_since=0):
    """The epoch of a group's target assignment."""

    assignment_epoch: int = wire.int32()
    assignment_timestamp: int = wire.int64(tag=0)
