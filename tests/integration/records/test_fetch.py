"""Fetch: byte limits, waiting, old formats, errors, and that records are never null."""

import asyncio
import time

import pytest

from broker.requests.fetch_read import ENOUGH_BYTES
from protocol.api.fetch import FetchRequest, ReplicaState
from protocol.error_codes import ErrorCode
from protocol.records.layout import Codec
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    produce,
    records_of,
    values_of,
)


@pytest.mark.parametrize("version", range(4, 13))
async def test_batches_come_back_as_stored(client: RawClient, version: int) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", "b"))
    await produce(client, "t", batch("c"))
    data = await fetch(client, "t", version=version)
    assert values_of(data) == [b"a", b"b", b"c"]
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)


@pytest.mark.parametrize("version", range(13, 18))
async def test_topics_by_id(client: RawClient, version: int) -> None:
    topic_id = await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    response = await client.request(fetch_request("", topic_id=topic_id), version)
    (topic,) = response.responses
    assert topic.topic_id == topic_id
    assert values_of(topic.partitions[0]) == [b"a"]


async def test_unknown_topic_id(client: RawClient) -> None:
    response = await client.request(fetch_request("", topic_id=b"\1" * 16), 13)
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_old_versions_get_old_messages(
    client: RawClient, version: int, magic: int, codec: Codec
) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", "b", codec=codec, timestamp=77))
    data = await fetch(client, "t", version=version)
    assert data.records is not None
    assert data.records[16] == magic
    assert values_of(data) == [b"a", b"b"]
    assert {record.timestamp for record in records_of(data)} == {-1 if magic == 0 else 77}


async def test_conversion_can_be_forbidden(client: RawClient) -> None:
    await create_topic(client, "t", message_downconversion_enable="false")
    await produce(client, "t", batch("a"))
    assert (await fetch(client, "t", version=3)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await fetch(client, "t", version=4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(0, 76), (3, 76), (9, 76), (10, 0), (12, 0)])
async def test_zstd_needs_version_10(client: RawClient, version: int, code: int) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", codec=Codec.ZSTD))
    data = await fetch(client, "t", version=version)
    assert data.error_code == code
    assert bytes(data.records or b"") == b"" or code == 0


async def test_old_client_gets_what_lies_before_the_zstd_batch(client: RawClient) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    await produce(client, "t", batch("b", codec=Codec.ZSTD))
    assert values_of(await fetch(client, "t", version=9)) == [b"a"]


@pytest.mark.parametrize("version", range(18))
async def test_empty_partition_is_listed_and_its_records_are_empty(
    client: RawClient, version: int
) -> None:
    """Java and kafka-python wait for ever when it is left out; librdkafka complains about null."""
    topic_id = await create_topic(client, "t", partitions=3)
    request = fetch_request("t", {0: 0, 1: 0, 2: 0}, topic_id=topic_id)
    response = await client.request(request, version)
    partitions = response.responses[0].partitions
    assert [data.partition_index for data in partitions] == [0, 1, 2]
    assert all(data.records is not None and len(data.records) == 0 for data in partitions)


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
async def test_offset_out_of_range(client: RawClient, offset: int) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", "b", "c"))
    data = await fetch(client, "t", offset)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bytes(data.records or b"") == b""


async def test_offset_inside_a_batch_returns_the_whole_batch(client: RawClient) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", "b", "c"))
    assert values_of(await fetch(client, "t", 2)) == [b"a", b"b", b"c"]


async def test_unknown_partition(client: RawClient) -> None:
    data = await fetch(client, "missing")
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75), (7, 75)])
async def test_leader_epoch_is_checked(client: RawClient, epoch: int, code: int) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    assert (await fetch(client, "t", current_leader_epoch=epoch)).error_code == code


