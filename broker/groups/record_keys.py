"""Keys of the records that consumer, share and streams groups store about themselves and members.

Owns what the three have in common: the version of a key is the kind of the change, and a kind is
about the group or about one of its members. `records` of each has the values.
"""

import enum
from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from protocol.stored.codec import UnknownRecord, decode, encode, version_of
from protocol.stored.group_log import GroupKey, MemberKey
from values.dataclasses import dataclass

Kind = TypeVar("Kind", bound=enum.IntEnum)


class RecordKey(NamedTuple, Generic[Kind]):
    """The subject of a record; `member_id` is None for the group itself."""

    kind: Kind
    group_id: str
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKeys(Generic[Kind]):
    """The keys of one type of groups: its kinds."""

    kinds: type[Kind]
    about_members: Collection[Kind]

    def includes(self, key: bytes) -> bool:
        """Whether a record of `__consumer_offsets` is about such a group."""
        try:
            return version_of(key) in self.kinds._value2member_map_
        except UnknownRecord:
            return False

    def encode(self, kind: Kind, group_id: str, member_id: str | None) -> bytes:
        """The stored key."""
        if kind in self.about_members:
            return encode(MemberKey(group_id=group_id, member_id=member_id or ""), kind)
        return encode(GroupKey(group_id=group_id), kind)

    def decode(self, key: bytes) -> RecordKey[Kind]:
        """The subject of a record. Raises: UnknownRecord: another kind, or torn."""
        number = version_of(key)
        try:
            kind = self.kinds(number)
        except ValueError as error:
            raise UnknownRecord(f"record key version {number} in the offsets topic") from error
        if kind in self.about_members:
            member = decode(MemberKey, key)
            return RecordKey(kind, member.group_id, member.member_id)
        return RecordKey(kind, decode(GroupKey, key).group_id, None)
