"""The blocking producer and consumer: what they do, and that no call waits for ever."""

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tidelog import (
    BlockingConsumer,
    BlockingProducer,
    BrokerRefused,
    BrokerUnreachable,
    ConsumerStatistics,
    InvalidType,
    InvalidUse,
    ListenerFailed,
    TopicPartition,
)
from tidelog.serde import json_deserializer, json_serializer
from tidelog.testing import RunningBroker, running_broker

TP = TopicPartition("t", 0)
NOON_MS = 1_372_953_600_000
LIMIT_S = 60


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A process of its own: a blocking call holds the loop of a broker in this one."""
    with running_broker(settings={"log.retention.ms": "-1"}) as server:
        yield server


def fill(broker: RunningBroker, count: int) -> None:
    with BlockingProducer(broker.bootstrap) as producer:
        for n in range(count):
            producer.send("t", b"%d" % n, timestamp_ms=NOON_MS + n * 1000)


def read(consumer: BlockingConsumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.getmany(max_records=count - len(found)).values():
            found += [int(record.value or b"") for record in records]
    return found


def test_records_are_stored_and_read(broker: RunningBroker) -> None:
    with BlockingProducer(broker.bootstrap, linger_ms=0) as producer:
        delivery = producer.send("t", b"0", timestamp_ms=NOON_MS)
        assert delivery.result(timeout_ms=LIMIT_S * 1000).offset == 0
        assert delivery.is_done
        assert delivery.result().time == datetime(2013, 7, 4, 16, tzinfo=UTC)
        assert producer.send_and_wait("t", b"1").offset == 1
        assert producer.partitions("t") == [0]
        assert producer.statistics().records_stored == 2
    with BlockingConsumer("t", bootstrap=broker.bootstrap, start="earliest") as consumer:
        assert [int((next(consumer)).value or b"") for _ in range(2)] == [0, 1]
        assert consumer.assignment() == {TP}
        assert consumer.position(TP) == 2
        assert consumer.lag(TP) == 0
        assert consumer.getmany(timeout_ms=0) == {}
        consumer.seek(TP, 1)
        assert read(consumer, 1) == [1]
        assert consumer.end_offsets([TP]) == {TP: 2}


def test_a_span_of_time_is_read_and_ends(broker: RunningBroker) -> None:
    fill(broker, 10)
    with BlockingConsumer("t", bootstrap=broker.bootstrap) as consumer:
        found = list(consumer.between(NOON_MS + 3000, NOON_MS + 6000))
        assert [record.value for record in found] == [b"3", b"4", b"5"]
        window = consumer.between(NOON_MS, NOON_MS + 9000)
        assert next(iter(window)).value == b"0"


def test_positions_of_a_group_are_kept(broker: RunningBroker) -> None:
    fill(broker, 10)
    with BlockingConsumer(
        "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
    ) as consumer:
        assert read(consumer, 4) == [0, 1, 2, 3]
        consumer.commit()
        assert consumer.committed(TP)[TP].offset == 4
    with BlockingConsumer(
        "t", bootstrap=broker.bootstrap, group_id="g", start="earliest"
    ) as consumer:
        assert read(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_a_transaction_is_all_or_nothing(broker: RunningBroker) -> None:
    with BlockingProducer(broker.bootstrap, transactional_id="tx") as producer:
        with producer.transaction():
            producer.send("t", b"1")
        with contextlib.suppress(OSError), producer.transaction():
            producer.send("t", b"2")
            raise OSError("no")
        with producer.transaction():
            producer.send("t", b"3")
            producer.send_offsets({TP: 7}, "g")
    with BlockingConsumer(
        "t",
        bootstrap=broker.bootstrap,
        isolation="read_committed",
        start="earliest",
        group_id="g2",
    ) as consumer:
        assert read(consumer, 2) == [1, 3]


def test_a_listener_may_use_the_consumer(broker: RunningBroker) -> None:
    fill(broker, 3)
    positions: list[object] = []

    def assigned(partitions: frozenset[TopicPartition]) -> None:
        positions.append(consumer.committed(*partitions))
        with pytest.raises(InvalidUse, match="cannot close its own"):
            consumer.close()

    def revoked(_: frozenset[TopicPartition]) -> None:
        consumer.commit()

    consumer = BlockingConsumer(
        "t",
        bootstrap=broker.bootstrap,
        group_id="g",
        start="earliest",
        auto_commit=False,
        on_assigned=assigned,
        on_revoked=revoked,
    )
    with consumer:
        assert read(consumer, 3) == [0, 1, 2]
    assert positions == [{}]
    with BlockingConsumer(bootstrap=broker.bootstrap, group_id="g") as after:
        assert after.committed(TP)[TP].offset == 3


def test_statistics_are_reported(broker: RunningBroker) -> None:
    fill(broker, 3)
    seen: list[ConsumerStatistics] = []
    with BlockingConsumer(
        "t",
        bootstrap=broker.bootstrap,
        start="earliest",
        on_statistics=seen.append,
        statistics_interval_ms=20,
    ) as consumer:
        read(consumer, 3)
        deadline = time.monotonic() + LIMIT_S
        while not (seen and seen[-1].records == 3) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert seen[-1].records == 3
    assert seen[-1].lag == 0
    assert seen[-1].partitions[TP].position == 3
    assert seen[-1].bytes_fetched > 0


def test_a_listener_of_statistics_that_fails_is_reported(broker: RunningBroker) -> None:
    def fail(_: object) -> None:
        raise OSError("disk full")

    producer = BlockingProducer(broker.bootstrap, on_statistics=fail, statistics_interval_ms=10)
    producer.start()

    def flush_until_it_raises() -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            producer.flush()

    with pytest.raises(ListenerFailed, match="on_statistics raised OSError: disk full"):
        flush_until_it_raises()
    with pytest.raises(ListenerFailed):
        producer.close()


def test_errors_are_the_clients(broker: RunningBroker) -> None:
    with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC"):
        BlockingConsumer("missing", bootstrap=broker.bootstrap).start()
    with pytest.raises(BrokerUnreachable):
        BlockingProducer("127.0.0.1:1", request_timeout_ms=1000).start()
    with pytest.raises(InvalidUse, match="linger_ms"):
        BlockingProducer(broker.bootstrap, linger_ms=-1)
    with pytest.raises(TypeError, match="nonsense"):
        BlockingProducer(broker.bootstrap, nonsense=1)

    async def coroutine(_: object) -> None: ...

    with pytest.raises(InvalidType, match="a plain function"):
        BlockingConsumer("t", bootstrap=broker.bootstrap, on_assigned=coroutine)  # type: ignore[arg-type]


def test_what_is_not_open_says_so(broker: RunningBroker) -> None:
    consumer = BlockingConsumer("t", bootstrap=broker.bootstrap)
    with pytest.raises(InvalidUse, match="is not open: use `with`"):
        consumer.getmany()
    consumer.close()
    producer = BlockingProducer(broker.bootstrap)
    with producer:
        producer.send("t", b"1")
        with pytest.raises(InvalidUse, match="opened already"):
            producer.start()
    producer.close()
    with pytest.raises(InvalidUse, match="is not open"):
        producer.send("t", b"2")


def test_closing_ends_a_call_of_another_thread(broker: RunningBroker) -> None:
    fill(broker, 1)
    failures: list[InvalidUse] = []
    consumer = BlockingConsumer("t", bootstrap=broker.bootstrap)
    consumer.start()
    is_waiting = threading.Event()

    def wait() -> None:
        is_waiting.set()
        try:
            next(consumer)
        except InvalidUse as error:
            failures.append(error)

    reader = threading.Thread(target=wait)
    reader.start()
    assert is_waiting.wait(LIMIT_S)
    consumer.close()
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    assert len(failures) == 1


def test_a_forked_child_is_refused(broker: RunningBroker) -> None:
    with BlockingProducer(broker.bootstrap) as producer:
        producer.send_and_wait("t", b"1")
        with warnings.catch_warnings():
            # Of Python 3.12 on: that a fork with threads is what this test is about.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            try:
                producer.send("t", b"2")
            except InvalidUse as error:
                os._exit(0 if "after the fork" in str(error) else 2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send_and_wait("t", b"3")


def test_many_threads_send(broker: RunningBroker) -> None:
    with BlockingProducer(broker.bootstrap, value_serializer=json_serializer) as producer:

        def send(base: int) -> None:
            for n in range(50):
                producer.send("t", {"n": base + n})

        threads = [threading.Thread(target=send, args=(base * 50,)) for base in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with BlockingConsumer(
        "t", bootstrap=broker.bootstrap, start="earliest", value_deserializer=json_deserializer
    ) as consumer:
        found = sorted((next(consumer).value or {})["n"] for _ in range(200))
    assert found == list(range(200))
