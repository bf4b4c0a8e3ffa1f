"""What each answer means for a batch, against a broker that says what the test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.aio.batches import Batch, Delivery
from client.aio.sender import Sender, SenderOptions
from client.core.identity import ProducerIdentity
from client.errors import BrokerRefused, BrokerUnreachable, ClientBroken, ClientError, Denied
from client.types import TopicPartition
from protocol.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.error_codes import ErrorCode
from protocol.records.batch import RecordBatch
from protocol.records.record import Record
from protocol.records.scan import iter_records

TP = TopicPartition("t", 0)
LOST = BrokerUnreachable("the connection broke")

Answer = ErrorCode | BrokerUnreachable


class FakeBroker:
    """Cluster and connection in one: notes every batch and answers from a script, then well."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.sent: list[tuple[int, int, list[bytes | None]]] = []
        self.address = "fake:1"
        self.next_offset = 0
        self.ids = 0
        self.record_errors: list[BatchIndexAndErrorMessage] = []

    async def leader(self, partition: TopicPartition) -> int:
        return 1

    async def connection(self, node_id: int) -> "FakeBroker":
        return self

    async def drained(self) -> None:
        return

    def forget_topic(self, name: str) -> None:
        return

    def denied(self, operation: str, topic: str) -> Denied:
        return Denied(user="alice", proof="", operation=operation, topic=topic)

    def version_of(self, key: int, **_: int) -> int:
        return 9

    def send_unanswered(self, request: ProduceRequest, key: int, version: int) -> None:
        self._note(request)

    async def send(
        self, request: ProduceRequest, key: int, version: int, *, timeout_ms: int
    ) -> ProduceResponse:
        self._note(request)
        # Long enough for the next batches to follow before the answer comes.
        await asyncio.sleep(0.005)
        answer = self.script.pop(0) if self.script else ErrorCode.NONE
        if isinstance(answer, BrokerUnreachable):
            raise answer
        result = PartitionProduceResponse(index=0, error_code=answer, base_offset=self.next_offset)
        result.record_errors = self.record_errors
        self.next_offset += 10
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[result])]
        )

    def _note(self, request: ProduceRequest) -> None:
        data = request.topic_data[0].partition_data[0].records
        assert data is not None
        view = RecordBatch(memoryview(data))
        contents = [record.value for record in iter_records(data)]
        self.sent.append((view.producer_id, view.base_sequence, contents))


class FakeIdentity(ProducerIdentity):
    """An identity that counts up instead of asking."""

    def __init__(self) -> None:
        self.producer_id, self.producer_epoch = 100, 0
        self.is_stale = False
        self.transactional_id = None

    async def acquire(self) -> None:
        self.producer_id += 1
        self.is_stale = False


@asynccontextmanager
async def sending(
    broker: FakeBroker, *, idempotent: bool = True, **options: Any
) -> AsyncIterator[Callable[[bytes], Delivery]]:
    """A sender, as a function that queues one value; each value fills a batch."""
    settled: list[Batch] = []
    cluster: Any = broker
    settings = SenderOptions(linger_ms=0, batch_bytes=1, retry_backoff_ms=1, **options)
    identity = FakeIdentity() if idempotent else None
    sender = Sender(cluster, settings, identity, settled.append)
    sender.start()

    def send(value: bytes) -> Delivery:
        delivery = sender.queue(TP).append(
            Record(0, 1, None, value),
            10,
            limit_bytes=1,
            now=asyncio.get_running_loop().time(),
        )
        sender.wake()
        return delivery

    try:
        yield send
    finally:
        await sender.close()


def values(broker: FakeBroker) -> list[bytes | None]:
    return [value for _, _, contents in broker.sent for value in contents]


async def test_a_good_answer_tells_the_offset() -> None:
    broker = FakeBroker()
    async with sending(broker) as send:
        assert (await send(b"a")).offset == 0
        assert (await send(b"b")).offset == 10
    assert [(identity, sequence) for identity, sequence, _ in broker.sent] == [(100, 0), (100, 1)]