@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize("replica_id", [0, 1, 2**31 - 1])
async def test_follower_is_refused(client: RawClient, version: int, replica_id: int) -> None:
    topic_id = await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    request = fetch_request("t" if version < 13 else "", topic_id=topic_id)
    if version < 15:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id=replica_id)
    data = (await client.request(request, version)).responses[0].partitions[0]
    assert (data.error_code, data.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


class TestLimits:
    """KIP-74: who gets how many bytes."""

    async def test_first_batch_comes_however_large(self, client: RawClient) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch(b"x" * 1000))
        await produce(client, "t", batch(b"y" * 1000))
        data = await fetch(client, "t", max_bytes=10, partition_max_bytes=10)
        assert values_of(data) == [b"x" * 1000]

    async def test_partition_limit_cuts_between_batches(self, client: RawClient) -> None:
        await create_topic(client, "t")
        for letter in b"abc":
            await produce(client, "t", batch(bytes([letter]) * 1000))
        data = await fetch(client, "t", partition_max_bytes=2500)
        assert [value[:1] for value in values_of(data) if value] == [b"a", b"b"]

    async def test_request_limit_is_shared_in_order(self, client: RawClient) -> None:
        await create_topic(client, "t", partitions=3)
        for partition in range(3):
            await produce(client, "t", batch(b"x" * 1000), partition=partition)
        response = await client.request(fetch_request("t", {0: 0, 1: 0, 2: 0}, max_bytes=2500), 12)
        sizes = [len(data.records) > 0 for data in response.responses[0].partitions]
        assert sizes == [True, True, False]

    @pytest.mark.parametrize(("max_bytes", "served"), [(1400, [0]), (1500, [0, 2])])
    async def test_answer_is_full_when_little_is_left_and_the_next_batch_does_not_fit(
        self, client: RawClient, max_bytes: int, served: list[int]
    ) -> None:
        await create_topic(client, "t", partitions=3)
        for partition, size in enumerate((1000, 1000, 100)):
            await produce(client, "t", batch(b"x" * size), partition=partition)
        asked = fetch_request("t", {0: 0, 1: 0, 2: 0}, max_bytes=max_bytes)
        parts = (await client.request(asked, 12)).responses[0].partitions
        assert [part.partition_index for part in parts if part.records] == served
        assert [part.high_watermark for part in parts] == [1, 1, 1]

    async def test_versions_before_3_cut_the_message_off(self, client: RawClient) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch(b"x" * 1000))
        data = await fetch(client, "t", version=2, partition_max_bytes=100)
        assert data.records is not None
        assert len(data.records) == 100


