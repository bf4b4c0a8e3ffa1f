"""Records of Kafka's metadata log: topics, settings, users, rules, quotas; both directions.

Owns the list of kinds that are understood. Refuses to know files, the state that the records add up
to (`storage.kafka.kraft_metadata`), their bytes (`protocol.stored.kraft`) and what the records of
security say (`cli.directory.kraft_security`). Other kinds, about nodes, become `OtherRecord`.

Kinds 23 to 25 (begin, end, abort) mean that the records in between are valid together or not at all
(KIP-868).

Source: KIP-631, KIP-868; Kafka ``MetadataRecordSerde``.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from protocol.declare.primitives import stored_spec
from protocol.stored import kraft
from protocol.stored.codec import UnknownRecord, decode_body, decode_frame, encode_framed
from protocol.stored.kraft import MetadataRecord
from values.dataclasses import dataclass

RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4

METADATA_VERSION_FEATURE: Final = "metadata.version"

_KINDS: Final[Mapping[int, type[MetadataRecord]]] = {
    2: kraft.TopicRecord,
    3: kraft.PartitionRecord,
    4: kraft.ConfigRecord,
    5: kraft.PartitionChangeRecord,
    9: kraft.RemoveTopicRecord,
    10: kraft.DelegationTokenRecord,
    11: kraft.UserScramCredentialRecord,
    12: kraft.FeatureLevelRecord,
    14: kraft.ClientQuotaRecord,
    15: kraft.ProducerIdsRecord,
    18: kraft.AccessControlEntryRecord,
    19: kraft.RemoveAccessControlEntryRecord,
    22: kraft.RemoveUserScramCredentialRecord,
    26: kraft.RemoveDelegationTokenRecord,
}
_KIND_OF: Final = {cls: kind for kind, cls in _KINDS.items()}
_WRITTEN_VERSION: Final[Mapping[type, int]] = {kraft.PartitionRecord: 1}
_BEGIN_TRANSACTION: Final = 23
_END_TRANSACTION: Final = 24
_ABORT_TRANSACTION: Final = 25


class CorruptMetadata(Exception):
    """A record does not match its kind and version; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transaction of the metadata log begins, or ends with its records kept or dropped."""

    begins: bool
    keeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRecord:
    """A record of a kind that is not needed here."""

    key: int


AnyRecord: TypeAlias = MetadataRecord | TransactionRecord | OtherRecord


def encode(record: MetadataRecord) -> bytes:
    """The value of a record, in the version that releases from 3.7 on read (KIP-858)."""
    cls = type(record)
    return encode_framed(record, _KIND_OF[cls], _WRITTEN_VERSION.get(cls, 0))


def decode(value: bytes) -> AnyRecord:
    """Decode a record of the metadata log.

    Raises:
        CorruptMetadata: another frame or version, or fewer bytes than its fields need.
    """
    try:
        kind, version, position = decode_frame(value)
        if _BEGIN_TRANSACTION <= kind <= _ABORT_TRANSACTION:
            return TransactionRecord(
                begins=kind == _BEGIN_TRANSACTION, keeps=kind == _END_TRANSACTION
            )
        cls = _KINDS.get(kind)
        if cls is None:
            return OtherRecord(key=kind)
        newest = stored_spec(cls).max_version
        if version > newest:
            raise CorruptMetadata(
                f"{cls.__name__} of version {version}: this release reads versions up to {newest}"
            )
        return decode_body(cls, version, value, position)
    except UnknownRecord as error:
        raise CorruptMetadata(f"a metadata record cannot be read: {error}") from None
