"""Making, growing and deleting topics, and cutting their beginnings off."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.error_codes import ErrorCode
from protocol.structs import ConfigText
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    metadata_request,
    produce,
    values_of,
)

TIMEOUT_MS = 10_000


async def create(client: RawClient, version: int = 7, **fields: Any) -> CreatableTopicResult:
    defaults: dict[str, Any] = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    topic = CreatableTopic(**defaults | fields)
    response = await client.request(CreateTopicsRequest(topics=[topic]), version)
    (result,) = response.topics
    assert isinstance(result, CreatableTopicResult)
    return result


class TestCreate:
    """CreateTopics."""

    async def test_many_partitions_hold_up_no_other_client(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path) as broker:
            maker, other = await broker.client(), await broker.client()
            making = asyncio.create_task(create(maker, num_partitions=400))
            answered = 0
            while not making.done():
                await other.request(metadata_request("t"), 4)
                answered += 1
            assert (await making).error_code == 0
            assert answered > 20

    async def test_topic_is_made_though_its_maker_hangs_up(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path) as broker:
            maker = await broker.client()
            topic = CreatableTopic(name="t", num_partitions=200, replication_factor=1)
            maker.send(CreateTopicsRequest(topics=[topic]), 7)
            await asyncio.sleep(0.02)
            await maker.close()
        async with running_broker(tmp_path) as broker:
            found = broker.broker.topics.find("t")
            assert found is None or len(found.partitions) == 200

    @pytest.mark.parametrize("version", range(8))
    async def test_topic_exists_afterwards(self, client: RawClient, version: int) -> None:
        result = await create(client, version, num_partitions=3)
        assert result.error_code == ErrorCode.NONE
        (topic,) = (await client.request(metadata_request(["t"]), 12)).topics
        assert len(topic.partitions) == 3
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: config.value for config in result.configs or []}
            assert configs["retention.ms"] == "604800000"
        if version >= 7:
            assert result.topic_id == topic.topic_id

    async def test_existing_topic(self, client: RawClient) -> None:
        await create(client)
        result = await create(client)
        assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
            ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
            ({"num_partitions": 10**9}, ErrorCode.INVALID_PARTITIONS),
            ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
            (
                {"configs": [ConfigText(name="no.such", value="1")]},
                ErrorCode.INVALID_CONFIG,
            ),
            (
                {"configs": [ConfigText(name="retention.ms", value="soon")]},
                ErrorCode.INVALID_CONFIG,
            ),
            (
                {"configs": [ConfigText(name="retention.ms", value=None)]},
                ErrorCode.INVALID_CONFIG,
            ),
            (
                {"assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]},
                ErrorCode.INVALID_REQUEST,
            ),
        ],
    )
    async def test_refusal(
        self, client: RawClient, fields: dict[str, Any], code: ErrorCode
    ) -> None:
        result = await create(client, **fields)
        assert result.error_code == code
        assert result.error_message

    async def test_name_message_says_what_is_allowed(self, client: RawClient) -> None:
        result = await create(client, name="a/b c")
        message = result.error_message or ""
        assert "'a/b c'" in message
        assert "a-z A-Z 0-9 . _ -" in message

    @pytest.mark.parametrize("version", [0, 3, 4, 7])
    async def test_defaults_at_every_version(self, client: RawClient, version: int) -> None:
        """KIP-464 is of version 4, but kafkajs asks for defaults in version 3 and gets them."""
        result = await create(client, version, num_partitions=-1, replication_factor=-1)
        assert result.error_code == 0

    @pytest.mark.parametrize(
        ("brokers", "code"), [([[1], [1]], 0), ([[1], [2]], 39), ([[1, 2]], 39), ([[]], 39)]
    )
    async def test_manual_assignment(
        self, client: RawClient, brokers: list[list[int]], code: int
    ) -> None:
        result = await create(
            client,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                for index, ids in enumerate(brokers)
            ],
        )
        assert result.error_code == code

    async def test_the_same_name_twice_is_refused_once(self, client: RawClient) -> None:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        response = await client.request(CreateTopicsRequest(topics=[topic, topic]), 7)
        (result,) = response.topics
        assert result.error_code == ErrorCode.INVALID_REQUEST

    async def test_validate_only_creates_nothing(self, client: RawClient) -> None:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], validate_only=True)
        for _ in range(2):
            (result,) = (await client.request(request, 7)).topics
            assert result.error_code == ErrorCode.NONE

    async def test_name_of_the_metadata_log_is_no_topic(self, tmp_path: Path) -> None:
        """As Kafka 4.3.1 answers; a directory of that name belongs to its metadata log."""
        name = "__cluster_metadata"
        async with running_broker(tmp_path) as broker:
            client = await broker.client()
            result = await create(client, name=name)
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert f"Creation of internal topic {name} is prohibited" in (
                result.error_message or ""
            )
            described = await client.request(metadata_request([name], create=True), 12)
            codes = [topic.error_code for topic in described.topics]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            answer = await produce(client, name, batch("a"))
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await create_topic(client, "t")
        async with running_broker(tmp_path) as broker:
            described = await (await broker.client()).request(metadata_request(None), 12)
            names = {topic.name for topic in described.topics if not topic.is_internal}
            assert names == {"t"}

    async def test_topic_of_share_groups_is_marked_and_not_written(self, tmp_path: Path) -> None:
        name = "__share_group_state"
        async with running_broker(tmp_path) as broker:
            client = await broker.client()
            await create_topic(client, name)
            described = await client.request(metadata_request([name]), 12)
            assert [topic.is_internal for topic in described.topics] == [True]
            answer = await produce(client, name, batch("a"))
            assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            topics = [DeleteTopicState(name=name)]
            request = DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
            deleted = await client.request(request, 6)
            assert [result.error_code for result in deleted.responses] == [ErrorCode.NONE]

    async def test_topic_survives_a_restart(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path) as broker:
            topic_id = await create_topic(
                await broker.client(), "t", partitions=2, retention_ms="77"
            )
        async with running_broker(tmp_path) as broker:
            client = await broker.client()
            (topic,) = (await client.request(metadata_request(["t"]), 12)).topics
            assert (topic.topic_id, len(topic.partitions)) == (topic_id, 2)
            found = broker.broker.topics.find("t")
            assert found is not None
            assert found.config.retention_ms == 77


class TestDelete:
    """DeleteTopics."""

    @pytest.mark.parametrize("version", range(7))
    async def test_by_name(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t")
        request = DeleteTopicsRequest(
            topic_names=["t"], topics=[DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS
        )
        (result,) = (await client.request(request, version)).responses
        assert (result.name, result.error_code) == ("t", ErrorCode.NONE)
        (topic,) = (await client.request(metadata_request(["t"]), 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_by_id(self, client: RawClient) -> None:
        topic_id = await create_topic(client, "t")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=TIMEOUT_MS
        )
        (result,) = (await client.request(request, 6)).responses
        assert (result.name, result.error_code) == ("t", ErrorCode.NONE)
        (result,) = (await client.request(request, 6)).responses
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    async def test_unknown_name(self, client: RawClient) -> None:
        (result,) = (
            await client.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=TIMEOUT_MS), 5)
        ).responses
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_made_again_is_another_topic(self, client: RawClient) -> None:
        first = await create_topic(client, "t")
        await produce(client, "t", batch("old"))
        await client.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=TIMEOUT_MS), 5)
        second = await create_topic(client, "t")
        assert first != second
        assert values_of(await fetch(client, "t")) == []
        data = (await client.request(fetch_request("", topic_id=first), 13)).responses[0]
        assert data.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
    async def test_switched_off(self, tmp_path: Path, version: int, code: int) -> None:
        async with running_broker(tmp_path, delete_topic_enable="false") as broker:
            client = await broker.client()
            await create_topic(client, "t")
            request = DeleteTopicsRequest(
                topic_names=["t"], topics=[DeleteTopicState(name="t")], timeout_ms=TIMEOUT_MS
            )
            (result,) = (await client.request(request, version)).responses
            assert result.error_code == code

    async def test_while_a_produce_waits(self, broker: RunningBroker) -> None:
        """Whatever wins, both get an answer and the broker goes on."""
        writer, admin = await broker.client(), await broker.client()
        await create_topic(admin, "t")
        for _ in range(20):
            waiting = asyncio.create_task(produce(writer, "t", batch("a")))
            await admin.request(DeleteTopicsRequest(topic_names=["t"], timeout_ms=TIMEOUT_MS), 5)
            assert (await waiting).error_code in (0, 3, 56)
            await create_topic(admin, "t")


class TestGrow:
    """CreatePartitions."""

    @pytest.mark.parametrize("version", range(4))
    async def test_partitions_are_added(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t")
        request = CreatePartitionsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)],
        )
        (result,) = (await client.request(request, version)).results
        assert result.error_code == ErrorCode.NONE
        assert (await produce(client, "t", batch("a"), partition=2)).error_code == 0

    @pytest.mark.parametrize(
        ("name", "count", "assigned", "code"),
        [
            ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
            ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
            ("missing", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("t", 3, [[1]], ErrorCode.NONE),
        ],
    )
    async def test_refusal(
        self,
        client: RawClient,
        name: str,
        count: int,
        assigned: list[list[int]] | None,
        code: ErrorCode,
    ) -> None:
        await create_topic(client, "t", partitions=2)
        assignments = None
        if assigned is not None:
            assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        request = CreatePartitionsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)],
        )
        (result,) = (await client.request(request, 3)).results
        assert result.error_code == code


class TestDeleteRecords:
    """DeleteRecords."""

    async def delete(self, client: RawClient, offset: int, version: int = 2) -> tuple[int, int]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)],
                )
            ]
        )
        result = (await client.request(request, version)).topics[0].partitions[0]
        return result.error_code, result.low_watermark

    @pytest.mark.parametrize("version", range(3))
    async def test_start_moves(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t")
        for value in "abc":
            await produce(client, "t", batch(value))
        assert await self.delete(client, 2, version) == (0, 2)
        assert (await list_offset(client, "t", -2)).offset == 2
        assert (await fetch(client, "t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of(await fetch(client, "t", 2)) == [b"c"]

    async def test_minus_one_is_the_high_watermark(self, client: RawClient) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a", "b"))
        assert await self.delete(client, -1) == (0, 2)

    @pytest.mark.parametrize("offset", [-2, 3, 10**12])
    async def test_out_of_range(self, client: RawClient, offset: int) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a", "b"))
        assert await self.delete(client, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)

    async def test_compacted_topic_refuses(self, client: RawClient) -> None:
        await create_topic(client, "t", cleanup_policy="compact")
        assert (await self.delete(client, 0))[0] == ErrorCode.POLICY_VIOLATION


class TestDescribePartitions:
    """DescribeTopicPartitions, page by page."""

    async def test_pages_end_with_no_cursor(self, client: RawClient) -> None:
        await create_topic(client, "a", partitions=3)
        await create_topic(client, "b", partitions=2)
        names = [TopicRequest(name="b"), TopicRequest(name="a")]
        seen: list[tuple[str, int]] = []
        cursor = None
        for _ in range(10):
            request = DescribeTopicPartitionsRequest(
                topics=names, response_partition_limit=2, cursor=cursor
            )
            page = await client.request(request, 0)
            # The Java client fails on null here, though the schema allows it.
            assert all(p.eligible_leader_replicas == [] for t in page.topics for p in t.partitions)
            assert all(p.last_known_elr == [] for t in page.topics for p in t.partitions)
            seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]

    async def test_unknown_topic(self, client: RawClient) -> None:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="no")])
        (topic,) = (await client.request(request, 0)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("cursor", [("a", -1), ("c", 0), ("0", 0), ("a", -(2**31))])
    async def test_cursor_that_no_answer_has_had_is_refused(
        self, client: RawClient, cursor: tuple[str, int]
    ) -> None:
        for name in ("a", "b", "c"):
            await create_topic(client, name)
        name, partition = cursor
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="b"), TopicRequest(name="a")],
            cursor=Cursor(topic_name=name, partition_index=partition),
        )
        page = await client.request(request, 0)
        assert [(t.name, t.error_code, t.partitions) for t in page.topics] == [
            ("b", ErrorCode.INVALID_REQUEST, []),
            ("a", ErrorCode.INVALID_REQUEST, []),
        ]
        assert page.next_cursor is None
        request.topics = []
        page = await client.request(request, 0)
        has_started = partition >= 0
        assert [t.name for t in page.topics if t.name >= "a"] == (
            [n for n in ("a", "b", "c") if n >= name] if has_started else []
        )


class TestLeaderEpoch:
    """OffsetForLeaderEpoch."""

    @pytest.mark.parametrize("version", range(5))
    @pytest.mark.parametrize(("epoch", "end"), [(0, 2), (5, -1), (-1, -1)])
    async def test_end_of_an_epoch(
        self, client: RawClient, version: int, epoch: int, end: int
    ) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a", "b"))
        partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]
        )
        answer = (await client.request(request, version)).topics[0].partitions[0]
        assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, end)