@pytest.mark.parametrize("answer", [ErrorCode.NOT_LEADER_OR_FOLLOWER, LOST])
async def test_what_may_succeed_later_is_sent_again_as_it_was(answer: Answer) -> None:
    broker = FakeBroker(answer)
    async with sending(broker) as send:
        await send(b"a")
    assert broker.sent == [(100, 0, [b"a"]), (100, 0, [b"a"])]


async def test_several_under_way_keep_their_order_when_the_first_is_lost() -> None:
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker = FakeBroker(ErrorCode.NONE, LOST, out_of_order, out_of_order)
    async with sending(broker) as send:
        await send(b"first")
        await asyncio.gather(*[send(value) for value in (b"a", b"b", b"c")])
    assert values(broker) == [b"first", *[b"a", b"b", b"c"] * 2]
    assert [sequence for _, sequence, _ in broker.sent] == [0, *[1, 2, 3] * 2]


async def test_the_first_batch_of_a_partition_goes_alone() -> None:
    broker = FakeBroker(LOST)
    async with sending(broker) as send:
        await asyncio.gather(send(b"a"), send(b"b"))
    assert values(broker) == [b"a", b"a", b"b"]


async def test_without_numbers_only_one_is_under_way() -> None:
    broker = FakeBroker(LOST)
    async with sending(broker, idempotent=False) as send:
        await asyncio.gather(send(b"a"), send(b"b"))
    assert values(broker) == [b"a", b"a", b"b"]


async def test_a_refused_batch_fails_and_the_next_takes_its_number() -> None:
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker = FakeBroker(ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, out_of_order)
    async with sending(broker) as send:
        await send(b"first")
        bad, good = send(b"huge"), send(b"small")
        with pytest.raises(BrokerRefused, match="MESSAGE_TOO_LARGE"):
            await bad
        await good
    assert broker.sent[-1] == (100, 1, [b"small"])


async def test_a_duplicate_is_a_success_without_an_offset() -> None:
    broker = FakeBroker(LOST, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    async with sending(broker) as send:
        assert (await send(b"a")).offset == -1


async def test_a_broker_that_forgot_the_producer_gets_a_new_one() -> None:
    broker = FakeBroker(ErrorCode.NONE, ErrorCode.UNKNOWN_PRODUCER_ID)
    async with sending(broker) as send:
        await send(b"a")
        await send(b"b")
    assert [(identity, sequence) for identity, sequence, _ in broker.sent] == [
        (100, 0),
        (100, 1),
        (101, 0),
    ]


async def test_time_up_with_unknown_fate_says_so_and_takes_a_new_identity() -> None:
    broker = FakeBroker(*[LOST] * 1000)
    async with sending(broker, delivery_timeout_ms=30) as send:
        with pytest.raises(
            BrokerUnreachable, match=r"may or may not be stored\. The last error was: \w+"
        ):
            await send(b"a")
        broker.script.clear()
        await send(b"b")
    assert broker.sent[-1] == (101, 0, [b"b"])


async def test_time_up_after_refusals_names_the_last_one() -> None:
    broker = FakeBroker(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000)
    async with sending(broker, delivery_timeout_ms=30) as send:
        # Whether it may be stored depends on a request that may be under way just then.
        last = r"\. The last error was: producing to t-0: NOT_LEADER_OR_FOLLOWER"
        with pytest.raises(BrokerUnreachable, match=last):
            await send(b"a")


async def test_what_waits_for_a_batch_of_unknown_fate_is_sent_by_itself() -> None:
    """Nothing else happens then: the sender has to wake itself."""
    broker = FakeBroker(*[LOST] * 1000)
    async with sending(broker, delivery_timeout_ms=200) as send:
        first = send(b"a")
        await asyncio.sleep(0.1)
        second = send(b"b")
        with pytest.raises(BrokerUnreachable, match="may or may not be stored"):
            await first
        broker.script.clear()
        async with asyncio.timeout(2):
            await second
    assert broker.sent[-1] == (101, 0, [b"b"])


async def test_records_errors_name_the_guilty() -> None:
    broker = FakeBroker(ErrorCode.INVALID_TIMESTAMP)
    broker.record_errors = [
        BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="a year ahead")
    ]
    async with sending(broker) as send:
        with pytest.raises(BrokerRefused, match="a year ahead"):
            await send(b"a")


