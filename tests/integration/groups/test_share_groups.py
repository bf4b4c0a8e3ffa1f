"""Share groups on the wire (KIP-932): delivery, acknowledgement, sessions, offsets, restarts.

What the numbers should be was asked of Apache Kafka 4.3.1; the state machine itself is checked by
`tests/property/test_share_partition_model.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protocol.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.share_group_describe import ShareGroupDescribeRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ProtocolMetadata
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

ACCEPT, RELEASE, REJECT, RENEW, GAP = (1,), (2,), (3,), (4,), (0,)
LOCK_MS = 30_000


@pytest.fixture
async def shared(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
    """A broker by a clock of the test's own, and a group that begins at the first record."""
    async with running_broker(tmp_path / "data", clock=clock) as running:
        client = await running.client()
        await set_group(client, "g", share_auto_offset_reset="earliest")
        yield running


async def ready(
    running: RunningBroker, *values: str, name: str = "member-1", partitions: int = 1
) -> ShareMember:
    """A member of `g` that has joined, on a topic with these records in one batch."""
    client = await running.client()
    topic_id = await create_topic(client, "t", partitions)
    if values:
        await produce(client, "t", batch(*values))
    member = ShareMember(client, "g", topic_id, name=name)
    joined = await member.heartbeat("t")
    assert joined.error_code == 0, joined.error_message
    return member


async def another(running: RunningBroker, member: ShareMember, name: str) -> ShareMember:
    """A second member, on a connection of its own."""
    other = ShareMember(await running.client(), "g", member.topic_id, name=name)
    assert (await other.heartbeat("t")).error_code == 0
    return other


