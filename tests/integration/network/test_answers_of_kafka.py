"""Requests that are a little wrong, each answered as Apache Kafka 4.3.1 answers the same bytes."""

from typing import Any

import pytest

from protocol.api import alter_configs, incremental_alter_configs
from protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.api.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol.api.describe_cluster import DescribeClusterRequest
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_producers import DescribeProducersRequest
from protocol.api.describe_quorum import DescribeQuorumRequest, TopicData
from protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from protocol.api.elect_leaders import ElectLeadersRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.error_codes import ErrorCode
from protocol.structs import (
    ConfigText,
    NamedIndexes,
    PartitionIndex,
    PartitionIndexes,
    TopicIndexes,
)
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import (
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    metadata_request,
    produce,
    produce_request,
    values_of,
)

TIMEOUT_MS = 10_000
NO_TIME = (0, -1, -(2**31))
METADATA_TOPIC = "__cluster_metadata"
TOPIC, BROKER = 2, 4


def produce_to(*parts: tuple[str, int, bytes], timeout_ms: int = TIMEOUT_MS) -> ProduceRequest:
    """A request with one topic entry per part."""
    return ProduceRequest(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name, partition_data=[PartitionProduceData(index=index, records=records)]
            )
            for name, index, records in parts
        ],
    )


class TestProduce:
    @pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 7])
    async def test_timeout_does_not_cut_the_disk_short(
        self, client: RawClient, timeout_ms: int
    ) -> None:
        await create_topic(client, "t")
        for offset in range(20):
            request = produce_to(("t", 0, batch("a")), timeout_ms=timeout_ms)
            answer = (await client.request(request, 9)).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)

    @pytest.mark.parametrize("version", [3, 7, 9])
    async def test_partition_twice_is_appended_once(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t", 2)
        request = produce_to(("t", 0, batch("a")), ("t", 1, batch("x")), ("t", 0, batch("b", "c")))
        responses = (await client.request(request, version)).responses
        answers = {p.index: p.base_offset for t in responses for p in t.partition_responses}
        assert answers == {0: 0, 1: 0}
        assert sum(len(topic.partition_responses) for topic in responses) == 2
        assert values_of(await fetch(client, "t")) == [b"b", b"c"]

    async def test_partition_twice_in_one_topic_is_appended_once(self, client: RawClient) -> None:
        await create_topic(client, "t")
        request = produce_request("t", batch("a"))
        request.topic_data[0].partition_data *= 2
        answers = (await client.request(request, 9)).responses[0].partition_responses
        assert [answer.base_offset for answer in answers] == [0]
        assert values_of(await fetch(client, "t")) == [b"a"]

    @pytest.mark.parametrize("acks", [1, -1])
    async def test_topic_without_partitions_is_left_out(self, client: RawClient, acks: int) -> None:
        topics = [TopicProduceData(name="t", partition_data=[])]
        request = ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=topics)
        assert (await client.request(request, 9)).responses == []

    @pytest.mark.parametrize("filling", [b"\0", b"\xff"])
    @pytest.mark.parametrize("size", [12, 16, 17, 61, 100])
    async def test_size_that_no_batch_has_is_corrupt(
        self, client: RawClient, filling: bytes, size: int
    ) -> None:
        await create_topic(client, "t")
        answer = await produce(client, "t", filling * size)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
        assert answer.error_message
        answer = await produce(client, "t", batch("a") + filling * size)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("size", [0, 1, 11, 12, 17, 60, 70])
    async def test_batch_that_is_cut_off_is_none(self, client: RawClient, size: int) -> None:
        await create_topic(client, "t")
        answer = await produce(client, "t", batch("a" * 20)[:size])
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message


