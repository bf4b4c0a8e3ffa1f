"""Records of groups of Kafka Streams in `__consumer_offsets`, both ways.

Owns the translation between `protocol.stored.streams_group_log`, which has the bytes, and the
values of these groups. Warm-up tasks are written as none and not read: no member has any.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.groups.consumer.values import indexes_by_key
from broker.groups.record_keys import RecordKey, RecordKeys
from broker.groups.streams.values import (
    CurrentTasks,
    Endpoint,
    GroupFacts,
    MemberFacts,
    MemberState,
    StoredStreamsGroup,
    StreamsChange,
    StreamsChangeKind,
    Task,
    Tasks,
    TaskSet,
)
from protocol import streams
from protocol.stored import streams_group_log as stored
from protocol.stored.codec import UnknownRecord, decode, encode
from protocol.stored.group_log import AssignmentEpochValue

_VALUE_VERSION: Final = 0
_STANDBY_REPLICAS: Final = "num.standby.replicas"
KEYS: Final = RecordKeys(
    kinds=StreamsChangeKind,
    about_members=frozenset(
        {StreamsChangeKind.MEMBER, StreamsChangeKind.TARGET, StreamsChangeKind.CURRENT}
    ),
)


def encode_change(group_id: str, change: StreamsChange) -> tuple[bytes, bytes | None]:
    """Key and value of one change; no value is a tombstone."""
    value = None if change.value is None else encode(_value(change), _VALUE_VERSION)
    return KEYS.encode(change.kind, group_id, change.member_id), value


def _value(change: StreamsChange) -> object:
    value = change.value
    if isinstance(value, GroupFacts):
        return _group(value)
    if isinstance(value, MemberFacts):
        return _member(value)
    if isinstance(value, TaskSet):
        return stored.TargetValue(
            active_tasks=_ids(value.active), standby_tasks=_ids(value.standby)
        )
    if isinstance(value, CurrentTasks):
        pending = value.pending_revocation
        return stored.CurrentValue(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_epoch,
            state=value.state,
            active_tasks=_ids(value.assigned.active, value),
            standby_tasks=_ids(value.assigned.standby),
            active_tasks_pending_revocation=_ids(pending.active, value),
            standby_tasks_pending_revocation=_ids(pending.standby),
        )
    if isinstance(value, int):
        return AssignmentEpochValue(assignment_epoch=value)
    assert value is not None, "tombstones have no value to encode"
    return stored.TopologyValue(epoch=value.epoch, subtopologies=value.subtopologies)


def _group(facts: GroupFacts) -> stored.GroupMetadataValue:
    configs = None
    if facts.standby_replicas is not None:
        configs = [streams.KeyValue(key=_STANDBY_REPLICAS, value=str(facts.standby_replicas))]
    return stored.GroupMetadataValue(
        epoch=facts.epoch,
        metadata_hash=facts.metadata_hash,
        validated_topology_epoch=facts.validated_topology_epoch,
        last_assignment_configs=configs,
    )


def _member(facts: MemberFacts) -> stored.MemberMetadataValue:
    endpoint = facts.endpoint
    return stored.MemberMetadataValue(
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=facts.client_host,
        rebalance_timeout_ms=facts.rebalance_timeout_ms,
        topology_epoch=facts.topology_epoch,
        process_id=facts.process_id,
        user_endpoint=None
        if endpoint is None
        else streams.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=key_values(facts.tags),
    )


def key_values(pairs: Mapping[str, str]) -> list[streams.KeyValue]:
    """Pairs as messages and records list them."""
    return [streams.KeyValue(key=key, value=value) for key, value in sorted(pairs.items())]


def _ids(tasks: Tasks, current: CurrentTasks | None = None) -> list[stored.StoredTaskIds]:
    return [
        stored.StoredTaskIds(
            subtopology_id=name,
            partitions=indexes,
            assignment_epochs=None
            if current is None
            else [current.had_since((name, index)) or 0 for index in indexes],
        )
        for name, indexes in indexes_by_key(tasks).items()
    ]


def take_record(
    found: StoredStreamsGroup, about: RecordKey[StreamsChangeKind], value: bytes
) -> None:
    """Put the newest value of a key into its field of `found`.

    Raises:
        UnknownRecord: a newer version, an unknown state of a member, or torn.
    """
    member_id = about.member_id or ""
    if about.kind is StreamsChangeKind.GROUP:
        found.group = _taken_group(decode(stored.GroupMetadataValue, value))
    elif about.kind is StreamsChangeKind.ASSIGNMENT_EPOCH:
        found.assignment_epoch = decode(AssignmentEpochValue, value).assignment_epoch
    elif about.kind is StreamsChangeKind.TOPOLOGY:
        topology = decode(stored.TopologyValue, value)
        found.topology = streams.Topology(
            epoch=topology.epoch, subtopologies=topology.subtopologies
        )
    elif about.kind is StreamsChangeKind.MEMBER:
        found.facts[member_id] = _taken_member(decode(stored.MemberMetadataValue, value))
    elif about.kind is StreamsChangeKind.TARGET:
        target = decode(stored.TargetValue, value)
        found.targets[member_id] = TaskSet(
            _tasks(target.active_tasks), _tasks(target.standby_tasks)
        )
    else:
        found.current[member_id] = _taken_current(decode(stored.CurrentValue, value))


def _taken_group(value: stored.GroupMetadataValue) -> GroupFacts:
    configs = {each.key: each.value for each in value.last_assignment_configs or ()}
    standbys = configs.get(_STANDBY_REPLICAS, "")
    return GroupFacts(
        epoch=value.epoch,
        metadata_hash=value.metadata_hash,
        validated_topology_epoch=value.validated_topology_epoch,
        standby_replicas=int(standbys) if standbys.isdecimal() else None,
    )


def _taken_member(value: stored.MemberMetadataValue) -> MemberFacts:
    endpoint = value.user_endpoint
    return MemberFacts(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags={each.key: each.value for each in value.client_tags},
    )


def _taken_current(value: stored.CurrentValue) -> CurrentTasks:
    if value.state not in MemberState._value2member_map_:
        raise UnknownRecord(f"state {value.state} of a member of a streams group")
    since: dict[Task, int] = {}
    for ids in (*value.active_tasks, *value.active_tasks_pending_revocation):
        epochs = ids.assignment_epochs or [value.member_epoch] * len(ids.partitions)
        since.update(
            ((ids.subtopology_id, index), epoch)
            for index, epoch in zip(ids.partitions, epochs, strict=False)
        )
    return CurrentTasks(
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=TaskSet(_tasks(value.active_tasks), _tasks(value.standby_tasks)),
        pending_revocation=TaskSet(
            _tasks(value.active_tasks_pending_revocation),
            _tasks(value.standby_tasks_pending_revocation),
        ),
        since=since,
    )


def _tasks(ids: Iterable[stored.StoredTaskIds]) -> Tasks:
    return frozenset((each.subtopology_id, index) for each in ids for index in each.partitions)
