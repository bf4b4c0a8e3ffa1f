"""Keys and values of `__consumer_offsets` for committed offsets and classic groups, both ways.

Owns which versions of `protocol.stored.group_log` are written, and committed offsets as values in
memory. Refuses to know logs and groups' behaviour. Like Kafka 2.1 to 4.x, it writes offset values 3
(1 when a client gave its own retention) and group values 3 under keys 1 and 2; it reads every
version. A null value is a tombstone.
"""

from typing import Final, NamedTuple, TypeAlias

from protocol.records.layout import NO_TIMESTAMP
from protocol.stored.codec import UnknownRecord, decode, encode, version_of
from protocol.stored.group_log import (
    GROUP_METADATA_KEY,
    OFFSET_COMMIT_KEY,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

_OFFSET_VALUE_WITH_EXPIRY: Final = 1
_OFFSET_VALUE: Final = 3
_GROUP_VALUE: Final = 3
_SINCE_REBALANCE_TIMEOUT: Final = 1


Key: TypeAlias = OffsetCommitKey | GroupMetadataKey


class CommittedOffset(NamedTuple):
    """A position that a group has reached: `offset` is the next record it wants.

    `expire_timestamp_ms` is set only for clients that gave their own retention (OffsetCommit v2 to
    v4); otherwise `NO_TIMESTAMP`.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a group's position in one partition."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return encode(key, OFFSET_COMMIT_KEY)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    """The value of a position; version 1 if it carries its own expiry, else 3."""
    has_expiry = committed.expire_timestamp_ms != NO_TIMESTAMP
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return encode(value, _OFFSET_VALUE_WITH_EXPIRY if has_expiry else _OFFSET_VALUE)


def encode_group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return encode(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY)


def encode_group_value(group: GroupMetadataValue) -> bytes:
    """The value of a group's metadata, version 3."""
    return encode(group, _GROUP_VALUE)


def decode_key(key: bytes) -> Key:
    """The subject of a record.

    Raises:
        UnknownRecord: another kind of record (KIP-848 groups use versions 3 and up), or torn.
    """
    if version_of(key) <= OFFSET_COMMIT_KEY:
        return decode(OffsetCommitKey, key)
    if version_of(key) == GROUP_METADATA_KEY:
        return decode(GroupMetadataKey, key)
    raise UnknownRecord(f"record key version {version_of(key)} in the offsets topic")


def decode_offset_value(value: bytes) -> CommittedOffset:
    """A group's position, from any version.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    found = decode(OffsetCommitValue, value)
    return CommittedOffset(
        offset=found.offset,
        leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        commit_timestamp_ms=found.commit_timestamp,
        expire_timestamp_ms=found.expire_timestamp,
    )


def decode_group_value(value: bytes) -> GroupMetadataValue:
    """A group's metadata, from any version.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    found = decode(GroupMetadataValue, value)
    if version_of(value) < _SINCE_REBALANCE_TIMEOUT:
        for member in found.members:
            member.rebalance_timeout = member.session_timeout
    return found