async def test_acks_0_is_settled_when_written() -> None:
    broker = FakeBroker()
    async with sending(broker, idempotent=False, acks=0) as send:
        assert (await send(b"a")).offset == -1


async def test_closing_fails_what_is_unsettled() -> None:
    broker = FakeBroker(*[LOST] * 1000)
    async with sending(broker) as send:
        delivery = send(b"a")
        await asyncio.sleep(0.01)
    with pytest.raises(ClientError, match="closed"):
        await delivery


class SilentBroker(FakeBroker):
    """Answers nothing; whatever `stuck` names never returns."""

    def __init__(self, stuck: str) -> None:
        super().__init__()
        self.stuck = stuck

    async def _wait(self, what: str) -> None:
        if self.stuck == what:
            await asyncio.Event().wait()

    async def leader(self, partition: TopicPartition) -> int:
        await self._wait("leader")
        return await super().leader(partition)

    async def connection(self, node_id: int) -> FakeBroker:
        await self._wait("connection")
        return self

    async def drained(self) -> None:
        await self._wait("drained")

    async def send(
        self, request: ProduceRequest, key: int, version: int, *, timeout_ms: int
    ) -> ProduceResponse:
        await self._wait("answer")
        return await super().send(request, key, version, timeout_ms=timeout_ms)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("stuck", ["leader", "connection", "drained", "answer"])
async def test_no_record_waits_longer_than_its_time_whatever_is_stuck(
    stuck: str, idempotent: bool
) -> None:
    """A request that was under way used to be waited for until it timed out by itself."""
    broker = SilentBroker(stuck)
    async with sending(broker, idempotent=idempotent, delivery_timeout_ms=50) as send:
        async with asyncio.timeout(10):
            with pytest.raises(BrokerUnreachable, match="not acknowledged within 50 ms"):
                await send(b"a")
        if stuck != "leader":
            # The sender is not stuck with it.
            broker.stuck = ""
            async with asyncio.timeout(10):
                await send(b"b")
            assert values(broker)[-1] == b"b"


async def test_a_late_answer_to_what_was_given_up_changes_nothing() -> None:
    broker = FakeBroker()
    release = asyncio.Event()
    send_now = broker.send

    async def send_late(*args: Any, **options: Any) -> ProduceResponse:
        await release.wait()
        return await send_now(*args, **options)

    broker.send = send_late  # type: ignore[method-assign]
    # Long enough for a slow machine to begin with the sending.
    async with sending(broker, delivery_timeout_ms=1_000) as send:
        with pytest.raises(BrokerUnreachable, match="may or may not be stored"):
            await send(b"a")
        release.set()
        while len(broker.sent) < 1:
            await asyncio.sleep(0.01)
        # Its answer comes 5 ms after it was sent.
        await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            await send(b"b")
    assert broker.sent[-1] == (101, 0, [b"b"])


@pytest.mark.parametrize("place", ["leader", "send"])
async def test_a_defect_fails_what_waits_and_every_later_record(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end the task in silence, and everybody waited for ever."""
    broker = FakeBroker()

    async def planted(*_: object, **__: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(broker, place, planted)
    async with sending(broker) as send, asyncio.timeout(10):
        first, second = send(b"a"), send(b"b")
        for delivery in (first, second):
            with pytest.raises(ClientBroken, match="KeyError: 'planted'") as caught:
                await delivery
            assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(ClientBroken):
            send(b"c")


async def test_a_refusal_for_size_says_the_sizes() -> None:
    broker = FakeBroker(ErrorCode.MESSAGE_TOO_LARGE)
    async with sending(broker) as send:
        with pytest.raises(BrokerRefused, match=r"the batch has \d+ bytes, its largest .* about 5"):
            await send(b"12345")


async def test_a_refusal_for_times_says_how_many_and_the_first_ones_time() -> None:
    broker = FakeBroker(ErrorCode.INVALID_TIMESTAMP)
    broker.record_errors = [
        BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="a year ahead")
    ]
    async with sending(broker) as send:
        delivery = send(b"a")
        async with asyncio.timeout(10):
            await delivery._batch.settled()
    words = "1 of 1 records in the batch are refused, the first, which has the time 19"
    assert words in str(delivery._batch.error)
    assert str(delivery._batch.error).count("a year ahead") == 1
