"""Idempotent and transactional producers over the wire, request by request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from broker.transactions.state import TxnSnapshot
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.describe_producers import DescribeProducersRequest
from protocol.api.describe_transactions import DescribeTransactionsRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.api.list_transactions import ListTransactionsRequest
from protocol.api.offset_fetch import OffsetFetchRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.api.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.scan import iter_records, scan_entries
from protocol.structs import NamedIndexes, PartitionIndexes
from tests.support.broker import RawClient, RunningBroker, batch, running_broker

NONE = ErrorCode.NONE
READ_COMMITTED = 1


class Session:
    """One client with one producer identity."""

    def __init__(self, client: RawClient, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.sequences: dict[int, int] = {}
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0

    @classmethod
    async def open(cls, broker: RunningBroker, *, creating: bool = True) -> Session:
        client = await broker.client()
        if creating:
            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
            await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 2)
        return cls(client)

    async def init(self, name: str | None = "x", version: int = 4, **fields: Any) -> int:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, **fields
        )
        response = await self.client.request(request, version)
        if response.error_code == NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return int(response.error_code)

    async def produce(
        self, *values: str, partition: int = 0, sequence: int | None = None, **fields: Any
    ) -> tuple[int, int]:
        """(error, base offset)."""
        records = batch(
            *values,
            timestamp=time.time_ns() // 1_000_000,
            producer_id=self.producer_id,
            producer_epoch=fields.pop("epoch", self.epoch),
            base_sequence=self.sequence if sequence is None else sequence,
            **fields,
        )
        data = PartitionProduceData(index=partition, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[topic]
        )
        response = await self.client.request(request, 7)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == NONE and sequence is None:
            self.sequence += len(values)
        return answer.error_code, answer.base_offset

    async def add(self, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[NamedIndexes(name=topic, partitions=list(partitions))],
        )
        response = await self.client.request(request, version)
        (found,) = response.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    async def end(self, *, is_commit: bool = True, version: int = 3) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        return int((await self.client.request(request, version)).error_code)

    async def commit_offset(self, offset: int, version: int = 3) -> tuple[int, int]:
        added = await self.client.request(
            AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id="g",
            ),
            version,
        )
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        committed = await self.client.request(
            TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id="g",
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            ),
            version,
        )
        return added.error_code, committed.topics[0].partitions[0].error_code

    async def read(self, partition: int = 0, isolation: int = READ_COMMITTED) -> list[str]:
        """What a consumer that drops aborted records sees."""
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic="t", partitions=[asked])],
        )
        answer = (await self.client.request(request, 11)).responses[0].partitions[0]
        assert answer.error_code == NONE
        waiting = sorted(
            (each.first_offset, each.producer_id) for each in answer.aborted_transactions or []
        )
        aborted: set[int] = set()
        values: list[str] = []
        records = answer.records or b""
        for entry in scan_entries(records):
            while waiting and waiting[0][0] <= entry.base_offset:
                aborted.add(waiting.pop(0)[1])
            if entry.is_control:
                aborted.discard(entry.producer_id)
            elif entry.producer_id not in aborted:
                found = iter_records(records, entry.position)
                values += [record.value.decode() for record in found if record.value]
        return values

    async def offset(self, *, require_stable: bool = False) -> tuple[int, int]:
        topics = [PartitionIndexes(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=require_stable)
        (partition,) = (await self.client.request(request, 7)).topics[0].partitions
        return partition.error_code, partition.committed_offset


# -- idempotence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].max + 1))
async def test_is_an_idempotent_producer_given_an_id(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        assert await session.init(None, version) == NONE
        first = session.producer_id
        assert await session.init(None, version) == NONE
        assert (session.producer_id != first, session.epoch) == (True, 0)


async def test_is_a_producer_id_ever_given_twice(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        async with running_broker(tmp_path) as broker:
            session = await Session.open(broker)
            await session.init(None)
            given.append(session.producer_id)
    assert len(set(given)) == 3


async def test_does_a_resend_get_its_old_offset_also_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init(None)
        assert await session.produce("a", "b") == (NONE, 0)
        assert await session.produce("c") == (NONE, 2)
        assert await session.produce("a", "b", sequence=0) == (NONE, 0)
        gap = await session.produce("z", sequence=9)
        assert gap[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    async with running_broker(tmp_path) as broker:
        session.client = await broker.client()
        assert await session.produce("c", sequence=2) == (NONE, 2)
        assert await session.produce("d", sequence=3) == (NONE, 3)
        assert await session.read() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("name", "fields"), [("", {}), ("x", {"producer_id": 5}), ("x", {"producer_epoch": 5})]
)
async def test_is_a_senseless_identity_refused(
    tmp_path: Path, name: str, fields: dict[str, int]
) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        assert await session.init(name, **fields) == ErrorCode.INVALID_REQUEST


# -- transactions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_is_a_committed_transaction_visible(tmp_path: Path, version: int) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init(version=version)
        assert await session.add(0, 1, version=version) == [NONE, NONE]
        for partition in (0, 1):
            written = await session.produce(
                "v", partition=partition, sequence=0, is_transactional=True
            )
            assert written == (NONE, 0)
            assert await session.read(partition) == []
            assert await session.read(partition, isolation=0) == ["v"]
        assert await session.end(version=version) == NONE
        assert [await session.read(partition) for partition in (0, 1)] == [["v"], ["v"]]


async def test_is_an_aborted_transaction_invisible(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        for value, is_commit in (("a", True), ("b", False), ("c", True)):
            await session.add(0)
            assert (await session.produce(value, is_transactional=True))[0] == NONE
            assert await session.end(is_commit=is_commit) == NONE
        assert await session.read() == ["a", "c"]
        assert await session.read(isolation=0) == ["a", "b", "c"]


async def test_where_does_an_open_transaction_stop_readers(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        other = await Session.open(broker, creating=False)
        await other.init(None)
        await other.produce("before")
        await session.init()
        await session.add(0)
        await session.produce("mine", is_transactional=True)
        await other.produce("after")
        assert await session.read() == ["before"]
        latest = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        )
        answer = await session.client.request(latest, 2)
        assert answer.topics[0].partitions[0].offset == 1
        await session.end()
        assert await session.read() == ["before", "mine", "after"]


async def test_may_records_come_before_their_partition_was_added(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        refused = await session.produce("v", is_transactional=True)
        assert refused[0] == ErrorCode.INVALID_TXN_STATE
        await session.add(0)
        await session.produce("v", is_transactional=True)
        await session.end()
        late = await session.produce("late", is_transactional=True)
        assert late[0] == ErrorCode.INVALID_TXN_STATE
        assert await session.read(isolation=0) == ["v"]


@pytest.mark.parametrize(
    ("version", "fenced"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")]
)
async def test_what_hears_a_fenced_producer(tmp_path: Path, version: int, fenced: str) -> None:
    async with running_broker(tmp_path) as broker:
        old, new = await Session.open(broker), await Session.open(broker, creating=False)
        await old.init()
        await old.add(0)
        await old.produce("old", is_transactional=True)
        assert await new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        while (error := await new.init()) != NONE:
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS, "the abort is under way"
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
        assert await old.add(0, version=version) == [ErrorCode[fenced]]
        assert await old.end(version=version) == ErrorCode[fenced]
        zombie = await old.produce("zombie", is_transactional=True)
        assert zombie[0] == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await new.read() == []
        expected: dict[str, Any] = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
        assert await old.init(version=3, **expected) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.init(version=4, **expected) == ErrorCode.PRODUCER_FENCED


async def test_is_adding_all_or_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        assert await session.add(0, 7) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await session.end() == ErrorCode.INVALID_TXN_STATE
        assert await session.add(0, topic="__consumer_offsets") == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 42), (False, -1)])
async def test_do_offsets_share_the_fate_of_the_records(
    tmp_path: Path, is_commit: bool, offset: int
) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        assert await session.commit_offset(42) == (NONE, NONE)
        assert await session.offset() == (NONE, -1)
        unstable = await session.offset(require_stable=True)
        assert unstable == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await session.end(is_commit=is_commit) == NONE
        assert await session.offset(require_stable=True) == (NONE, offset)
    async with running_broker(tmp_path) as broker:
        session.client = await broker.client()
        assert await session.offset(require_stable=True) == (NONE, offset)


async def test_may_a_fenced_producer_commit_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        session.epoch -= 1
        assert await session.commit_offset(42) == (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )


@pytest.mark.parametrize("is_commit", [True, False])
async def test_does_an_open_transaction_survive_a_restart(tmp_path: Path, is_commit: bool) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await session.add(0)
        await session.produce("before", is_transactional=True)
    async with running_broker(tmp_path) as broker:
        session.client = await broker.client()
        assert await session.read() == []
        assert (await session.produce("after", is_transactional=True))[0] == NONE
        assert await session.end(is_commit=is_commit) == NONE
        assert await session.read() == (["before", "after"] if is_commit else [])
        assert await session.end(is_commit=is_commit) == NONE, "a retry is answered the same"


# -- administration --------------------------------------------------------------------------------


async def test_are_transactions_described_and_listed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await session.add(1, 0)
        asked = DescribeTransactionsRequest(transactional_ids=["x", "y", ""])
        found, missing, empty = (await session.client.request(asked, 0)).transaction_states
        assert (found.transaction_state, found.producer_id) == ("Ongoing", session.producer_id)
        assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 1])]
        assert found.transaction_start_time_ms > 0
        assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST
        for filters, names in (
            ({}, ["x"]),
            ({"state_filters": ["Ongoing", "Nonsense"]}, ["x"]),
            ({"state_filters": ["Empty"]}, []),
            ({"producer_id_filters": [session.producer_id]}, ["x"]),
            ({"producer_id_filters": [session.producer_id + 1]}, []),
            ({"duration_filter": 3_600_000}, []),
            ({"transactional_id_pattern": "[xyz]"}, ["x"]),
            ({"transactional_id_pattern": "y.*"}, []),
        ):
            request = ListTransactionsRequest(**filters)
            response = await session.client.request(request, 2)
            assert [each.transactional_id for each in response.transaction_states] == names
            unknown = ["Nonsense"] if "Nonsense" in str(filters) else []
            assert response.unknown_state_filters == unknown
        broken = ListTransactionsRequest(transactional_id_pattern="(")
        response = await session.client.request(broken, 2)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_no_pattern_of_ids_holds_the_broker_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        assert await session.init("a" * 25 + "!") == NONE
        request = ListTransactionsRequest(transactional_id_pattern="(a+)+")
        begin = time.process_time()
        response = await session.client.request(request, 2)
        assert (response.error_code, response.transaction_states) == (NONE, [])
        assert time.process_time() - begin < 0.2, "Python's re takes a second, twice that for 26"


async def test_can_a_hanging_transaction_be_found_and_aborted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        session = await Session.open(broker)
        await session.init()
        await session.add(0)
        await session.produce("stuck", is_transactional=True)
        asked = DescribeProducersRequest(
            topics=[PartitionIndexes(name="t", partition_indexes=[0, 9])]
        )
        found, missing = (await session.client.request(asked, 0)).topics[0].partitions
        (producer,) = found.active_producers
        assert (producer.producer_id, producer.last_sequence) == (session.producer_id, 0)
        assert producer.current_txn_start_offset == 0
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        marker = WritableTxnMarker(
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            transaction_result=False,
            topics=[PartitionIndexes(name="t", partition_indexes=[0, 9])],
            coordinator_epoch=0,
        )
        response = await session.client.request(WriteTxnMarkersRequest(markers=[marker]), 1)
        errors = [each.error_code for each in response.markers[0].topics[0].partitions]
        assert errors == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await session.read() == []
        found = (await session.client.request(asked, 0)).topics[0].partitions[0]
        assert found.active_producers[0].current_txn_start_offset == -1


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_of_an_operator_settles_offsets_as_a_restart_does(
    tmp_path: Path, is_commit: bool
) -> None:
    expected = 5 if is_commit else -1
    async with running_broker(tmp_path / "data") as broker:
        session = await Session.open(broker)
        assert await session.init() == NONE
        assert await session.commit_offset(5) == (NONE, NONE)
        _, partition = broker.broker.groups.offsets_partition("g")
        marker = WritableTxnMarker(
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            transaction_result=is_commit,
            topics=[PartitionIndexes(name="__consumer_offsets", partition_indexes=[partition])],
            coordinator_epoch=0,
        )
        response = await session.client.request(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert response.markers[0].topics[0].partitions[0].error_code == NONE
        assert not broker.broker.groups.offsets.table.is_unstable("g", ("t", 0))
        assert (await session.offset())[1] == expected
        assert await session.end(is_commit=not is_commit) == NONE
        assert (await session.offset())[1] == expected
    async with running_broker(tmp_path / "data") as broker:
        again = await Session.open(broker, creating=False)
        assert (await again.offset())[1] == expected


async def test_transactions_survive_the_compaction_of_their_topic(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "transaction_state_log_segment_bytes": "2000",
        "transaction_state_log_num_partitions": "1",
    }
    async with running_broker(tmp_path / "data", **settings) as broker:
        done = await Session.open(broker)
        for number in range(20):
            assert await done.init() == NONE
            assert await done.add(0) == [NONE]
            assert (await done.produce(f"done-{number}", is_transactional=True))[0] == NONE
            assert await done.end(is_commit=number % 2 == 0) == NONE
        still_open = await Session.open(broker, creating=False)
        still_open.name = "y"
        assert await still_open.init("y") == NONE
        assert await still_open.add(1) == [NONE]
        assert (await still_open.produce("open", partition=1, is_transactional=True))[0] == NONE
        log = broker.broker.topics.led_log("__transaction_state", 0)
        assert len(log.segments) > 3
        size, before = log.size_bytes, known(broker)
        await broker.broker.jobs.run_now("cleaner")
        assert log.size_bytes < size / 2
        committed = await done.read()
    async with running_broker(tmp_path / "data", **settings) as broker:
        assert known(broker) == before
        assert [snapshot.state.name for snapshot in before] == ["COMPLETE_ABORT", "ONGOING"]
        again = await Session.open(broker, creating=False)
        assert await again.read() == committed == [f"done-{n}" for n in range(0, 20, 2)]
        assert await again.init() == NONE
        assert (again.producer_id, again.epoch) == (done.producer_id, done.epoch + 1)
        still_open.client = await broker.client()
        assert await still_open.read(partition=1) == []
        assert await still_open.end() == NONE
        assert await still_open.read(partition=1) == ["open"]


def known(broker: RunningBroker) -> list[TxnSnapshot]:
    """What the coordinator knows, by transactional id."""
    return sorted(broker.broker.transactions.snapshots(), key=lambda one: one.transactional_id)