class TestWaiting:
    """min_bytes and max_wait."""

    async def test_answer_comes_at_the_deadline(self, client: RawClient) -> None:
        await create_topic(client, "t")
        started = time.perf_counter()
        data = await fetch(client, "t", max_wait_ms=100)
        assert 0.09 < time.perf_counter() - started < 5
        assert values_of(data) == []

    async def test_new_data_wakes_at_once(self, broker: RunningBroker) -> None:
        reader, writer = await broker.client(), await broker.client()
        await create_topic(writer, "t")
        waiting = asyncio.create_task(fetch(reader, "t", max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        assert len(broker.broker.fetch_waiters) == 1
        await produce(writer, "t", batch("a"))
        assert values_of(await asyncio.wait_for(waiting, 5)) == [b"a"]
        assert len(broker.broker.fetch_waiters) == 0

    async def test_min_bytes_waits_for_several_batches(self, broker: RunningBroker) -> None:
        reader, writer = await broker.client(), await broker.client()
        await create_topic(writer, "t")
        waiting = asyncio.create_task(fetch(reader, "t", max_wait_ms=30_000, min_bytes=150))
        await asyncio.sleep(0.02)
        await produce(writer, "t", batch("a"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await produce(writer, "t", batch("b" * 100))
        assert len(values_of(await asyncio.wait_for(waiting, 5))) == 2

    async def test_error_anywhere_answers_at_once(self, client: RawClient) -> None:
        await create_topic(client, "t")
        started = time.perf_counter()
        response = await client.request(fetch_request("t", {0: 0, 9: 0}, max_wait_ms=30_000), 12)
        assert time.perf_counter() - started < 5
        assert [d.error_code for d in response.responses[0].partitions] == [0, 3]

    async def test_nothing_asked_answers_at_once(self, client: RawClient) -> None:
        response = await client.request(FetchRequest(max_wait_ms=30_000, min_bytes=1), 12)
        assert response.responses == []

    async def test_client_that_leaves_is_forgotten(self, broker: RunningBroker) -> None:
        client = await broker.client()
        await create_topic(client, "t")
        client.send(fetch_request("t", max_wait_ms=30_000), 12)
        await asyncio.sleep(0.05)
        assert len(broker.broker.fetch_waiters) == 1
        await client.close()
        await asyncio.sleep(0.05)
        assert len(broker.broker.fetch_waiters) == 0

    async def test_deleted_topic_wakes_its_readers(self, broker: RunningBroker) -> None:
        reader, admin = await broker.client(), await broker.client()
        await create_topic(admin, "t")
        waiting = asyncio.create_task(fetch(reader, "t", max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        await broker.broker.topics.delete("t")
        data = await asyncio.wait_for(waiting, 5)
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
async def test_full_fetch_is_served_in_portions_and_starves_no_partition(
    client: RawClient, session: tuple[int, int]
) -> None:
    topics, partitions = ("large", "other"), range(3)
    for topic in topics:
        await create_topic(client, topic, 3)
        for partition in partitions:
            await produce(client, topic, batch(bytes(900_000)), partition=partition)
    asked = fetch_request(topics[0], dict.fromkeys(partitions, 0), session=session)
    asked.topics += fetch_request(topics[1], dict.fromkeys(partitions, 0)).topics
    served: set[tuple[str, int]] = set()
    for _ in range(200):
        answer = await client.request(asked, 12)
        named = {
            topic.topic: [part.partition_index for part in topic.partitions]
            for topic in answer.responses
        }
        assert named == {topic: list(partitions) for topic in topics}
        with_records = [
            (topic.topic, part.partition_index)
            for topic in answer.responses
            for part in topic.partitions
            if part.records
        ]
        assert len(with_records) == ENOUGH_BYTES // 900_000
        served.update(with_records)
        if len(served) == 6:
            return
    raise AssertionError(f"only {served} got records")


class TestSessions:
    """KIP-227 on the wire."""

    async def test_incremental_answers_hold_news_only(self, client: RawClient) -> None:
        await create_topic(client, "t", partitions=3)
        first = await client.request(fetch_request("t", {0: 0, 1: 0, 2: 0}, session=(0, 0)), 12)
        assert first.session_id > 0
        assert len(first.responses[0].partitions) == 3
        quiet = await client.request(fetch_request("t", {}, session=(first.session_id, 1)), 12)
        assert (quiet.session_id, quiet.responses) == (first.session_id, [])
        await produce(client, "t", batch("a"), partition=1)
        news = await client.request(fetch_request("t", {}, session=(first.session_id, 2)), 12)
        (data,) = news.responses[0].partitions
        assert (data.partition_index, values_of(data)) == (1, [b"a"])

    async def test_session_is_served_in_portions_and_in_turn(self, client: RawClient) -> None:
        await create_topic(client, "large", 5)
        large = batch(bytes(900_000))
        for partition in range(5):
            await produce(client, "large", large, partition=partition)
        offsets = dict.fromkeys(range(5), 0)
        asked = fetch_request("large", dict.fromkeys(range(5), 1), session=(0, 0))
        session_id = (await client.request(asked, 12)).session_id
        seen: list[int] = []
        for epoch in (1, 2, 3):
            asked = fetch_request("large", offsets, session=(session_id, epoch))
            answer = await client.request(asked, 12)
            parts = [part for topic in answer.responses for part in topic.partitions]
            served = [part.partition_index for part in parts if part.records]
            assert sum(len(part.records) for part in parts) <= ENOUGH_BYTES
            seen += served
            offsets = dict.fromkeys(served, 1)
        assert sorted(seen) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("min_bytes", "batch_bytes"),
        [(3 << 20, 900_000), (2 << 20, 900_000), (1 << 20, 3_000_000)],
    )
    async def test_session_that_waits_for_more_than_a_portion_is_given_it_at_once(
        self, client: RawClient, min_bytes: int, batch_bytes: int
    ) -> None:
        await create_topic(client, "large", 2, max_message_bytes="4000000")
        await produce(client, "large", batch(bytes(100_000)), partition=0)
        for _ in range(8):
            await produce(client, "large", batch(bytes(batch_bytes)), partition=1)
        asked = fetch_request("large", {0: 1, 1: 8}, session=(0, 0))
        session_id = (await client.request(asked, 12)).session_id
        asked = fetch_request(
            "large",
            {0: 0, 1: 0},
            session=(session_id, 1),
            min_bytes=min_bytes,
            max_wait_ms=30_000,
            partition_max_bytes=1 << 24,
        )
        answer = await asyncio.wait_for(client.request(asked, 12), 10)
        parts = [part for topic in answer.responses for part in topic.partitions]
        assert sum(len(part.records) for part in parts) >= min_bytes

    async def test_long_poll_in_a_session_wakes(self, broker: RunningBroker) -> None:
        reader, writer = await broker.client(), await broker.client()
        await create_topic(writer, "t")
        first = await reader.request(fetch_request("t", session=(0, 0)), 12)
        waiting = asyncio.create_task(
            reader.request(
                fetch_request("t", {}, session=(first.session_id, 1), max_wait_ms=30_000), 12
            )
        )
        await asyncio.sleep(0.05)
        await produce(writer, "t", batch("a"))
        response = await asyncio.wait_for(waiting, 5)
        assert values_of(response.responses[0].partitions[0]) == [b"a"]

    @pytest.mark.parametrize(
        ("session", "code"),
        [((12345, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)],
    )
    async def test_unknown_session(
        self, client: RawClient, session: tuple[int, int], code: ErrorCode
    ) -> None:
        response = await client.request(fetch_request("t", {}, session=session), 12)
        assert (response.error_code, response.responses) == (code, [])

    async def test_error_in_a_session_is_news_each_time(self, client: RawClient) -> None:
        first = await client.request(fetch_request("missing", session=(0, 0)), 12)
        for epoch in (1, 2):
            again = await client.request(
                fetch_request("missing", {}, session=(first.session_id, epoch)), 12
            )
            assert again.responses[0].partitions[0].error_code == 3


async def test_waiting_fetch_that_fails_holds_up_no_producer(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_topic(client, "t")
    reader = await broker.client()
    request = fetch_request("t", max_wait_ms=9_000, min_bytes=1)
    reader.send(request, 12)
    while not len(broker.broker.fetch_waiters):
        await asyncio.sleep(0.001)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("storage.log.log.Log.read", fail)
        await produce(client, "t", batch("a"))
        response = await reader.receive()
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await produce(client, "t", batch("b"))
    assert values_of(await fetch(client, "t")) == [b"a", b"b"]