class TestFetch:
    @pytest.mark.parametrize("isolation_level", [2, -1])
    async def test_unknown_isolation_level(self, client: RawClient, isolation_level: int) -> None:
        await create_topic(client, "t")
        request = fetch_request("t", isolation_level=isolation_level)
        answer = await client.request(request, 12)
        (data,) = answer.responses[0].partitions
        assert answer.error_code == data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        (data,) = (await client.request(request, 4)).responses[0].partitions
        assert data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    @pytest.mark.parametrize("limits", [{"max_bytes": -1}, {"partition_max_bytes": -1}])
    async def test_negative_limits_of_bytes(
        self, client: RawClient, limits: dict[str, int]
    ) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a"))
        data = await fetch(client, "t", **limits)
        assert (data.error_code, data.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
        assert (await fetch(client, "t", 1, **limits)).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("offset", [0, 1])
    async def test_last_fetched_epoch_ahead_of_the_log(
        self, client: RawClient, offset: int
    ) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a"))
        data = await fetch(client, "t", offset, last_fetched_epoch=1)
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert data.diverging_epoch is None
        data = await fetch(client, "t", offset, last_fetched_epoch=0)
        assert data.error_code == ErrorCode.NONE

    async def test_aborted_transactions_of_what_is_not_there(self, client: RawClient) -> None:
        await create_topic(client, "t")
        (unknown,) = (await client.request(fetch_request("t", {9: 0}), 12)).responses[0].partitions
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.aborted_transactions == []
        request = fetch_request("", topic_id=b"x" * 16)
        (unknown,) = (await client.request(request, 13)).responses[0].partitions
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert unknown.aborted_transactions == []
        assert (await fetch(client, "t", 9)).aborted_transactions is None

    @pytest.mark.parametrize("version", [4, 11, 12])
    async def test_partition_twice(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t")
        await produce(client, "t", batch("a"))
        await produce(client, "t", batch("b"))
        partitions = [
            FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000)
            for offset in (0, 1)
        ]
        topics = [FetchTopic(topic="t", partitions=partitions)]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000, topics=topics)
        (data,) = (await client.request(request, version)).responses[0].partitions
        assert values_of(data) == [b"b"], "the last one counts"

    @pytest.mark.parametrize("epoch", [-2, -7])
    async def test_leader_epoch_below_none_is_none(self, client: RawClient, epoch: int) -> None:
        await create_topic(client, "t")
        assert (await fetch(client, "t", current_leader_epoch=epoch)).error_code == ErrorCode.NONE


class TestOffsets:
    @pytest.mark.parametrize("isolation_level", [2, -1])
    async def test_unknown_isolation_level(self, client: RawClient, isolation_level: int) -> None:
        await create_topic(client, "t")
        answer = await list_offset(client, "t", -1, isolation_level=isolation_level)
        assert (answer.error_code, answer.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)

    @pytest.mark.parametrize("epoch", [-2, -7])
    async def test_leader_epoch_below_none_is_fenced(self, client: RawClient, epoch: int) -> None:
        await create_topic(client, "t")
        answer = await list_offset(client, "t", -1, current_leader_epoch=epoch)
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
        topics = [OffsetForLeaderTopic(topic="t", partitions=[asked])]
        response = await client.request(
            OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 3
        )
        (end,) = response.topics[0].partitions
        assert end.error_code == ErrorCode.FENCED_LEADER_EPOCH

    async def test_partition_twice_and_topic_without_partitions(self, client: RawClient) -> None:
        await create_topic(client, "t", 2)
        asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (0, 1, 0)]
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name="t", partitions=asked),
                ListOffsetsTopic(name="none", partitions=[]),
            ],
        )
        (topic,) = (await client.request(request, 7)).topics
        codes = {answer.partition_index: answer.error_code for answer in topic.partitions}
        assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}
        assert len(topic.partitions) == 2

    async def test_deletion_twice_and_of_no_partition(self, client: RawClient) -> None:
        await create_topic(client, "t")
        for _ in range(3):
            await produce(client, "t", batch("a"))
        asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (9, 1)]
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="t", partitions=asked),
                DeleteRecordsTopic(name="none", partitions=[]),
            ],
            timeout_ms=TIMEOUT_MS,
        )
        (topic,) = (await client.request(request, 1)).topics
        (answer,) = topic.partitions
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 1)


