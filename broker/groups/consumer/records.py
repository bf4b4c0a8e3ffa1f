"""Records of groups of the consumer protocol in `__consumer_offsets`, both ways.

Owns the translation between `protocol.stored.consumer_group_log`, which has the bytes, and values
of these groups. Kind 4 (partition counts, gone since Kafka 4.1) and kind 16 (what patterns matched)
can be derived from other facts: they are not written, and skipped when read.
"""

from collections.abc import Iterable
from typing import Final

from broker.groups.consumer.values import (
    JOIN_EPOCH,
    Change,
    ChangeKind,
    ClassicFacts,
    CurrentAssignment,
    MemberState,
    Partition,
    Partitions,
    StoredConsumerGroup,
    Subscription,
    indexes_by_key,
)
from broker.groups.record_keys import RecordKey, RecordKeys
from protocol.stored import consumer_group_log as stored
from protocol.stored.codec import UnknownRecord, decode, encode, version_of
from protocol.structs import ProtocolMetadata

_VALUE_VERSION: Final = 0
KEYS: Final = RecordKeys(
    kinds=ChangeKind,
    about_members=frozenset({ChangeKind.SUBSCRIPTION, ChangeKind.TARGET, ChangeKind.CURRENT}),
)
DERIVED_KINDS: Final = frozenset({4, 16})
"""Kinds that Kafka writes and that are derived here."""


def encode_change(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of one change; no value is a tombstone."""
    value = None if change.value is None else encode(_value(change), _VALUE_VERSION)
    return KEYS.encode(change.kind, group_id, change.member_id), value


def _value(change: Change) -> object:
    value = change.value
    if isinstance(value, int):
        return stored.GroupEpochValue(epoch=value)
    if isinstance(value, Subscription):
        return _member_metadata(value)
    if isinstance(value, CurrentAssignment):
        return stored.CurrentAssignmentValue(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_epoch,
            state=value.state,
            assigned_partitions=_with_epochs(value, value.assigned),
            partitions_pending_revocation=_with_epochs(value, value.pending_revocation),
        )
    assert value is not None, "tombstones have no value to encode"
    return stored.TargetAssignmentValue(topic_partitions=_by_topic(value))


def _member_metadata(said: Subscription) -> stored.MemberMetadataValue:
    classic = said.classic
    return stored.MemberMetadataValue(
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.names),
        subscribed_topic_regex=said.regex,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        server_assignor=said.server_assignor,
        classic_member_metadata=None
        if classic is None
        else stored.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ProtocolMetadata(name=name, metadata=metadata)
                for name, metadata in classic.protocols
            ],
        ),
    )


def _by_topic(partitions: Partitions) -> list[stored.TopicPartitions]:
    return [
        stored.TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in indexes_by_key(partitions).items()
    ]


def _with_epochs(
    current: CurrentAssignment, partitions: Partitions
) -> list[stored.TopicPartitions]:
    topics = _by_topic(partitions)
    for topic in topics:
        topic.assignment_epochs = [
            current.had_since((topic.topic_id, index)) or JOIN_EPOCH for index in topic.partitions
        ]
    return topics


def is_consumer_key(key: bytes) -> bool:
    """Whether a record is of a kind that came after classic groups."""
    try:
        return version_of(key) >= ChangeKind.GROUP_EPOCH
    except UnknownRecord:
        return False


def decode_consumer_key(key: bytes) -> RecordKey[ChangeKind] | None:
    """The subject of a record; None when it is of a kind that is derived here.

    Raises:
        UnknownRecord: another kind, or torn.
    """
    return None if version_of(key) in DERIVED_KINDS else KEYS.decode(key)


def take_record(group: StoredConsumerGroup, about: RecordKey[ChangeKind], value: bytes) -> None:
    """Put the newest value of a key into its field of `group`.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    member_id = about.member_id or ""
    if about.kind is ChangeKind.GROUP_EPOCH:
        group.epoch = decode(stored.GroupEpochValue, value).epoch
    elif about.kind is ChangeKind.ASSIGNMENT_EPOCH:
        group.assignment_epoch = decode(stored.GroupEpochValue, value).epoch
    elif about.kind is ChangeKind.SUBSCRIPTION:
        group.subscriptions[member_id] = _subscription(decode(stored.MemberMetadataValue, value))
    elif about.kind is ChangeKind.TARGET:
        found = decode(stored.TargetAssignmentValue, value)
        group.targets[member_id] = _partitions(found.topic_partitions)
    else:
        group.current[member_id] = _current(decode(stored.CurrentAssignmentValue, value))


def _subscription(found: stored.MemberMetadataValue) -> Subscription:
    classic = found.classic_member_metadata
    return Subscription(
        instance_id=found.instance_id,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        names=frozenset(found.subscribed_topic_names),
        regex=found.subscribed_topic_regex,
        rebalance_timeout_ms=found.rebalance_timeout_ms,
        server_assignor=found.server_assignor,
        classic=None
        if classic is None
        else ClassicFacts(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple((each.name, each.metadata) for each in classic.supported_protocols),
        ),
    )


def _current(found: stored.CurrentAssignmentValue) -> CurrentAssignment:
    try:
        state = MemberState(found.state)
    except ValueError as error:
        raise UnknownRecord(f"member state {found.state}") from error
    default_epoch = max(found.member_epoch, JOIN_EPOCH)
    assigned = _epochs(found.assigned_partitions, default_epoch)
    pending = _epochs(found.partitions_pending_revocation, default_epoch)
    return CurrentAssignment(
        member_epoch=found.member_epoch,
        previous_epoch=found.previous_member_epoch,
        state=state,
        assigned=frozenset(assigned),
        pending_revocation=frozenset(pending),
        since=assigned | pending,
    )


def _epochs(topics: Iterable[stored.TopicPartitions], default_epoch: int) -> dict[Partition, int]:
    """Partitions with the epochs in which they were assigned; older brokers do not write these."""
    found: dict[Partition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [default_epoch] * len(topic.partitions)
        for index, epoch in zip(topic.partitions, epochs, strict=True):
            found[topic.topic_id, index] = epoch
    return found


def _partitions(topics: Iterable[stored.TopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)
