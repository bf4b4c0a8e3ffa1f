"""Metadata: all, none, by name, by id, and when a missing topic is made."""

from pathlib import Path

import pytest

from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.error_codes import ErrorCode
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.requests import create_topic, metadata_request


@pytest.mark.parametrize("version", range(14))
async def test_the_only_broker_is_listed_and_controls(
    broker: RunningBroker, client: RawClient, version: int
) -> None:
    response = await client.request(metadata_request([]), version)
    (listed,) = response.brokers
    assert (listed.node_id, listed.host, listed.port) == (1, "127.0.0.1", broker.port)
    if version >= 1:
        assert response.controller_id == listed.node_id
    if version >= 2:
        assert response.cluster_id == broker.ready.cluster_id


@pytest.mark.parametrize("version", range(14))
async def test_partitions_have_a_leader(client: RawClient, version: int) -> None:
    topic_id = await create_topic(client, "t", partitions=2)
    response = await client.request(metadata_request(["t"]), version)
    (topic,) = response.topics
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]
    assert all(p.replica_nodes == p.isr_nodes == [1] for p in topic.partitions)
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == topic_id


@pytest.mark.parametrize(
    ("version", "topics", "is_all"),
    [(0, [], True), (1, None, True), (1, [], False), (13, None, True), (13, [], False)],
)
async def test_all_and_none(
    client: RawClient, version: int, topics: list[str] | None, is_all: bool
) -> None:
    await create_topic(client, "t")
    response = await client.request(metadata_request(topics), version)
    assert ("t" in {topic.name for topic in response.topics}) == is_all


async def test_internal_topics_are_marked(client: RawClient) -> None:
    await create_topic(client, "t")
    response = await client.request(metadata_request(None), 12)
    marked = {topic.name: topic.is_internal for topic in response.topics}
    assert marked["t"] is False
    assert marked["__consumer_offsets"] is True


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
async def test_missing_topic_is_made_when_asked(
    client: RawClient, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidelog.audit")
    response = await client.request(metadata_request(["new"], create=True), version)
    (topic,) = response.topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 1)
    assert "created topic new (auto.create.topics.enable)" in caplog.text


@pytest.mark.parametrize("version", [4, 12])
async def test_missing_topic_is_not_made_unasked(client: RawClient, version: int) -> None:
    for _ in range(2):
        response = await client.request(metadata_request(["new"], create=False), version)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_operator_can_forbid_making_topics(tmp_path: Path) -> None:
    async with running_broker(tmp_path, auto_create_topics_enable="false") as broker:
        client = await broker.client()
        response = await client.request(metadata_request(["new"], create=True), 12)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_made_topics_have_num_partitions(tmp_path: Path) -> None:
    async with running_broker(tmp_path, num_partitions="3") as broker:
        client = await broker.client()
        response = await client.request(metadata_request(["new"], create=True), 12)
        assert len(response.topics[0].partitions) == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "a b", "ä", "x" * 250, "nul\0"])
@pytest.mark.parametrize("create", [True, False])
async def test_impossible_name(client: RawClient, name: str, create: bool) -> None:
    response = await client.request(metadata_request([name], create=create), 12)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_name_of_kafkas_metadata_makes_no_topic(client: RawClient) -> None:
    name = "__cluster_metadata"
    response = await client.request(metadata_request([name], create=True), 12)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await client.request(metadata_request(None), 12)
    assert name not in [topic.name for topic in response.topics]


async def test_topic_by_id(client: RawClient) -> None:
    topic_id = await create_topic(client, "t")
    by_id = [MetadataRequestTopic(topic_id=topic_id, name=None)]
    response = await client.request(MetadataRequest(topics=by_id), 12)
    assert response.topics[0].name == "t"


async def test_unknown_id_has_no_name(client: RawClient) -> None:
    by_id = [MetadataRequestTopic(topic_id=b"\7" * 16, name=None)]
    response = await client.request(MetadataRequest(topics=by_id), 12)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


async def test_authorized_operations_only_when_asked(client: RawClient) -> None:
    await create_topic(client, "t")
    plain = await client.request(metadata_request(["t"]), 8)
    assert plain.cluster_authorized_operations == -(2**31)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    request = metadata_request(["t"])
    request.include_cluster_authorized_operations = True
    request.include_topic_authorized_operations = True
    asked = await client.request(request, 8)
    assert asked.cluster_authorized_operations == 0x1FA0
    assert asked.topics[0].topic_authorized_operations == 0xDF8


async def test_advertised_address_is_in_metadata(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, advertised_listeners="PLAINTEXT://broker.example:19092"
    ) as broker:
        client = await broker.client()
        (listed,) = (await client.request(metadata_request([]), 12)).brokers
        assert (listed.host, listed.port) == ("broker.example", 19092)


async def test_each_listener_tells_its_own_address(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0"
    async with running_broker(
        tmp_path,
        listeners=listeners,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    ) as broker:
        client = await broker.client()
        (listed,) = (await client.request(metadata_request([]), 12)).brokers
        assert listed.port == broker.port