class TestMetadata:
    @pytest.mark.parametrize("version", [1, 7, 12])
    async def test_name_twice(self, client: RawClient, version: int) -> None:
        await create_topic(client, "t")
        names = ["t", "none", "t", "a b", "none", "a b"]
        answer = await client.request(metadata_request(names), version)
        codes = [(topic.name, topic.error_code) for topic in answer.topics]
        if version < 4:
            codes = [(name, 0 if name == "none" else code) for name, code in codes]
        none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version >= 4 else 0
        assert codes == [("t", 0), ("none", none), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)]

    async def test_name_and_id_of_one_topic(self, client: RawClient) -> None:
        topic_id = await create_topic(client, "t")
        asked = [
            MetadataRequestTopic(name=None, topic_id=topic_id),
            MetadataRequestTopic(name="t"),
            MetadataRequestTopic(name=None, topic_id=b"x" * 16),
            MetadataRequestTopic(name=None, topic_id=b"x" * 16),
        ]
        answer = await client.request(MetadataRequest(topics=asked), 12)
        assert [(t.name, t.error_code) for t in answer.topics] == [
            ("t", ErrorCode.NONE),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    async def test_id_before_its_version(self, client: RawClient) -> None:
        topic_id = await create_topic(client, "t")
        asked = [MetadataRequestTopic(name="new", topic_id=topic_id)]
        answer = await client.request(MetadataRequest(topics=asked), 10)
        assert [t.error_code for t in answer.topics] == [ErrorCode.INVALID_REQUEST]
        everything = await client.request(metadata_request(None), 12)
        assert "new" not in {topic.name for topic in everything.topics}


class TestDeleteTopics:
    async def delete(self, client: RawClient, *states: DeleteTopicState) -> list[Any]:
        request = DeleteTopicsRequest(topics=list(states), timeout_ms=TIMEOUT_MS)
        return list((await client.request(request, 6)).responses)

    async def test_name_and_id_of_one_topic(self, broker: RunningBroker, client: RawClient) -> None:
        topic_id = await create_topic(client, "t")
        by_name, by_id = DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic_id)
        for states in ((by_name, by_id), (by_id, by_name), (by_id, by_id), (by_name, by_name)):
            (result,) = await self.delete(client, *states)
            assert result.error_code == ErrorCode.INVALID_REQUEST
            if states[0] is not states[1]:
                assert (result.name, result.topic_id) == ("t", topic_id)
        assert broker.broker.topics.find("t") is not None

    async def test_both_or_neither_in_one_place(
        self, broker: RunningBroker, client: RawClient
    ) -> None:
        topic_id = await create_topic(client, "t")
        both, neither = DeleteTopicState(name="t", topic_id=topic_id), DeleteTopicState(name=None)
        codes = [r.error_code for r in await self.delete(client, both, neither, neither)]
        assert codes == [ErrorCode.INVALID_REQUEST] * 3
        assert broker.broker.topics.find("t") is not None
        codes = [r.error_code for r in await self.delete(client, both, DeleteTopicState(name="t"))]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert broker.broker.topics.find("t") is None

    async def test_unknown_twice(self, client: RawClient) -> None:
        states = [DeleteTopicState(name=None, topic_id=b"x" * 16)] * 2
        states += [DeleteTopicState(name="none")] * 2
        codes = [result.error_code for result in await self.delete(client, *states)]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2


