"""One conversation with one broker, Tidelog or Apache Kafka of any release, request by request.

What the round trips and the differential tests need, in words: create a topic, send these bytes,
what is there, where is this time. The caller chooses the version where it matters; the defaults
are versions that every broker from 2.4 to 4.x serves. Nothing is retried except right after a
topic was created or a broker was started, when leaders and coordinators are not known yet.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_fetch import OffsetFetchRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.scan import iter_records, scan_entries
from protocol.structs import ConfigText
from tests.compat.raw_client import RawClient

PATIENCE_S = 120
READ_COMMITTED = 1
RESOURCE_TOPIC = 2
_SETTLING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    # What a Kafka says that has not yet heard of its only node.
    ErrorCode.INVALID_REPLICATION_FACTOR,
)

_T = TypeVar("_T")


class Produced(NamedTuple):
    """What a Produce of one partition was answered; -1 where a version does not say."""

    error: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[int, ...] = ()


class Found(NamedTuple):
    """What ListOffsets answered for one time."""

    error: int
    timestamp: int
    offset: int
    leader_epoch: int = -1


class Seen(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one Fetch of one partition gave."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: bytes

    def seen(self) -> list[Seen]:
        """The records in it, control records left out."""
        return [
            Seen(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for entry in scan_entries(self.records)
            if not entry.is_control
            for record in iter_records(self.records, entry.position)
        ]


class Wire(RawClient):
    """A connection with the requests that tests need. A context manager that closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        version: int = 2,
    ) -> None:
        """Create a topic and wait until its partitions can be written."""
        configs = [ConfigText(name=k, value=v) for k, v in (settings or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)

        def error_of(answer: Any) -> int:
            error = int(answer.topics[0].error_code)
            # It is being made all the same; hundreds of partitions take an old broker a while.
            return ErrorCode.NONE if error == ErrorCode.REQUEST_TIMED_OUT else error

        self.ask_settled(ApiKey.CREATE_TOPICS, request, version, error_of)
        self.wait_for_topic(name)

    def wait_for_topic(self, name: str) -> None:
        """Return once the topic has leaders; on brokers that create topics, after creating it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])

        def attempt() -> int:
            (topic,) = self.ask(ApiKey.METADATA, request, 0).topics
            errors = {topic.error_code, *(got.error_code for got in topic.partitions)}
            # 0.8.2 says "unknown" while its only node has not registered yet.
            if ErrorCode.UNKNOWN_SERVER_ERROR in errors:
                return int(ErrorCode.LEADER_NOT_AVAILABLE)
            return int(max(errors))

        _settle(attempt, lambda error: error, name)

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        version: int = 7,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Produced:
        """Send record bytes as they are."""
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

        def attempt() -> Produced:
            answer = self.ask(ApiKey.PRODUCE, request, version)
            (got,) = answer.responses[0].partition_responses
            return Produced(
                got.error_code,
                got.base_offset,
                got.log_append_time_ms,
                got.log_start_offset,
                tuple(error.batch_index for error in got.record_errors or ()),
            )

        return _settle(attempt, lambda got: got.error, topic, must_settle=False)

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        *,
        partition: int = 0,
        version: int = 11,
        isolation: int = 0,
        max_bytes: int = 1 << 25,
        topic_id: bytes = bytes(16),
    ) -> Fetched:
        """One Fetch that does not wait."""
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
        )
        answer = self.ask(ApiKey.FETCH, request, version)
        if not answer.responses:
            return Fetched(answer.error_code, -1, -1, -1, (), b"")
        (got,) = answer.responses[0].partitions
        aborted = tuple((a.producer_id, a.first_offset) for a in got.aborted_transactions or ())
        return Fetched(
            got.error_code,
            got.high_watermark,
            got.last_stable_offset,
            got.log_start_offset,
            aborted,
            bytes(got.records or b""),
        )

    def fetch_all(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 11
    ) -> list[Seen]:
        """Every record from `offset` on."""
        seen: list[Seen] = []
        while True:
            got = self.fetch(topic, offset, partition=partition, version=version)
            assert got.error == ErrorCode.NONE, (topic, got)
            entries = list(scan_entries(got.records))
            if not entries:
                return seen
            seen += [record for record in got.seen() if record.offset >= offset]
            offset = entries[-1].last_offset + 1

    def offset_at(
        self,
        topic: str,
        timestamp: int,
        *,
        partition: int = 0,
        version: int = 4,
        isolation: int = 0,
    ) -> Found:
        """ListOffsets (v1 and up) for one time or one of the special values."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )

        def attempt() -> Found:
            (got,) = self.ask(ApiKey.LIST_OFFSETS, request, version).topics[0].partitions
            return Found(got.error_code, got.timestamp, got.offset, got.leader_epoch)

        return _settle(attempt, lambda found: found.error, topic, must_settle=False)

    def offsets_before(
        self, topic: str, timestamp: int, count: int, *, partition: int = 0
    ) -> tuple[int, list[int]]:
        """ListOffsets v0: the error and the offsets."""
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, max_num_offsets=count
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
        )

        def attempt() -> tuple[int, list[int]]:
            (got,) = self.ask(ApiKey.LIST_OFFSETS, request, 0).topics[0].partitions
            return got.error_code, list(got.old_style_offsets)

        return _settle(attempt, lambda found: found[0], topic, must_settle=False)

    def delete_before(self, topic: str, offset: int, *, partition: int = 0) -> None:
        """DeleteRecords."""
        asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=10_000
        )
        (got,) = self.ask(ApiKey.DELETE_RECORDS, request, 1).topics[0].partitions
        assert got.error_code == ErrorCode.NONE, got

    def topics(self) -> dict[str, tuple[bytes, int]]:
        """Name to id and number of partitions, internal topics included."""
        answer = self.ask(ApiKey.METADATA, MetadataRequest(topics=None), 12)
        return {
            topic.name: (topic.topic_id, len(topic.partitions))
            for topic in answer.topics
            if topic.error_code == ErrorCode.NONE
        }

    def cluster_id(self) -> str:
        """The cluster's id."""
        return str(self.ask(ApiKey.METADATA, MetadataRequest(topics=[]), 9).cluster_id)

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings that the topic has of its own."""
        own_topic_setting = 1
        resource = DescribeConfigsResource(
            resource_type=RESOURCE_TOPIC, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])
        (result,) = self.ask(ApiKey.DESCRIBE_CONFIGS, request, 2).results
        assert result.error_code == ErrorCode.NONE, result.error_message
        return {
            entry.name: str(entry.value)
            for entry in result.configs
            if entry.config_source == own_topic_setting
        }

    def commit(
        self, group: str, topic: str, offset: int, metadata: str, partition: int = 0
    ) -> None:
        """Commit an offset as a consumer without a group membership does."""
        self.find_coordinator(group)
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[asked])],
        )

        def attempt() -> int:
            answer = self.ask(ApiKey.OFFSET_COMMIT, request, 6)
            return int(answer.topics[0].partitions[0].error_code)

        _settle(attempt, lambda error: error, group)

    def committed(self, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """All committed offsets of a group."""
        self.find_coordinator(group)

        def attempt() -> Any:
            request = OffsetFetchRequest(group_id=group, topics=None)
            return self.ask(ApiKey.OFFSET_FETCH, request, 5)

        answer = _settle(attempt, lambda got: got.error_code, group)
        return {
            (topic.name, got.partition_index): (got.committed_offset, got.metadata or "")
            for topic in answer.topics
            for got in topic.partitions
        }

    def ask_settled(
        self, api_key: ApiKey, message: Any, version: int, error_of: Callable[[Any], int]
    ) -> Any:
        """As `ask`, repeated while a coordinator is not there yet or busy; no error is left."""
        return _settle(lambda: self.ask(api_key, message, version), error_of, api_key.name)

    def find_coordinator(self, group: str, key_type: int = 0) -> None:
        """Kafka makes its internal topic when it is first asked for; `key_type` 1: transactions."""
        request = FindCoordinatorRequest(key=group, key_type=key_type)
        _settle(
            lambda: self.ask(ApiKey.FIND_COORDINATOR, request, 1),
            lambda answer: answer.error_code,
            group,
        )


def _settle(
    attempt: Callable[[], _T],
    error_of: Callable[[_T], int],
    what: str,
    *,
    must_settle: bool = True,
) -> _T:
    """The result of the first attempt whose error is not one that passes by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        result = attempt()
        error = error_of(result)
        if error not in _SETTLING or (time.monotonic() > deadline and not must_settle):
            assert error == ErrorCode.NONE or not must_settle, (what, ErrorCode(error))
            return result
        assert time.monotonic() < deadline, f"{what}: {ErrorCode(error)} for {PATIENCE_S} s"
        time.sleep(0.1)