async def state_of(client: RawClient, group_id: str = "g") -> list[tuple[int, int]]:
    """Start offset and lag of each partition."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    answer = await client.request(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    return [
        (partition.start_offset, partition.lag)
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    ]


# -- delivery and acknowledgement ------------------------------------------------------------------


async def test_a_member_gets_its_partitions_when_it_joins(shared: RunningBroker) -> None:
    member = await ready(shared, "a", partitions=3)
    again = await member.heartbeat("t")
    assert again.heartbeat_interval_ms == 5_000
    (assigned,) = again.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (member.topic_id, [0, 1, 2])
    assert (await member.heartbeat()).assignment is None


async def test_accepted_records_are_never_delivered_again(shared: RunningBroker) -> None:
    member = await ready(shared, *"abcde")
    found = await member.fetch()
    assert found.acquired == [(0, 4, 1)]
    assert list(found.values.values()) == [b"a", b"b", b"c", b"d", b"e"]
    assert await member.acked((0, 4, ACCEPT)) == 0
    assert (await member.fetch()).acquired == []
    other = await another(shared, member, "member-2")
    assert (await other.fetch()).acquired == []


async def test_two_members_share_one_partition(shared: RunningBroker) -> None:
    member = await ready(shared, "a", "b")
    await produce(member.client, "t", batch("c", "d"))
    other = await another(shared, member, "member-2")
    assert (await member.fetch(max_records=2)).acquired == [(0, 1, 1)]
    assert (await other.fetch()).acquired == [(2, 3, 1)]
    assert await other.acked((0, 1, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert await member.acked((0, 1, ACCEPT)) == 0


async def test_a_lock_that_expires_gives_records_to_another_member(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    member = await ready(shared, "a", "b", "c")
    assert (await member.fetch()).acquired == [(0, 2, 1)]
    assert await member.acked((0, 0, ACCEPT)) == 0
    other = await another(shared, member, "member-2")
    assert (await other.fetch()).acquired == []
    clock.advance(LOCK_MS + 1)
    assert (await other.fetch()).acquired == [(1, 2, 2)]
    assert await member.acked((1, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


async def test_a_fetch_waits_for_records_that_come_back(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    member = await ready(shared, "a")
    assert (await member.fetch()).acquired == [(0, 0, 1)]
    other = await another(shared, member, "member-2")
    waiting = asyncio.create_task(other.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await member.acked((0, 0, RELEASE)) == 0
    assert (await waiting).acquired == [(0, 0, 2)]


async def test_a_fetch_waits_for_new_records(shared: RunningBroker) -> None:
    member = await ready(shared)
    waiting = asyncio.create_task(member.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    client = await shared.client()
    await produce(client, "t", batch("late"))
    assert (await waiting).values == {0: b"late"}


async def test_a_record_that_is_always_released_is_archived_at_the_limit(
    shared: RunningBroker,
) -> None:
    """The deliveries of six records as Apache Kafka makes them: smaller and smaller pieces."""
    member = await ready(shared, *"abcdef")
    seen = []
    while (found := await member.fetch()).acquired:
        seen += found.acquired
        (first, last, _) = found.acquired[0]
        assert await member.acked((first, last, RELEASE)) == 0
    assert seen[:4] == [(0, 5, 1), (0, 5, 2), (0, 5, 3), (0, 2, 4)]
    assert seen[4:7] == [(0, 0, 5), (1, 1, 5), (2, 2, 5)]
    assert seen[7:] == [(3, 5, 4), (3, 3, 5), (4, 4, 5), (5, 5, 5)]
    assert (await state_of(member.client))[0][1] == 0


async def test_one_type_for_each_offset(shared: RunningBroker) -> None:
    member = await ready(shared, *"abcdef")
    await member.fetch()
    assert await member.acked((0, 5, [1, 2, 3, 0, 2, 1])) == 0
    assert (await member.fetch()).acquired == [(1, 1, 2), (4, 4, 2)]


async def test_a_renewed_lock_lasts_longer(shared: RunningBroker, clock: FrozenClock) -> None:
    member = await ready(shared, "a")
    await member.fetch()
    clock.advance(LOCK_MS - 5_000)
    assert await member.acked((0, 0, RENEW), is_renew_ack=True) == 0
    clock.advance(10_000)
    assert await member.acked((0, 0, ACCEPT)) == 0
    assert await member.acked((0, 0, RENEW)) == ErrorCode.INVALID_REQUEST
    await set_group(member.client, "g", share_renew_acknowledge_enable="false")
    await produce(member.client, "t", batch("b"))
    assert (await member.fetch()).acquired == [(1, 1, 1)]
    refused = await member.acked((1, 1, RENEW), is_renew_ack=True)
    assert refused == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(2, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(3, 4, ACCEPT), (0, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, ())], ErrorCode.INVALID_REQUEST),
        ([(0, 2, (1, 1))], ErrorCode.INVALID_REQUEST),
        ([(0, 0, (5,))], ErrorCode.INVALID_REQUEST),
        ([(0, 9, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, ACCEPT), (4, 9, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_wrong_acknowledgements_change_nothing(
    shared: RunningBroker, batches: list[tuple[int, int, Any]], expected: ErrorCode
) -> None:
    member = await ready(shared, *"abcde")
    await member.fetch()
    assert await member.acked(*batches) == expected
    assert await member.acked((0, 4, ACCEPT)) == 0


async def test_strict_limits_are_never_exceeded(shared: RunningBroker) -> None:
    member = await ready(shared, *"abcdefgh")
    strict = await member.fetch(max_records=3, share_acquire_mode=1)
    assert strict.acquired == [(0, 2, 1)]
    rest = await member.fetch(max_records=2, share_acquire_mode=0)
    assert rest.acquired == [(3, 7, 1)], "a batch of the log is not split"


async def test_a_fetch_without_bytes_brings_nothing(shared: RunningBroker) -> None:
    member = await ready(shared, "a", "b")
    assert (await member.fetch(max_bytes=0)).acquired == []
    assert (await member.fetch(max_bytes=1)).acquired == [(0, 1, 1)]


async def test_a_fetch_does_not_wait_for_more_bytes_than_it_may_bring(
    shared: RunningBroker,
) -> None:
    member = await ready(shared, "a")
    async with asyncio.timeout(60):  # the clock stands: waiting would never end
        found = await member.fetch(min_bytes=1 << 20, max_bytes=10, max_wait_ms=300_000)
    assert found.acquired == [(0, 0, 1)]


@pytest.mark.parametrize(("min_bytes", "expected"), [(1, [1, 2, 0]), (80, [2, 1, 0])])
async def test_a_fetch_that_loads_partitions_brings_as_few_as_it_has_to(
    shared: RunningBroker, min_bytes: int, expected: list[int]
) -> None:
    member = await ready(shared, partitions=3)
    for partition in range(3):
        await produce(member.client, "t", batch("a"), partition=partition)
    found: list[int] = []
    for least in (min_bytes, 1, 1):
        answer = await member.fetch_whole(0, 1, 2, min_bytes=least, max_wait_ms=0 if found else 9)
        parts = [part for topic in answer.responses for part in topic.partitions]
        found.append(sum(bool(part.acquired_records) for part in parts))
    assert found == expected


async def test_records_of_open_and_aborted_transactions(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    member = await ready(shared, "plain")
    await set_group(member.client, "g", share_isolation_level="read_committed")
    await shared_transaction(member.client, "t", "gone", commit=False)
    await shared_transaction(member.client, "t", "kept", commit=True)
    seen: dict[int, bytes] = {}
    while (found := await member.fetch()).acquired:
        seen |= {n: v for n, v in found.values.items() if v in (b"plain", b"gone", b"kept")}
        for first, last, _ in found.acquired:
            assert await member.acked((first, last, ACCEPT)) == 0
    assert list(seen.values()) == [b"plain", b"kept"]


async def shared_transaction(client: RawClient, topic: str, value: str, *, commit: bool) -> None:
    from protocol.api.end_txn import EndTxnRequest
    from protocol.api.init_producer_id import InitProducerIdRequest
    from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    begun = await client.request(
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5
    )
    assert begun.error_code == 0
    who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    records = batch(value, base_sequence=0, is_transactional=True, **who)
    part = PartitionProduceData(index=0, records=records)
    answer = await client.request(
        ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        ),
        12,
    )
    assert answer.responses[0].partition_responses[0].error_code == 0
    ended = await client.request(EndTxnRequest(transactional_id="x", committed=commit, **who), 5)
    assert ended.error_code == 0


async def test_deleted_records_are_passed(shared: RunningBroker) -> None:
    member = await ready(shared, "a", "b")
    await produce(member.client, "t", batch("c", "d"))
    assert (await member.fetch(max_records=2)).acquired == [(0, 1, 1)]
    part = DeleteRecordsPartition(partition_index=0, offset=3)
    topic = DeleteRecordsTopic(name="t", partitions=[part])
    await member.client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    assert (await member.fetch()).acquired == [(3, 3, 1)]
    assert await member.acked((0, 1, ACCEPT)) == 0, "what lies below the start is done"
    assert await member.acked((3, 3, ACCEPT)) == 0


# -- where a group begins --------------------------------------------------------------------------


async def test_a_group_begins_at_the_end_by_default(shared: RunningBroker) -> None:
    member = await ready(shared, "old")
    member.group_id = "latest"
    member.epoch = 0
    await member.heartbeat("t")
    assert (await member.fetch()).acquired == []
    await produce(member.client, "t", batch("new"))
    assert (await member.fetch()).values == {1: b"new"}


async def test_a_group_begins_by_duration_at_the_first_record_that_is_young_enough(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    client = await shared.client()
    topic_id = await create_topic(client, "t")
    for age_ms in (7_200_000, 3_000_000, 1_000):
        stamp = clock.wall_ms() - age_ms
        await produce(client, "t", batch(str(age_ms), timestamp=stamp))
    await set_group(client, "d", share_auto_offset_reset="by_duration:PT1H")
    member = ShareMember(client, "d", topic_id)
    await member.heartbeat("t")
    assert list((await member.fetch()).values) == [1, 2]


async def test_a_start_that_was_chosen_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        member = await ready(running, "old")
        assert (await member.fetch()).acquired == []
        await produce(member.client, "t", batch("seen"))
        assert (await member.fetch()).acquired == [(1, 1, 1)]
        topic_id = member.topic_id
    async with running_broker(tmp_path) as running:
        member = ShareMember(await running.client(), "g", topic_id, name="member-2")
        await member.heartbeat("t")
        assert (await member.fetch()).values == {1: b"seen"}


# -- sessions --------------------------------------------------------------------------------------


async def test_epochs_of_a_session(shared: RunningBroker) -> None:
    member = await ready(shared, "a")
    missing = await member.fetch_whole(0, session_epoch=1)
    assert missing.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await member.fetch()
    wrong = await member.fetch_whole(0, session_epoch=7)
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    first = await member.acknowledge((0, 0, ACCEPT), session_epoch=0)
    assert first.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    begun = await member.fetch_whole(0, session_epoch=0, acks=[(0, 0, 0, ACCEPT)])
    assert begun.error_code == ErrorCode.INVALID_REQUEST
    last = await member.acknowledge((0, 0, ACCEPT), session_epoch=-1)
    assert last.responses[0].partitions[0].error_code == 0
    gone = await member.fetch_whole(0)
    assert gone.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_the_end_of_a_session_gives_its_records_back(shared: RunningBroker) -> None:
    member = await ready(shared, "a", "b")
    other = await another(shared, member, "member-2")
    assert (await member.fetch()).acquired == [(0, 1, 1)]
    await member.acknowledge((0, 0, ACCEPT), session_epoch=-1)
    assert (await other.fetch()).acquired == [(1, 1, 2)]


async def test_a_lost_connection_gives_its_records_back(shared: RunningBroker) -> None:
    member = await ready(shared, "a")
    other = await another(shared, member, "member-2")
    assert (await member.fetch()).acquired == [(0, 0, 1)]
    waiting = asyncio.create_task(other.fetch(max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    await member.client.close()
    assert (await waiting).acquired == [(0, 0, 2)]


async def test_a_client_that_has_gone_holds_no_record(shared: RunningBroker) -> None:
    member = await ready(shared)
    member.client.send(member.request([0], max_wait_ms=60_000), 2)
    await asyncio.sleep(0.05)
    await member.client.close()
    await asyncio.sleep(0.05)
    other = await another(shared, member, "member-2")
    await produce(other.client, "t", batch("a"))
    assert (await other.fetch()).acquired == [(0, 0, 1)]


async def test_sessions_are_limited(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, group_share_max_size="1", group_share_max_share_sessions="1"
    ) as running:
        member = await ready(running)
        await member.fetch()
        other = ShareMember(await running.client(), "g", member.topic_id, name="member-2")
        refused = await other.fetch_whole(0)
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        full = await other.heartbeat("t")
        assert full.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        await member.acknowledge(session_epoch=-1)
        assert (await other.fetch_whole(0)).error_code == 0


async def test_partitions_of_a_session_that_have_nothing_are_left_out(
    shared: RunningBroker,
) -> None:
    member = await ready(shared, "a", partitions=2)
    whole = await member.fetch_whole(0, 1)
    assert len(whole.responses[0].partitions) == 2
    assert (await member.fetch_whole()).responses == []


async def test_a_topic_without_members_and_a_topic_that_does_not_exist(
    shared: RunningBroker,
) -> None:
    member = await ready(shared, "a")
    stranger = ShareMember(await shared.client(), "other", member.topic_id)
    assert (await stranger.fetch()).error == ErrorCode.UNKNOWN_SERVER_ERROR
    nowhere = ShareMember(await shared.client(), "g", b"\x01" * 16, name="m")
    assert (await nowhere.fetch()).error == ErrorCode.UNKNOWN_TOPIC_ID


# -- membership ------------------------------------------------------------------------------------


async def test_epochs_of_members(
    shared: RunningBroker, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    member = await ready(shared)
    assert (await member.heartbeat(epoch=99)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    stranger = ShareMember(member.client, "g", member.topic_id, name="stranger")
    assert (await stranger.heartbeat(epoch=1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    nowhere = ShareMember(member.client, "none", member.topic_id)
    assert (await nowhere.heartbeat(epoch=1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await nowhere.heartbeat(epoch=0)).error_code == ErrorCode.INVALID_REQUEST
    assert (await nowhere.heartbeat("t", epoch=-2)).error_code == ErrorCode.INVALID_REQUEST
    caplog.set_level("INFO", "tidelog.broker.groups")
    clock.advance(46_000)
    assert (await member.heartbeat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "at 127.0.0.1 was silent too long and is removed" in caplog.text


async def test_a_new_partition_is_assigned(shared: RunningBroker, clock: FrozenClock) -> None:
    from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    member = await ready(shared)
    grown = CreatePartitionsTopic(name="t", count=2, assignments=None)
    await member.client.request(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)
    clock.advance(2_000)
    answer = await member.heartbeat()
    assert answer.assignment.topic_partitions[0].partitions == [0, 1]


async def test_a_topic_that_is_left_is_taken_away_before_the_next_target(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    member = await ready(shared, "a")
    other_id = await create_topic(member.client, "u", 1)
    joined = member.epoch
    answer = await member.heartbeat("u")
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (joined, [])
    assert (await member.heartbeat()).assignment is None
    clock.advance(1_000)
    answer = await member.heartbeat()
    assert answer.member_epoch > joined
    (found,) = answer.assignment.topic_partitions
    assert (found.topic_id, found.partitions) == (other_id, [0])


async def test_every_member_has_a_partition_and_every_partition_a_member(
    shared: RunningBroker, clock: FrozenClock
) -> None:
    member = await ready(shared, partitions=3)
    members = [member, *[await another(shared, member, f"more-{n}") for n in range(4)]]
    clock.advance(2_000)
    held: list[list[int]] = []
    for each in members:
        answer = await each.heartbeat("t")
        held.append(sorted(answer.assignment.topic_partitions[0].partitions))
    assert all(held)
    assert {number for numbers in held for number in numbers} == {0, 1, 2}


async def test_a_share_group_is_no_group_of_another_type(shared: RunningBroker) -> None:
    member = await ready(shared, "a")
    client = member.client
    joined = await client.request(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[ProtocolMetadata(name="range", metadata=b"")],
        ),
        3,
    )
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    beat = await client.request(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
    )
    assert beat.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    offsets = await client.request(OffsetFetchRequest(groups=[asked]), 9)
    assert (offsets.groups[0].error_code, offsets.groups[0].topics) == (0, [])
    asked = OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=1, topics=None)
    offsets = await client.request(OffsetFetchRequest(groups=[asked]), 9)
    assert offsets.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described = await client.request(DescribeGroupsRequest(groups=["g"]), 6)
    assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_listing_and_describing(shared: RunningBroker) -> None:
    member = await ready(shared, "a")
    listed = await member.client.request(ListGroupsRequest(types_filter=["Share"]), 5)
    assert [(g.group_id, g.group_type, g.group_state) for g in listed.groups] == [
        ("g", "share", "Stable")
    ]
    answer = await member.client.request(ShareGroupDescribeRequest(group_ids=["g", "no"]), 1)
    found, missing = answer.groups
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert found.members[0].assignment.topic_partitions[0].topic_name == "t"
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    import base64

    topic = base64.urlsafe_b64encode(member.topic_id).rstrip(b"=").decode()
    asked = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{topic}:0", "g"])
    answer = await member.client.request(asked, 6)
    codes = [each.error_code for each in answer.coordinators]
    assert codes == [0, ErrorCode.INVALID_REQUEST]


# -- offsets, ends and restarts --------------------------------------------------------------------


async def alter(client: RawClient, group_id: str, offset: int, partition: int = 0) -> Any:
    """Set the start of `t`."""
    part = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[part])
    return await client.request(AlterShareGroupOffsetsRequest(group_id=group_id, topics=[topic]), 0)


async def test_offsets_are_described_altered_and_deleted(shared: RunningBroker) -> None:
    member = await ready(shared, *"abcde")
    assert await state_of(member.client) == [(-1, -1)]
    await member.fetch()
    assert await member.acked((0, 1, ACCEPT)) == 0
    assert (await state_of(member.client))[0][1] == 3
    assert (await alter(member.client, "g", 1)).error_code == ErrorCode.NON_EMPTY_GROUP
    await member.heartbeat(epoch=-1)
    altered = await alter(member.client, "g", 1)
    assert altered.error_code == 0
    assert altered.responses[0].partitions[0].error_code == 0
    unknown = await alter(member.client, "g", 1, partition=9)
    code = unknown.responses[0].partitions[0].error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await state_of(member.client) == [(1, 4)]
    fenced = await member.acknowledge((2, 4, ACCEPT))
    (part,) = fenced.responses[0].partitions
    code = part.error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session is older than the offsets"
    (node,) = fenced.node_endpoints
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", shared.port)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 0)
    member.session_epoch = member.epoch = 0
    await member.heartbeat("t")
    assert (await member.fetch()).acquired == [(1, 4, 1)]
    await member.acknowledge((1, 4, ACCEPT), session_epoch=-1)
    await member.heartbeat(epoch=-1)
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "no")]
    deleted = await member.client.request(
        DeleteShareGroupOffsetsRequest(group_id="g", topics=topics), 0
    )
    codes = [each.error_code for each in deleted.responses]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await state_of(member.client) == []


async def test_offsets_of_a_new_group_can_be_set(shared: RunningBroker) -> None:
    member = await ready(shared, *"abcde")
    assert (await alter(member.client, "fresh", 3)).error_code == 0
    assert await state_of(member.client, "fresh") == [(3, 2)]
    fresh = ShareMember(await shared.client(), "fresh", member.topic_id)
    await fresh.heartbeat("t")
    assert (await fresh.fetch()).acquired == [(3, 4, 1)]


async def test_a_deleted_group_leaves_nothing(shared: RunningBroker) -> None:
    member = await ready(shared, *"abc")
    await member.fetch()
    await member.acked((0, 2, ACCEPT))
    refused = await member.client.request(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await member.heartbeat(epoch=-1)
    done = await member.client.request(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert done.results[0].error_code == 0
    assert (await member.client.request(ListGroupsRequest(), 5)).groups == []
    member.epoch = member.session_epoch = 0
    await member.heartbeat("t")
    assert (await member.fetch()).acquired == [(0, 2, 1)]


async def test_a_deleted_topic_is_forgotten(shared: RunningBroker) -> None:
    member = await ready(shared, *"abc")
    await member.fetch()
    await member.acked((0, 2, ACCEPT))
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    await member.client.request(gone, 5)
    await asyncio.sleep(0.05)
    assert await state_of(member.client) == []
    topic_id = await create_topic(member.client, "t")
    await produce(member.client, "t", batch("x"))
    fresh = ShareMember(member.client, "g", topic_id, name="member-2")
    await fresh.heartbeat("t")
    assert (await fresh.fetch()).acquired == [(0, 0, 1)]


async def test_a_restart_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as running:
        await set_group(await running.client(), "g", share_auto_offset_reset="earliest")
        member = await ready(running, *"abcdefgh")
        await member.fetch()
        assert await member.acked((0, 1, ACCEPT), (3, 3, REJECT), (5, 5, RELEASE)) == 0
        topic_id, epoch = member.topic_id, member.epoch
    async with running_broker(tmp_path) as running:
        member = ShareMember(await running.client(), "g", topic_id)
        member.epoch = epoch
        assert (await member.heartbeat()).error_code == 0, "members are remembered"
        found = await member.fetch()
        assert found.acquired == [(2, 2, 2), (4, 7, 2)], "the stop ended the session"
        assert await member.acked((2, 7, [1, 0, 1, 1, 1, 1])) == ErrorCode.INVALID_RECORD_STATE
        assert await member.acked((2, 2, ACCEPT), (4, 7, ACCEPT)) == 0
        assert (await member.fetch()).acquired == []


async def test_snapshots_replace_updates_and_old_records_are_pruned(
    tmp_path: Path, clock: FrozenClock
) -> None:
    async with running_broker(
        tmp_path, clock=clock, share_coordinator_snapshot_update_records_per_snapshot="3"
    ) as running:
        await set_group(await running.client(), "g", share_auto_offset_reset="earliest")
        member = await ready(running, *map(str, range(40)))
        await member.fetch()
        for offset in range(0, 40, 2):
            assert await member.acked((offset, offset, ACCEPT)) == 0
        log = running.broker.topics.led_log("__share_group_state", 0)
        assert log.log_start_offset == 0
        running.broker.groups.shares.states.prune()
        assert log.log_start_offset > 10
        topic_id = member.topic_id
    async with running_broker(tmp_path, clock=clock) as running:
        member = ShareMember(await running.client(), "g", topic_id, name="member-2")
        await member.heartbeat("t")
        found = await member.fetch()
        assert [first for first, _, _ in found.acquired] == list(range(1, 40, 2))
        assert await state_of(member.client) == [(1, 20)]