class TestNoTime:
    """A timeout of 0 or less: nothing is done, except where old clients take that for success."""

    @pytest.mark.parametrize("timeout_ms", NO_TIME)
    async def test_old_versions_do_the_work(
        self, broker: RunningBroker, client: RawClient, timeout_ms: int
    ) -> None:
        topics = broker.broker.topics
        new = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        request: Any = CreateTopicsRequest(topics=new, timeout_ms=timeout_ms)
        for expected in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS):
            (created,) = (await client.request(request, 4)).topics
            assert created.error_code == expected
        made = topics.find("t")
        assert made is not None
        grown = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
        request = CreatePartitionsRequest(topics=grown, timeout_ms=timeout_ms)
        (result,) = (await client.request(request, 1)).results
        assert (result.error_code, len(made.partitions)) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        request = DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=timeout_ms)
        answers = (await client.request(request, 3)).responses
        assert [answer.error_code for answer in answers] == [
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert topics.find("t") is None

    @pytest.mark.parametrize("timeout_ms", NO_TIME)
    async def test_topics(self, broker: RunningBroker, client: RawClient, timeout_ms: int) -> None:
        await create_topic(client, "t")
        topics = broker.broker.topics
        new = [CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        request: Any = CreateTopicsRequest(topics=new, timeout_ms=timeout_ms)
        (created,) = (await client.request(request, 7)).topics
        assert (created.error_code, topics.find("new")) == (ErrorCode.REQUEST_TIMED_OUT, None)
        grown = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
        request = CreatePartitionsRequest(topics=grown, timeout_ms=timeout_ms)
        (result,) = (await client.request(request, 2)).results
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=timeout_ms)
        (deleted,) = (await client.request(request, 6)).responses
        assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
        kept = topics.find("t")
        assert kept is not None
        assert len(kept.partitions) == 1

    @pytest.mark.parametrize("timeout_ms", NO_TIME)
    async def test_leaders_and_replicas(self, client: RawClient, timeout_ms: int) -> None:
        await create_topic(client, "t")
        named = [TopicIndexes(topic="t", partitions=[0])]
        request: Any = ElectLeadersRequest(topic_partitions=named, timeout_ms=timeout_ms)
        answer = await client.request(request, 2)
        (partition,) = answer.replica_election_results[0].partition_result
        assert answer.error_code == partition.error_code == ErrorCode.REQUEST_TIMED_OUT
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms)
        answer = await client.request(request, 2)
        assert (answer.error_code, answer.replica_election_results) == (
            ErrorCode.REQUEST_TIMED_OUT,
            [],
        )
        moved = [ReassignablePartition(partition_index=0, replicas=[1])]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=moved)], timeout_ms=timeout_ms
        )
        answer = await client.request(request, 0)
        (partition,) = answer.responses[0].partitions
        assert answer.error_code == partition.error_code == ErrorCode.REQUEST_TIMED_OUT


