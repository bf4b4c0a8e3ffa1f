"""Quotas in force: the clock stands still unless a test moves it, so that delays are exact."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
)
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.error_codes import ErrorCode
from tests.support.broker import ConnectionClosed, RawClient, RunningBroker, batch, running_broker
from tests.support.clock import FrozenClock
from tests.support.requests import create_topic, fetch_request, produce_request

PRODUCE, FETCH = 11, 12


async def alter(
    client: RawClient,
    entity: dict[str, str | None],
    *,
    validate_only: bool = False,
    version: int = 1,
    **values: float | None,
) -> tuple[int, str | None]:
    """Set quotas, or remove those that are None; code and message of the answer."""
    response = await client.request(
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in values.items()
                    ],
                )
            ],
            validate_only=validate_only,
        ),
        version,
    )
    (entry,) = response.entries
    return entry.error_code, entry.error_message


async def describe(client: RawClient, version: int = 1) -> list[tuple[Any, dict[str, float]]]:
    response = await client.request(DescribeClientQuotasRequest(), version)
    assert response.error_code == ErrorCode.NONE
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries
    ]


@pytest.fixture
async def still(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
    """A broker by a clock that stands still, with a topic and rates over three windows."""
    settings = {"quota.window.num": "3"}
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        await create_topic(await running.client(), "t", retention_ms="-1")
        yield running


def produced(size_bytes: int, **fields: Any) -> Any:
    """A Produce request of this size, as a frame and without its length."""
    empty = len(batch(b""))
    return produce_request("t", batch(b"x" * (size_bytes - empty)), **fields)


async def is_silent(client: RawClient) -> bool:
    """Whether the broker leaves the requests of `client` waiting."""
    for _ in range(5):
        await asyncio.sleep(0.01)
    return not client.has_received


class TestRequests:
    @pytest.mark.parametrize("version", [0, 1])
    async def test_set_change_describe_and_remove(self, client: RawClient, version: int) -> None:
        assert await describe(client, version) == []
        entity: dict[str, str | None] = {"user": "ann", "client-id": None}
        values: dict[str, Any] = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
        assert await alter(client, entity, version=version, **values) == (0, None)
        assert await describe(client, version) == [(entity, values)]
        await alter(client, entity, version=version, request_percentage=None, x=None)
        assert await describe(client, version) == [(entity, {"producer_byte_rate": 1000.0})]
        await alter(client, entity, version=version, producer_byte_rate=None)
        assert await describe(client, version) == []

    async def test_a_quota_that_is_only_validated_is_not_set(self, client: RawClient) -> None:
        answer = await alter(client, {"user": "a"}, validate_only=True, producer_byte_rate=1.0)
        assert answer == (0, None)
        assert await describe(client) == []

    async def test_entries_are_independent(self, client: RawClient) -> None:
        def entry(name: str, value: float) -> EntryData:
            entity = [EntityData(entity_type="user", entity_name=name)]
            return EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=value)])

        response = await client.request(
            AlterClientQuotasRequest(entries=[entry("ann", 1.0), entry("bob", 0), entry("", 1.0)]),
            1,
        )
        assert [(e.error_code, e.error_message) for e in response.entries] == [
            (ErrorCode.NONE, None),
            (ErrorCode.INVALID_REQUEST, "Quota producer_byte_rate must be greater than 0"),
            (ErrorCode.INVALID_REQUEST, "Empty user not supported"),
        ]
        assert response.entries[1].entity[0].entity_name == "bob"
        assert await describe(client) == [({"user": "ann"}, {"producer_byte_rate": 1.0})]

    async def test_a_strict_filter(self, client: RawClient) -> None:
        await alter(client, {"user": "ann"}, producer_byte_rate=1.0)
        await alter(client, {"user": "ann", "client-id": "x"}, producer_byte_rate=2.0)
        asked = [ComponentData(entity_type="user", match_type=0, match="ann")]
        for strict, count in ((False, 2), (True, 1)):
            request = DescribeClientQuotasRequest(components=asked, strict=strict)
            assert len((await client.request(request, 1)).entries) == count

    async def test_quotas_survive_a_restart(self, tmp_path: Path) -> None:
        async with running_broker(tmp_path / "data") as running:
            await alter(await running.client(), {"user": None}, consumer_byte_rate=7.0)
        async with running_broker(tmp_path / "data") as running:
            found = await describe(await running.client())
            assert found == [({"user": None}, {"consumer_byte_rate": 7.0})]
            assert running.broker.security.throttle is not None


class TestProduce:
    async def test_delays_are_kafkas(self, still: RunningBroker) -> None:
        # Asked of Apache Kafka 4.3.1: 1491 ms with requests of a few bytes more than the records.
        client = await still.client()
        await alter(client, {"client-id": "test"}, producer_byte_rate=10_000.0)
        delays = []
        for size in (8_000, 8_000, 20_000):
            response = await client.request(produced(size), PRODUCE)
            assert response.responses[0].partition_responses[0].error_code == 0
            delays.append(response.throttle_time_ms)
        assert delays[:2] == [0, 0]
        assert 1_600 <= delays[2] <= 1_640

    async def test_the_connection_is_mute_and_no_other(
        self, still: RunningBroker, clock: FrozenClock
    ) -> None:
        client, bystander = await still.client(), await still.client()
        await alter(client, {"client-id": "slow"}, producer_byte_rate=1_000.0)
        response = await client_request(client, produced(4_000), PRODUCE, "slow")
        delay_ms = response.throttle_time_ms
        assert delay_ms > 2_000
        client.send(ApiVersionsRequest(), 0, "slow")
        await bystander.request(ApiVersionsRequest(), 0)
        assert await is_silent(client)
        assert len(still.broker.security.mutes) == 1
        clock.advance(delay_ms - 1)
        assert await is_silent(client)
        clock.advance(1)
        assert (await client.receive()).error_code == 0
        assert len(still.broker.security.mutes) == 0

    async def test_pipelined_requests_wait_in_order(
        self, still: RunningBroker, clock: FrozenClock
    ) -> None:
        client = await still.client()
        await alter(client, {"user": "ANONYMOUS"}, producer_byte_rate=1_000.0)
        for _ in range(3):
            client.send(produced(4_000), PRODUCE)
        first = await client.receive()
        assert await is_silent(client)
        clock.advance(first.throttle_time_ms)
        second = await client.receive()
        assert second.responses[0].partition_responses[0].base_offset == 1
        assert await is_silent(client)

    async def test_acks_0_is_muted_too(self, still: RunningBroker, clock: FrozenClock) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, producer_byte_rate=1_000.0)
        client.send(produced(4_000, acks=0), PRODUCE)
        client.forget_last()
        client.send(ApiVersionsRequest(), 0)
        assert await is_silent(client)
        clock.advance(30_000)
        assert (await client.receive()).error_code == 0

    async def test_no_mute_is_longer_than_the_cap(
        self, still: RunningBroker, clock: FrozenClock
    ) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, producer_byte_rate=1.0)
        response = await client.request(produced(4_000), PRODUCE)
        assert response.throttle_time_ms > 1_000_000
        client.send(ApiVersionsRequest(), 0)
        clock.advance(30_000)
        assert (await client.receive()).error_code == 0

    async def test_a_muted_connection_is_neither_idle_nor_slow(self, still: RunningBroker) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, producer_byte_rate=1_000.0)
        await client.request(produced(4_000), PRODUCE)
        client.send_raw(b"\0\0\1\0half")
        assert await is_silent(client)
        (muted,) = (c for c in still.broker.connections if c.muted_until_ms)
        for tick in range(10_000, 10_100):
            muted.sweep(tick, 1)
        assert not await client.is_closed_by_broker(0.05)

    async def test_a_muted_connection_whose_peer_has_gone_is_closed(
        self, still: RunningBroker
    ) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, producer_byte_rate=1_000.0)
        await client.request(produced(4_000), PRODUCE)
        open_before = len(still.broker.connections)
        await client.close()
        while len(still.broker.connections) == open_before:
            await asyncio.sleep(0.01)

    async def test_removing_the_last_quota_ends_the_measuring(self, still: RunningBroker) -> None:
        client = await still.client()
        await alter(client, {"client-id": "x"}, producer_byte_rate=1_000.0)
        assert still.broker.security.throttle is not None
        await alter(client, {"client-id": "x"}, producer_byte_rate=None)
        assert still.broker.security.throttle is None


async def client_request(client: RawClient, message: Any, version: int, client_id: str) -> Any:
    return await client.request(message, version, client_id)


class TestFetch:
    async def test_a_fetch_over_the_bound_is_empty_and_not_counted(
        self, still: RunningBroker, clock: FrozenClock
    ) -> None:
        client = await still.client()
        for _ in range(6):
            await client.request(produced(10_000), PRODUCE)
        await alter(client, {"client-id": "test"}, consumer_byte_rate=10_000.0)
        request = fetch_request("t", max_bytes=30_000, session=(0, 0))
        first = await client.request(request, FETCH)
        # Capped at the bound times two windows.
        size = len(first.responses[0].partitions[0].records)
        assert 10_000 <= size <= 20_000
        assert first.throttle_time_ms == 0
        await client.request(fetch_request("t", max_bytes=30_000), FETCH)
        clock.advance(60_000)
        await client.request(fetch_request("t", max_bytes=20_100), FETCH)
        held = await client.request(fetch_request("t", max_bytes=30_000), FETCH)
        assert held.responses == []
        assert held.throttle_time_ms > 0
        client.send(fetch_request("t", max_bytes=1_000), FETCH)
        assert await is_silent(client)
        clock.advance(held.throttle_time_ms)
        again = await client.receive()
        assert again.responses[0].partitions[0].records


class TestTopics:
    async def test_the_bucket_is_kafkas(self, still: RunningBroker, clock: FrozenClock) -> None:
        # As Apache Kafka 4.3.1 with one partition a second and a burst of 11.
        client = await still.client()
        await alter(client, {"client-id": "test"}, controller_mutation_rate=1.0)
        for name, count, code in (("a", 1, 0), ("b", 10, 0), ("c", 1, 0), ("d", 1, 89)):
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            response = await client.request(CreateTopicsRequest(topics=[topic]), 7)
            assert response.topics[0].error_code == code
        assert response.throttle_time_ms == 1_000
        clock.advance(1_000)
        added = CreatePartitionsTopic(name="a", count=4, assignments=None)
        grown = await client.request(CreatePartitionsRequest(topics=[added], timeout_ms=9), 3)
        assert grown.results[0].error_code == 0
        state = DeleteTopicState(name="b")
        deleted = await client.request(DeleteTopicsRequest(topics=[state], timeout_ms=9), 6)
        assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert deleted.throttle_time_ms == 3_000
        clock.advance(3_000)

    async def test_old_versions_are_served_and_delayed(self, still: RunningBroker) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, controller_mutation_rate=1.0)
        topic = CreatableTopic(name="a", num_partitions=13, replication_factor=1)
        response = await client.request(CreateTopicsRequest(topics=[topic]), 5)
        assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 2_000)

    async def test_a_request_that_only_validates_costs_nothing(self, still: RunningBroker) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, controller_mutation_rate=1.0)
        topic = CreatableTopic(name="a", num_partitions=100, replication_factor=1)
        for _ in range(2):
            request = CreateTopicsRequest(topics=[topic], validate_only=True)
            response = await client.request(request, 7)
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 0)


class TestConnections:
    async def test_connections_of_an_address_over_its_rate_are_closed(
        self, still: RunningBroker
    ) -> None:
        admin = await still.client()
        await alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
        served = refused = 0
        for _ in range(4):
            client = await still.client()
            try:
                await client.request(ApiVersionsRequest(), 0)
                served += 1
            except (ConnectionClosed, ConnectionError):
                refused += 1
        assert (served, refused) == (2, 2)
        await admin.request(ApiVersionsRequest(), 0)


class TestRequestTime:
    async def test_a_client_that_keeps_the_loop_busy_is_slowed_down(
        self, still: RunningBroker
    ) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, request_percentage=0.0001)
        response = await client.request(ApiVersionsRequest(), 3)
        assert response.throttle_time_ms == 1_000  # never more than a window
        client.send(ApiVersionsRequest(), 3)
        assert await is_silent(client)

    async def test_another_client_is_not(self, still: RunningBroker) -> None:
        client = await still.client()
        await alter(client, {"client-id": "other"}, request_percentage=0.0001)
        for _ in range(3):
            assert (await client.request(ApiVersionsRequest(), 3)).throttle_time_ms == 0

    async def test_waiting_is_not_counted(self, still: RunningBroker, clock: FrozenClock) -> None:
        client = await still.client()
        await alter(client, {"client-id": "test"}, request_percentage=100.0)
        client.send(fetch_request("t", max_wait_ms=5_000, session=(0, 0)), FETCH)
        assert await is_silent(client)
        clock.advance(5_000)
        answer = await client.receive()
        assert answer.responses
        assert answer.throttle_time_ms == 0


async def test_automatic_creation_is_limited_too(still: RunningBroker) -> None:
    client = await still.client()
    await alter(client, {"client-id": "test"}, controller_mutation_rate=1.0)
    for number in range(13):
        topics = [MetadataRequestTopic(name=f"auto-{number}")]
        response = await client.request(MetadataRequest(topics=topics), 9)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert response.throttle_time_ms == 1_000


async def test_metrics_show_each_limit_and_its_use(tmp_path: Path, clock: FrozenClock) -> None:
    settings: dict[str, Any] = {"quota.window.num": "3", "metrics.listener": "127.0.0.1:0"}
    async with running_broker(tmp_path / "data", clock=clock, **settings) as running:
        client = await running.client()
        await create_topic(client, "t", retention_ms="-1")
        both: dict[str, str | None] = {"user": "ANONYMOUS", "client-id": "test"}
        await alter(client, both, producer_byte_rate=1e6, controller_mutation_rate=2.0)
        await alter(client, {"client-id": None}, consumer_byte_rate=5.0, request_percentage=50.0)
        await alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=100.0)
        await create_topic(client, "u", partitions=3)
        message = produced(4_000)
        await client.request(message, PRODUCE)
        await running.client()
        url = f"http://127.0.0.1:{running.ready.metrics_port}/metrics"
        answer = await asyncio.to_thread(urllib.request.urlopen, url)
        found = {
            (
                sample.name.removeprefix("tidelog_quota_"),
                *(sample.labels[name] for name in ("kind", "user", "client_id", "ip")),
            ): sample.value
            for family in text_string_to_metric_families(answer.read().decode())
            if family.name.startswith("tidelog_quota_")
            for sample in family.samples
        }
        names = ("ANONYMOUS", "test", "")
        rate = found.pop(("rate", "producer_byte_rate", *names))
        assert 4_000 / 2 < rate < 4_200 / 2, "bytes of the frame over two windows"
        assert found == {
            ("bound", "producer_byte_rate", *names): 1e6,
            ("bound", "controller_mutation_rate", *names): 2.0,
            ("tokens", "controller_mutation_rate", *names): 2 * 11 - 3,
            ("bound", "consumer_byte_rate", "", "<default>", ""): 5.0,
            ("bound", "request_percentage", "", "<default>", ""): 50.0,
            ("bound", "connection_creation_rate", "", "", "127.0.0.1"): 100.0,
            ("rate", "connection_creation_rate", "", "", "127.0.0.1"): 1 / 2,
        }
