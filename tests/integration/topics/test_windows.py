"""Time windows over the wire: each request about `TOPIC.__t__FROM__TO`, and what it must not do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.groups.offsets.lag import GroupLag
from client.admin import Admin
from client.consumer import Consumer
from client.errors import ClientError
from client.types import TopicPartition
from protocol.acl import Acl, Operation, PatternType, Permission, ResourceType
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest
from protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_batch
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from protocol.structs import NamedIndexes, PartitionIndexes
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.cli import tidelog
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    metadata_request,
    produce,
    records_of,
)

HOUR_MS = 3_600_000
TEN_MS = 1_793_527_200_000
"""2026-11-01T10:00Z."""

WINDOW = "flights.__t__20261101T100000Z__20261101T110000Z"
OPEN_WINDOW = "flights.__t__20261101T100000Z__"
MINUTES = (-30, 5, 10, 70, 20, 90, 59, 60)
"""Minutes after ten of the records, in the order of their offsets: two are late."""

INSIDE = [1, 2, 4, 6]
TOPIC = 2


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    """A broker that serves windows."""
    async with running_broker(tmp_path / "data", time_windows_enable="true") as running:
        yield running


async def fill(client: RawClient, **configs: str) -> bytes:
    """One record per batch, at `MINUTES` after ten; the id of the topic."""
    topic_id = await create_topic(client, "flights", 1, **configs)
    for minute in MINUTES:
        await produce(client, "flights", batch(str(minute), timestamp=TEN_MS + minute * 60_000))
    return topic_id


async def described(client: RawClient, *names: str, create: bool = True) -> list[Any]:
    answer = await client.request(metadata_request(names, create=create), 12)
    return list(answer.topics)


async def listed(client: RawClient) -> list[str]:
    everything = await client.request(MetadataRequest(topics=None), 12)
    return [topic.name for topic in everything.topics if not topic.is_internal]


async def read_all(client: RawClient, name: str, offset: int = 0, **fields: Any) -> list[Record]:
    """Fetch until the end that the answers report."""
    found: list[Record] = []
    while True:
        data = await fetch(client, name, offset, **fields)
        assert data.error_code == ErrorCode.NONE
        found += [record for record in records_of(data) if record.offset >= offset]
        entries = list(scan_entries(data.records or b""))
        if not entries:
            assert offset == data.high_watermark
            return found
        offset = entries[-1].next_offset


# --- names --------------------------------------------------------------------------------------


async def test_a_window_is_found_by_name_and_then_by_id(client: RawClient) -> None:
    topic_id = await fill(client)
    (topic,) = await described(client, WINDOW)
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, WINDOW, 1)
    assert topic.topic_id not in (topic_id, bytes(16))
    assert not topic.is_internal
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id, name=None)])
    (again,) = (await client.request(by_id, 12)).topics
    assert (again.error_code, again.name) == (0, WINDOW)
    (page,) = (
        await client.request(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=WINDOW)], response_partition_limit=10
            ),
            0,
        )
    ).topics
    assert (page.error_code, page.topic_id, len(page.partitions)) == (0, topic.topic_id, 1)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("absent.__t__20261101T100000Z__", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("flights.__t__20261301T100000Z__", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("flights.__t__1793527200__", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("flights.__t__20261101T100000Z", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".__t__20261101T100000Z__", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (
            "flights.__t__20261101T110000Z__20261101T100000Z",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ),
    ],
)
async def test_what_is_no_window_is_never_created(
    client: RawClient, name: str, code: ErrorCode
) -> None:
    await fill(client)
    (topic,) = await described(client, name)
    assert topic.error_code == code
    assert await listed(client) == ["flights"]


async def test_windows_are_not_listed(client: RawClient) -> None:
    await fill(client)
    await described(client, WINDOW)
    assert await listed(client) == ["flights"]
    pages = await client.request(DescribeTopicPartitionsRequest(response_partition_limit=10), 0)
    assert [topic.name for topic in pages.topics if not topic.is_internal] == ["flights"]


async def test_the_switch_is_off_unless_set(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        client = await running.client()
        await fill(client)
        (topic,) = await described(client, WINDOW, create=False)
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Use creates no topic of that name, and a command says what it is.
        for name in (WINDOW, "flights.__t__soon__"):
            (topic,) = await described(client, name)
            assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await listed(client) == ["flights"]
        for words in (("produce", WINDOW), ("consume", WINDOW, "--from", "earliest", "-e")):
            done = await asyncio.to_thread(tidelog, *words, "-b", running.bootstrap, given="x\n")
            assert done.returncode != 0
            assert "it is a time window" in done.stderr
            assert "time.windows.enable=true" in done.stderr
        # Who creates it means it; the topic stays when windows come.
        await create_topic(client, WINDOW)
        await produce(client, WINDOW, batch("real"))
    async with running_broker(tmp_path / "data", time_windows_enable="true") as running:
        client = await running.client()
        assert [record.value for record in await read_all(client, WINDOW)] == [b"real"]
        assert (await produce(client, WINDOW, batch("more"))).error_code == ErrorCode.NONE


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 7, 10, 12])
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_fetch_gives_the_records_of_the_window(
    client: RawClient, version: int, isolation_level: int
) -> None:
    await fill(client)
    records = await read_all(client, WINDOW, version=version, isolation_level=isolation_level)
    assert [record.offset for record in records] == INSIDE
    assert [record.value for record in records] == [b"5", b"10", b"20", b"59"]


@pytest.mark.parametrize("version", range(13, 19))
async def test_fetch_by_id(client: RawClient, version: int) -> None:
    await fill(client)
    (topic,) = await described(client, WINDOW)
    answer = await client.request(fetch_request("", 0, topic_id=topic.topic_id), version)
    (data,) = answer.responses[0].partitions
    assert [record.offset for record in records_of(data)] == INSIDE
    unknown = await client.request(fetch_request("", 0, topic_id=b"x" * 16), version)
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(4))
async def test_versions_without_empty_batches_are_refused(client: RawClient, version: int) -> None:
    await fill(client)
    data = await fetch(client, WINDOW, 1, version=version)
    assert data.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_batch_across_the_edge_is_cut(client: RawClient) -> None:
    await create_topic(client, "flights")
    times = [TEN_MS + minute * 60_000 for minute in (-1, 0, 30, 60, 59)]
    records = [Record(i, time, b"k", b"%d" % i, (("h", b"x"),)) for i, time in enumerate(times)]
    for codec in Codec:
        await produce(client, "flights", build_batch(records, codec=codec))
    found = await read_all(client, WINDOW)
    assert [record.offset % 5 for record in found] == [1, 2, 4] * len(Codec)
    assert {record.headers for record in found} == {(("h", b"x"),)}


async def test_a_batch_that_lies_inside_is_sent_as_it_is(client: RawClient) -> None:
    await create_topic(client, "flights")
    await produce(client, "flights", batch("a", "b", timestamp=TEN_MS, codec=Codec.ZSTD))
    inside, whole = await fetch(client, WINDOW), await fetch(client, "flights")
    assert bytes(inside.records or b"") == bytes(whole.records or b"") != b""


async def test_log_append_time_decides_by_the_header(client: RawClient) -> None:
    await create_topic(client, "flights", message_timestamp_type="LogAppendTime")
    await produce(client, "flights", batch("a", "b", timestamp=1_000))
    stamp = (await list_offset(client, "flights", -3)).timestamp
    name = f"flights.__t__{stamp}__{stamp + 1}"
    assert [record.value for record in await read_all(client, name)] == [b"a", b"b"]
    assert await read_all(client, f"flights.__t__{stamp + 1}__") == []
    assert await read_all(client, "flights.__t__1000__1001") == []


async def test_offsets_outside_of_the_window(client: RawClient) -> None:
    await fill(client)
    below = await fetch(client, WINDOW, 0)
    assert records_of(below)[0].offset == 1
    assert (await fetch(client, WINDOW, 9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch(client, WINDOW, 8)).error_code == ErrorCode.NONE


async def test_list_offsets(client: RawClient) -> None:
    await fill(client)

    async def at(timestamp: int) -> tuple[int, int]:
        answer = await list_offset(client, WINDOW, timestamp, version=7)
        assert answer.error_code == ErrorCode.NONE
        return answer.timestamp, answer.offset

    minute = {offset: TEN_MS + MINUTES[offset] * 60_000 for offset in range(len(MINUTES))}
    assert await at(-2) == (-1, 1)
    assert await at(-1) == (-1, 8)
    assert await at(-3) == (minute[6], 6)
    assert await at(0) == (minute[1], 1)
    assert await at(minute[2] + 1) == (minute[4], 4)
    assert await at(minute[6] + 1) == (-1, -1)
    for timestamp, end in ((-1, 8), (-2, 1)):
        old = await list_offset(client, WINDOW, timestamp, version=0)
        assert (old.error_code, old.old_style_offsets) == (ErrorCode.NONE, [end])
    old = await list_offset(client, WINDOW, TEN_MS, version=0)
    assert old.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_end_is_that_of_the_last_segment_with_times_of_the_window(
    broker: RunningBroker, client: RawClient
) -> None:
    await fill(client)
    log = broker.broker.topics.led_log("flights", 0)
    log.roll(0)
    await produce(client, "flights", batch("later", timestamp=TEN_MS + 2 * HOUR_MS))
    assert (await list_offset(client, WINDOW, -1)).offset == 8
    assert (await list_offset(client, OPEN_WINDOW, -1)).offset == 9
    # A late record is in it, at its own offset.
    await produce(client, "flights", batch("late", timestamp=TEN_MS))
    assert (await list_offset(client, WINDOW, -1)).offset == 10
    assert [record.value for record in await read_all(client, WINDOW, 8)] == [b"late"]


async def test_a_window_without_records_is_empty(client: RawClient) -> None:
    await fill(client)
    for name in ("flights.__t__1000__2000", "flights.__t__20300101T000000Z__"):
        assert await read_all(client, name) == []
        start = (await list_offset(client, name, -2)).offset
        assert (await list_offset(client, name, -1)).offset == start


async def test_a_fetch_session_reads_topic_and_window(client: RawClient) -> None:
    await fill(client)
    request = fetch_request("flights", 8, session=(0, 0))
    request.topics += fetch_request(WINDOW, 0).topics
    opened = await client.request(request, 12)
    assert [topic.topic for topic in opened.responses] == ["flights", WINDOW]
    session = (opened.session_id, 1)
    later = await client.request(fetch_request(WINDOW, 8, session=session), 12)
    assert later.responses == []
    await produce(client, "flights", batch("late", timestamp=TEN_MS))
    news = await client.request(fetch_request("", {}, session=(opened.session_id, 2)), 12)
    by_name = {topic.topic: topic.partitions[0] for topic in news.responses}
    assert [record.offset for record in records_of(by_name[WINDOW])] == [8]


async def test_a_parked_fetch_wakes_for_a_record_of_the_window(
    broker: RunningBroker, client: RawClient
) -> None:
    await fill(client)
    reader = await broker.client()
    reading = asyncio.create_task(fetch(reader, OPEN_WINDOW, 8, max_wait_ms=20_000))
    async with asyncio.timeout(10):
        while not len(broker.broker.fetch_waiters):
            await asyncio.sleep(0.01)
        await produce(client, "flights", batch("new", timestamp=TEN_MS + HOUR_MS))
        assert [record.value for record in records_of(await reading)] == [b"new"]


async def test_retention_passes_through(client: RawClient) -> None:
    await fill(client)
    await client.request(deletion(name="flights", offset=2), 2)
    assert (await list_offset(client, WINDOW, -2)).offset == 2
    assert [record.offset for record in await read_all(client, WINDOW, 0)] == INSIDE[1:]
    await client.request(deletion(name="flights", offset=8), 2)
    assert await read_all(client, WINDOW, 0) == []


async def test_epochs_are_those_of_the_topic(client: RawClient) -> None:
    await fill(client)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=WINDOW,
                partitions=[
                    OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
                ],
            )
        ],
    )
    (topic,) = (await client.request(request, 4)).topics
    assert (topic.partitions[0].error_code, topic.partitions[0].end_offset) == (0, 8)


# --- writing ------------------------------------------------------------------------------------


def deletion(*, name: str, offset: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[partition])], timeout_ms=1000
    )


async def test_writers_are_refused_with_a_sentence(client: RawClient) -> None:
    await fill(client)
    sentence = f"{WINDOW!r} is a read-only window of flights; use flights itself for this."
    refused = await produce(client, WINDOW, batch("x"))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        sentence,
    )
    created = await client.request(
        CreateTopicsRequest(
            topics=[CreatableTopic(name=WINDOW, num_partitions=1, replication_factor=1)]
        ),
        7,
    )
    grown = await client.request(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=WINDOW, count=3, assignments=None)],
            timeout_ms=1000,
        ),
        3,
    )
    deleted = await client.request(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=WINDOW, topic_id=bytes(16))], timeout_ms=1000
        ),
        6,
    )
    altered = await client.request(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=WINDOW,
                    configs=[
                        AlterableConfig(name="retention.ms", config_operation=0, value="1000")
                    ],
                )
            ],
            validate_only=True,
        ),
        1,
    )
    for answer in (
        *created.topics, *grown.results, *deleted.responses, *altered.responses
    ):  # fmt: skip
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            sentence,
        )
    records = await client.request(deletion(name=WINDOW, offset=3), 2)
    assert records.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await list_offset(client, "flights", -2)).offset == 0
    assert (await list_offset(client, "flights", -1)).offset == len(MINUTES)


async def test_a_transaction_cannot_write_to_a_window(client: RawClient) -> None:
    await fill(client)
    producer = await client.request(
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=10_000), 4
    )
    answer = await client.request(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[NamedIndexes(name=WINDOW, partitions=[0])],
        ),
        3,
    )
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_settings_are_those_of_the_topic_and_read_only(client: RawClient) -> None:
    await fill(client, retention_ms="123456")
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=WINDOW, configuration_keys=["retention.ms"]
            )
        ]
    )
    (result,) = (await client.request(request, 4)).results
    (config,) = result.configs
    assert (config.value, config.read_only) == ("123456", True)


# --- groups -------------------------------------------------------------------------------------


def commit(name: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=name, partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


async def committed(client: RawClient, name: str) -> int:
    request = OffsetFetchRequest(
        group_id="g", topics=[PartitionIndexes(name=name, partition_indexes=[0])]
    )
    (topic,) = (await client.request(request, 5)).topics
    offset: int = topic.partitions[0].committed_offset
    return offset


async def test_offsets_are_kept_under_the_windows_name(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", time_windows_enable="true") as running:
        client = await running.client()
        await fill(client)
        answer = await client.request(commit(WINDOW, 3), 7)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        await client.request(commit("flights", 5), 7)
    async with running_broker(tmp_path / "data", time_windows_enable="true") as running:
        client = await running.client()
        assert (await committed(client, WINDOW), await committed(client, "flights")) == (3, 5)
        inside = running.broker
        lag = GroupLag(inside.topics, inside.groups.offsets.table, inside.clock.wall_ms)
        lags = {each.topic: each.records for each in lag.figures()}
        assert lags == {WINDOW: 5, "flights": 3}
        # A window ends with its topic: its offsets mean nothing in one that is made later.
        deletion = DeleteTopicsRequest(
            topics=[DeleteTopicState(name="flights", topic_id=bytes(16))], timeout_ms=1000
        )
        await client.request(deletion, 6)
        await fill(client)
        assert await committed(client, WINDOW) == -1


async def test_a_consumer_group_subscribes_by_name_and_never_by_pattern(client: RawClient) -> None:
    await fill(client)
    (topic,) = await described(client, WINDOW)
    named = await client.request(
        ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[WINDOW],
            topic_partitions=[],
        ),
        1,
    )
    assert named.error_code == ErrorCode.NONE
    (assigned,) = named.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic.topic_id, [0])
    matched = await client.request(
        ConsumerGroupHeartbeatRequest(
            group_id="other",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[],
            subscribed_topic_regex="flights.*",
            topic_partitions=[],
        ),
        1,
    )
    assert [each.topic_id for each in matched.assignment.topic_partitions] != [topic.topic_id]
    assert len(matched.assignment.topic_partitions) == 1


async def test_our_client_reads_it(broker: RunningBroker, client: RawClient) -> None:
    await fill(client)
    async with Consumer(
        WINDOW, bootstrap=broker.bootstrap, group_id="g", start="earliest"
    ) as reader:
        offsets = []
        async with asyncio.timeout(20):
            async for record in reader:
                offsets.append(record.offset)
                if record.offset == INSIDE[-1]:
                    break
    assert offsets == INSIDE
    async with Admin(bootstrap=broker.bootstrap) as admin:
        ends = await admin.list_offsets({TopicPartition(WINDOW, 0): -1})
        assert ends[TopicPartition(WINDOW, 0)] is not None
        with pytest.raises(ClientError, match="read-only window"):
            await admin.delete_topic(WINDOW)


# --- rights -------------------------------------------------------------------------------------


def right(name: str, operation: Operation) -> Acl:
    return Acl(
        resource_type=ResourceType.TOPIC,
        name=name,
        pattern=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )


async def test_rights_are_those_of_the_topic(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path / "data",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:admin",
        time_windows_enable="true",
    ) as running:
        access = running.broker.security.access
        assert access is not None
        client = await running.client()
        setup = [right("flights", Operation.ALL)]
        access.add(setup)
        await fill(client)
        access.remove(setup)
        # A rule about the window's name gives nothing.
        access.add([right(WINDOW, Operation.ALL)])
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [topic.error_code for topic in await described(client, WINDOW)] == [denied]
        assert (await fetch(client, WINDOW, 1)).error_code == denied
        assert (await list_offset(client, WINDOW, -2)).error_code == denied
        access.add([right("flights", Operation.READ)])
        assert [topic.error_code for topic in await described(client, WINDOW)] == [0]
        assert [record.offset for record in await read_all(client, WINDOW)] == INSIDE
        assert (await produce(client, WINDOW, batch("x"))).error_code == denied


async def test_rights_of_a_window_that_has_no_topic_yet(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path / "data",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
        time_windows_enable="true",
    ) as running:
        access = running.broker.security.access
        assert access is not None
        client = await running.client()
        # Without an ACL of its own, the name could be read; that decision would be kept.
        access.add([right("flights", Operation.WRITE), right("flights", Operation.CREATE)])
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await fetch(client, WINDOW, 1)).error_code == denied
        await fill(client)
        assert (await fetch(client, WINDOW, 1)).error_code == denied