class TestConfigs:
    async def create(self, client: RawClient, *configs: tuple[str, str]) -> Any:
        asked = [ConfigText(name=name, value=value) for name, value in configs]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=asked)
        return (await client.request(CreateTopicsRequest(topics=[topic]), 7)).topics[0]

    async def alter(
        self, client: RawClient, kind: int, name: str, *configs: tuple[str, str]
    ) -> list[int]:
        """What AlterConfigs and IncrementalAlterConfigs answer."""
        codes = []
        incremental = incremental_alter_configs
        for module, request, setting in (
            (alter_configs, alter_configs.AlterConfigsRequest, ConfigText),
            (incremental, incremental.IncrementalAlterConfigsRequest, incremental.AlterableConfig),
        ):
            resource = module.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[setting(name=key, value=value) for key, value in configs],
            )
            (answer,) = (await client.request(request(resources=[resource]), 1)).responses
            codes.append(answer.error_code)
        return codes

    async def test_of_a_setting_given_twice_the_last_value_counts(self, client: RawClient) -> None:
        answer = await self.create(client, ("retention.ms", "1"), ("retention.ms", "2"))
        assert answer.error_code == ErrorCode.NONE
        assert [c.value for c in answer.configs if c.name == "retention.ms"] == ["2"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("local.retention.ms", "100"),
            ("local.retention.bytes", "-2"),
            ("remote.storage.enable", "false"),
            ("remote.log.copy.disable", "true"),
            ("remote.log.delete.on.disable", "true"),
            ("leader.replication.throttled.replicas", ""),
            ("leader.replication.throttled.replicas", "*"),
            ("follower.replication.throttled.replicas", "0:1,1:1"),
        ],
    )
    async def test_settings_of_kafka_without_effect(
        self, client: RawClient, name: str, value: str
    ) -> None:
        assert (await self.create(client, (name, value))).error_code == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("local.retention.ms", "-3"),
            ("remote.storage.enable", "true"),
            ("leader.replication.throttled.replicas", "x"),
            ("follower.replication.throttled.replicas", "0:1,"),
        ],
    )
    async def test_bad_values_of_those(self, client: RawClient, name: str, value: str) -> None:
        assert (await self.create(client, (name, value))).error_code == ErrorCode.INVALID_CONFIG

    async def test_setting_twice_and_topic_without_name(self, client: RawClient) -> None:
        await create_topic(client, "t")
        twice = (("retention.ms", "1"), ("retention.ms", "2"))
        assert await self.alter(client, TOPIC, "t", *twice) == [ErrorCode.INVALID_REQUEST] * 2
        assert await self.alter(client, TOPIC, "") == [ErrorCode.INVALID_REQUEST] * 2

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("sasl.kerberos.min.time.before.relogin", "58000"),
            ("num.io.threads", "9"),
            ("zookeeper.connect", "x"),
            ("log.cleaner.threads", "2"),
            ("log.cleaner.backoff.ms", "0"),
        ],
    )
    async def test_broker_takes_what_does_not_apply(
        self, broker: RunningBroker, client: RawClient, name: str, value: str
    ) -> None:
        assert await self.alter(client, BROKER, "1", (name, value)) == [ErrorCode.NONE] * 2

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num.partitions", "2"),
            ("compression.gzip.level", "10"),
            ("log.retention.ms", "x"),
            ("num.io.threads", "0"),
        ],
    )
    async def test_broker_refuses(self, client: RawClient, name: str, value: str) -> None:
        codes = await self.alter(client, BROKER, "1", (name, value))
        assert codes == [ErrorCode.INVALID_REQUEST] * 2

    async def test_backoff_of_the_cleaner_changes_at_once(
        self, broker: RunningBroker, client: RawClient
    ) -> None:
        job = broker.broker.jobs["cleaner"]
        assert job.interval_ms == 15_000
        await self.alter(client, BROKER, "1", ("log.cleaner.backoff.ms", "7"))
        assert job.interval_ms == 7
        await self.alter(client, BROKER, "1", ("log.cleaner.backoff.ms", "0"))
        assert job.interval_ms == 1

    async def test_synonyms_and_texts(self, client: RawClient) -> None:
        await create_topic(client, "t")
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = (await client.request(request, 4)).results
        assert result.error_message == ""
        synonyms = {
            config.name: [(level.name, level.source) for level in config.synonyms]
            for config in result.configs
        }
        for name in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"):
            assert synonyms[name] == []
        assert synonyms["leader.replication.throttled.replicas"] == []
        assert synonyms["retention.bytes"] == [("log.retention.bytes", 5)]
        assert synonyms["min.insync.replicas"] == [("min.insync.replicas", n) for n in (3, 5)]


