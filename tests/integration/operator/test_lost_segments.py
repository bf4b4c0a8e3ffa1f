"""A broker whose files were lost while it was down: what clients, probes and metrics get."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from client.admin import Admin
from client.types import TopicPartition
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.error_codes import ErrorCode
from protocol.structs import PartitionIndexes
from storage.audit.accept_loss import accept_loss
from storage.disk.files import RealFiles
from tests.integration.operator.test_metrics import get
from tests.support.broker import RunningBroker, batch, running_broker
from tests.support.requests import create_topic, fetch, list_offset, produce, values_of

RECORDS = 60
PER_SEGMENT = 5
MIDDLE = 30
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def records(number: int) -> bytes:
    return batch(f"v{number:02d}" + "x" * 65, timestamp=1_000 + number)


async def filled(directory: Path) -> None:
    """Two topics of 60 records in 12 segments each, and a group; stopped cleanly."""
    async with running_broker(directory, offsets_topic_num_partitions="2") as running:
        client = await running.client()
        for topic in ("t", "other"):
            size = PER_SEGMENT * len(records(0))
            await create_topic(client, topic, segment_bytes=str(size))
            for number in range(RECORDS):
                assert (await produce(client, topic, records(number))).error_code == 0
        async with Admin(running.bootstrap) as admin:
            for group in ("a", "b"):
                await admin.alter_group_offsets(group, {TopicPartition("t", 0): 7})


@pytest.fixture
async def damaged(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    directory = tmp_path / "data"
    await filled(directory)
    (directory / "t-0" / f"{MIDDLE:020d}.log").unlink()
    async with running_broker(directory, metrics_listener="127.0.0.1:0") as running:
        yield running


async def test_clients_hear_of_it_and_other_partitions_are_served(damaged: RunningBroker) -> None:
    client = await damaged.client()
    assert (await produce(client, "t", records(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values_of(await fetch(client, "t", MIDDLE - 1, max_bytes=1))[-1] is not None
    for offset in (MIDDLE, MIDDLE + 1, RECORDS - 1, RECORDS):
        assert (await fetch(client, "t", offset)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for timestamp in (LATEST, MAX_TIMESTAMP, 1_000 + MIDDLE, 1_000 + RECORDS):
        answer = await list_offset(client, "t", timestamp)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    for timestamp, offset in ((EARLIEST, 0), (1_000 + MIDDLE - 1, MIDDLE - 1)):
        answer = await list_offset(client, "t", timestamp)
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, offset)
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    epochs = await client.request(
        OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
        ),
        4,
    )
    assert epochs.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await produce(client, "other", records(0))).base_offset == RECORDS


async def test_a_fetch_at_the_end_of_what_is_left_does_not_wait(damaged: RunningBroker) -> None:
    client = await damaged.client()
    async with asyncio.timeout(9):
        for offset in (MIDDLE, RECORDS):
            answer = await fetch(client, "t", offset, max_wait_ms=60_000)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_log_probes_metrics_and_notices_name_it(
    damaged: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [
        record.getMessage()
        for record in caplog.get_records("setup")
        if record.levelname == "ERROR" and record.name == "tidelog.broker.node"
    ]
    assert len(errors) == 1
    assert errors[0].startswith("t-0 is offline: offsets 30 to 34 were durable and are gone")
    status, body = await get(damaged, "/healthz")
    assert status == 503
    assert b"t-0 is offline: offsets 30 to 34 were durable and are gone" in body
    assert b"tidelog fsck --accept-loss t-0 " in body
    assert any(
        record.getMessage().startswith("t-0: offsets 30 to 34 were durable")
        for record in caplog.get_records("setup")
        if record.levelname == "WARNING"
    )
    _, metrics = await get(damaged, "/metrics")
    offline = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(metrics.decode())
        for sample in family.samples
        if sample.name == "tidelog_partition_offline"
    ]
    assert offline == [({"topic": "t", "partition": "0", "reason": "lost"}, 1.0)]


async def test_the_loss_is_accepted(damaged: RunningBroker, tmp_path: Path) -> None:
    await damaged.close_clients()
    await damaged.broker.stop()
    directory = tmp_path / "data"
    accept_loss(str(directory), "t", 0, RealFiles())
    async with running_broker(directory) as again:
        client = await again.client()
        assert (await produce(client, "t", records(0))).base_offset == RECORDS
        bridge = await fetch(client, "t", MIDDLE)
        assert (bridge.error_code, values_of(bridge), bool(bridge.records)) == (0, [], True)
        found = values_of(await fetch(client, "t", MIDDLE + PER_SEGMENT))
        assert found[0] is not None
        assert found[0].startswith(b"v35")
        assert (await list_offset(client, "t", LATEST)).offset == RECORDS + 1


async def test_a_group_whose_offsets_are_gone_has_no_coordinator(tmp_path: Path) -> None:
    """Not offset -1, at which its members would start over."""
    directory = tmp_path / "data"
    await filled(directory)
    async with running_broker(directory) as running:
        lost = {name: running.broker.groups.offsets_partition(name)[1] for name in ("a", "b")}
    assert lost["a"] != lost["b"]
    log = directory / f"__consumer_offsets-{lost['a']}" / f"{0:020d}.log"
    log.write_bytes(b"")
    async with running_broker(directory) as running:
        client = await running.client()
        expected = {"a": ErrorCode.COORDINATOR_NOT_AVAILABLE, "b": ErrorCode.NONE}
        for group, error in expected.items():
            one = await client.request(FindCoordinatorRequest(key=group, key_type=0), 2)
            assert one.error_code == error
            many = await client.request(
                FindCoordinatorRequest(coordinator_keys=[group], key_type=0), 5
            )
            assert many.coordinators[0].error_code == error
            asked = PartitionIndexes(name="t", partition_indexes=[0])
            for version in (1, 5):
                old = await client.request(
                    OffsetFetchRequest(group_id=group, topics=[asked]), version
                )
                assert old.topics[0].partitions[0].error_code == error
                assert version == 1 or old.error_code == error
            new = await client.request(
                OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
                8,
            )
            assert new.groups[0].error_code == error
