"""Records of share groups, both ways: of `__consumer_offsets` and of `__share_group_state`.

Owns the translation between `protocol.stored.share_group_log`, which has the bytes, and the values
of share groups. Partitions whose state is being initialized or deleted do not occur here, because
both take one append; records of Kafka that name such partitions are read as "not initialized".
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from broker.groups.consumer.values import Partitions, indexes_by_key
from broker.groups.record_keys import RecordKey, RecordKeys
from broker.groups.share.group_values import (
    ShareChange,
    ShareChangeKind,
    ShareSubscription,
    StoredMember,
    StoredShareGroup,
)
from broker.groups.share.persister import StateChange
from broker.groups.share.stored_state import (
    NO_FENCES,
    UNKNOWN_EPOCH,
    ShareKey,
    StoredState,
)
from broker.groups.share.values import Delivery, StateBatch
from protocol.stored import share_group_log as stored
from protocol.stored.codec import UnknownRecord, decode, encode, version_of
from protocol.stored.group_log import AssignmentEpochValue
from protocol.structs import NamedPartitions, StoredBatch, TopicPartitions

_VALUE_VERSION: Final = 0
_STABLE: Final = 0
KEYS: Final = RecordKeys(
    kinds=ShareChangeKind,
    about_members=frozenset(
        {ShareChangeKind.SUBSCRIPTION, ShareChangeKind.TARGET, ShareChangeKind.CURRENT}
    ),
)


class StateKind(enum.IntEnum):
    """The kinds of records of the state topic."""

    SNAPSHOT = 0
    UPDATE = 1


def encode_change(group_id: str, change: ShareChange) -> tuple[bytes, bytes | None]:
    """Key and value of one change; no value is a tombstone."""
    value = None if change.value is None else encode(_value(change), _VALUE_VERSION)
    return KEYS.encode(change.kind, group_id, change.member_id), value


def _value(change: ShareChange) -> object:
    value = change.value
    if change.kind is ShareChangeKind.GROUP_EPOCH:
        assert isinstance(value, int)
        return stored.ShareGroupMetadataValue(epoch=value)
    if change.kind is ShareChangeKind.ASSIGNMENT_EPOCH:
        assert isinstance(value, int)
        return AssignmentEpochValue(assignment_epoch=value)
    if isinstance(value, ShareSubscription):
        return stored.ShareMemberMetadataValue(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=sorted(value.names),
        )
    if isinstance(value, StoredMember):
        return stored.ShareCurrentValue(
            member_epoch=value.epoch,
            previous_member_epoch=value.previous_epoch,
            state=_STABLE,
            assigned_partitions=_by_topic(value.assigned),
        )
    if isinstance(value, frozenset):
        return stored.ShareTargetValue(topic_partitions=_by_topic(value))
    assert isinstance(value, Mapping), change
    return stored.StatePartitionsValue(
        initialized_topics=[
            NamedPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            for topic_id, (name, indexes) in value.items()
        ]
    )


def _by_topic(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in indexes_by_key(partitions).items()
    ]


def _partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def take_record(found: StoredShareGroup, about: RecordKey[ShareChangeKind], value: bytes) -> None:
    """Put the newest value of a key into its field of `found`.

    Raises:
        UnknownRecord: a newer version, or torn.
    """
    member_id = about.member_id or ""
    if about.kind is ShareChangeKind.GROUP_EPOCH:
        found.epoch = decode(stored.ShareGroupMetadataValue, value).epoch
    elif about.kind is ShareChangeKind.ASSIGNMENT_EPOCH:
        found.assignment_epoch = decode(AssignmentEpochValue, value).assignment_epoch
    elif about.kind is ShareChangeKind.SUBSCRIPTION:
        said = decode(stored.ShareMemberMetadataValue, value)
        found.subscriptions[member_id] = ShareSubscription(
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            names=frozenset(said.subscribed_topic_names),
        )
    elif about.kind is ShareChangeKind.TARGET:
        target = decode(stored.ShareTargetValue, value)
        found.targets[member_id] = _partitions(target.topic_partitions)
    elif about.kind is ShareChangeKind.CURRENT:
        current = decode(stored.ShareCurrentValue, value)
        found.current[member_id] = StoredMember(
            epoch=current.member_epoch,
            previous_epoch=current.previous_member_epoch,
            assigned=_partitions(current.assigned_partitions),
        )
    else:
        states = decode(stored.StatePartitionsValue, value)
        found.initialized = {
            topic.topic_id: (topic.topic_name, frozenset(topic.partitions))
            for topic in states.initialized_topics
        }


# -- the state topic -------------------------------------------------------------------------------


def encode_snapshot(key: ShareKey, state: StoredState, now_ms: int) -> tuple[bytes, bytes]:
    """The whole state as a record."""
    value = stored.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        create_timestamp=state.created_ms,
        write_timestamp=now_ms,
        state_batches=_batches(state.batches),
        delivery_complete_count=state.done_count,
    )
    return _state_key(key, StateKind.SNAPSHOT), encode(value, _VALUE_VERSION)


def encode_update(state: StoredState, change: StateChange) -> tuple[bytes, bytes]:
    """A change since the snapshot as a record."""
    is_new = change.leader_epoch != UNKNOWN_EPOCH
    value = stored.ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=change.leader_epoch if is_new else state.leader_epoch,
        start_offset=change.start_offset,
        state_batches=_batches(change.batches),
        delivery_complete_count=change.done_count,
    )
    return _state_key(change.key, StateKind.UPDATE), encode(value, _VALUE_VERSION)


def encode_forgotten(key: ShareKey) -> tuple[bytes, None]:
    """The tombstone of a share partition."""
    return _state_key(key, StateKind.SNAPSHOT), None


def fold(
    states: dict[ShareKey, StoredState], key: bytes, value: bytes | None, position: int
) -> None:
    """Take the next record of the state topic, which lies at offset `position`.

    Raises:
        UnknownRecord: another kind, a newer version, or torn.
    """
    kind = version_of(key)
    if kind not in StateKind._value2member_map_:
        raise UnknownRecord(f"record key version {kind} in the share state topic")
    about = decode(stored.SharePartitionKey, key)
    share_key = ShareKey(about.group_id, about.topic_id, about.partition)
    if value is None:
        states.pop(share_key, None)
    elif kind == StateKind.SNAPSHOT:
        snapshot = decode(stored.ShareSnapshotValue, value)
        before = states.get(share_key)
        fences = NO_FENCES if before is None else before.fences
        states[share_key] = StoredState(
            snapshot_epoch=snapshot.snapshot_epoch,
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            fences=fences.raised(snapshot.leader_epoch, snapshot.state_epoch),
            start_offset=snapshot.start_offset,
            created_ms=snapshot.create_timestamp,
            batches=_states(snapshot.state_batches),
            done_count=snapshot.delivery_complete_count,
            position=position,
        )
    else:
        update = decode(stored.ShareUpdateValue, value)
        known = states.get(share_key)
        if known is not None and known.snapshot_epoch == update.snapshot_epoch:
            known.updates += 1
            known.merge(
                update.start_offset,
                _states(update.state_batches),
                update.delivery_complete_count,
                update.leader_epoch,
            )


def _state_key(key: ShareKey, kind: StateKind) -> bytes:
    about = stored.SharePartitionKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return encode(about, kind)


def _batches(batches: Iterable[StateBatch]) -> list[StoredBatch]:
    return [
        StoredBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=each.state,
            delivery_count=each.deliveries,
        )
        for each in batches
    ]


def _states(batches: Iterable[StoredBatch]) -> list[StateBatch]:
    try:
        return [
            StateBatch(
                each.first_offset,
                each.last_offset,
                Delivery(each.delivery_state),
                each.delivery_count,
            )
            for each in batches
        ]
    except ValueError as error:
        raise UnknownRecord(f"a delivery state of share groups: {error}") from error