class TestOneNode:
    @pytest.mark.parametrize("election_type", [2, -1])
    async def test_unknown_kind_of_election(self, client: RawClient, election_type: int) -> None:
        await create_topic(client, "t")
        named = [TopicIndexes(topic="t", partitions=[0])]
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=named)
        answer = await client.request(request, 2)
        (partition,) = answer.replica_election_results[0].partition_result
        assert answer.error_code == partition.error_code == ErrorCode.INVALID_REQUEST

    async def test_growth_asked_for_twice(self, client: RawClient) -> None:
        await create_topic(client, "t")
        twice = [CreatePartitionsTopic(name="t", count=2, assignments=None)] * 2
        request = CreatePartitionsRequest(topics=twice, timeout_ms=TIMEOUT_MS)
        codes = [result.error_code for result in (await client.request(request, 1)).results]
        assert codes == [ErrorCode.INVALID_REQUEST]

    @pytest.mark.parametrize("endpoint_type", [0, 2, 9])
    async def test_endpoint_type_in_the_answer(self, client: RawClient, endpoint_type: int) -> None:
        answer = await client.request(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
        assert answer.error_code != ErrorCode.NONE
        assert answer.endpoint_type == 1

    async def test_no_message_where_nothing_is_wrong(self, client: RawClient) -> None:
        request = AlterPartitionReassignmentsRequest(topics=[])
        assert (await client.request(request, 0)).error_message is None
        for version, text in ((1, "NONE"), (2, "NONE"), (3, "NONE")):
            answer = await client.request(FindCoordinatorRequest(key="g"), version)
            assert answer.error_message == text
        answer = await client.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert answer.coordinators[0].error_message == ""

    @pytest.mark.parametrize(
        "partitions",
        [[("x", [0])], [(METADATA_TOPIC, [1])], [(METADATA_TOPIC, [0, 0])], [(METADATA_TOPIC, [])],
         [(METADATA_TOPIC, [0]), (METADATA_TOPIC, [0])], [(METADATA_TOPIC, [0]), ("x", [0])]],
    )  # fmt: skip
    async def test_quorum_of_anything_else(
        self, client: RawClient, partitions: list[tuple[str, list[int]]]
    ) -> None:
        topics = [
            TopicData(
                topic_name=name, partitions=[PartitionIndex(partition_index=i) for i in indexes]
            )
            for name, indexes in partitions
        ]
        answer = await client.request(DescribeQuorumRequest(topics=topics), 2)
        assert (answer.error_message, answer.nodes) == ("", [])
        codes = {p.error_code for topic in answer.topics for p in topic.partitions}
        assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    @pytest.mark.parametrize("name", ["a b", "", "."])
    async def test_producers_of_no_name(self, client: RawClient, name: str) -> None:
        request = DescribeProducersRequest(
            topics=[PartitionIndexes(name=name, partition_indexes=[0])]
        )
        (answer,) = (await client.request(request, 0)).topics[0].partitions
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    async def test_directories(self, broker: RunningBroker, client: RawClient) -> None:
        await create_topic(client, "t")
        dirs = [
            AlterReplicaLogDir(path=path, topics=[NamedIndexes(name="t", partitions=partitions)])
            for path, partitions in ((broker.ready.data_dir, [0, 0]), ("/x", [0]), ("/x", []))
        ]
        (result,) = (await client.request(AlterReplicaLogDirsRequest(dirs=dirs), 1)).results
        assert [p.error_code for p in result.partitions] == [ErrorCode.LOG_DIR_NOT_FOUND]


class TestQuotasAndUsers:
    @pytest.mark.parametrize(
        ("components", "code"),
        [
            ([("user", 0, "x")], ErrorCode.NONE),
            ([("user", 1, None), ("client-id", 2, None)], ErrorCode.NONE),
            ([("nope", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
            ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
            ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
            ([("", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
            ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
            ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_filter_of_quotas(
        self, client: RawClient, components: list[tuple[str, int, str | None]], code: ErrorCode
    ) -> None:
        asked = [ComponentData(entity_type=e, match_type=t, match=m) for e, t, m in components]
        answer = await client.request(DescribeClientQuotasRequest(components=asked), 1)
        assert answer.error_code == code
        if code is ErrorCode.NONE:
            assert (answer.error_message, answer.entries) == ("", [])
        else:
            assert answer.error_message
            assert answer.entries is None

    async def test_user_described_twice(self, client: RawClient) -> None:
        users = [UserName(name=name) for name in ("ann", "bob", "ann")]
        answer = await client.request(DescribeUserScramCredentialsRequest(users=users), 0)
        assert answer.error_message == ""
        assert [(r.user, r.error_code) for r in answer.results] == [
            ("ann", ErrorCode.DUPLICATE_RESOURCE),
            ("bob", ErrorCode.RESOURCE_NOT_FOUND),
        ]

    @pytest.mark.parametrize(
        ("name", "mechanism", "code"),
        [
            ("ann", 9, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
            ("", 1, ErrorCode.UNACCEPTABLE_CREDENTIAL),
            ("ann", 1, ErrorCode.RESOURCE_NOT_FOUND),
        ],
    )
    async def test_deletion_of_credentials(
        self, client: RawClient, name: str, mechanism: int, code: ErrorCode
    ) -> None:
        deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism)]
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])
        (result,) = (await client.request(request, 0)).results
        assert result.error_code == code
