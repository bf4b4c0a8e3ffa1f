"""Whatever a caller gets wrong is an error of the client's family, at once; nothing hangs.

Every call runs under a time limit, because the defect that this file is about was waiting for ever.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client import blocking
from client.admin import Admin
from client.aio import sender as sender_module
from client.aio.connection import LoopPool
from client.consumer import Consumer
from client.core import cluster as cluster_module
from client.core.cluster import Cluster, Role
from client.core.options import ClusterOptions
from client.errors import (
    AddressUnusable,
    BrokerRefused,
    BrokerUnreachable,
    ClientBroken,
    ClientError,
    InvalidType,
    InvalidUse,
    ListenerFailed,
    NameUnknown,
    NotThere,
)
from client.producer import Producer
from client.share_consumer import ShareConsumer
from client.types import TopicInfo, TopicPartition
from protocol.error_codes import ErrorCode
from tests.support.broker import RunningBroker, running_broker
from tests.support.kafka_peer import free_ports
from tests.support.requests import create_topic

LIMIT_S = 20
NOON_MS = 1_372_953_600_000
NOON = datetime(2013, 7, 4, 12, tzinfo=UTC) + timedelta(hours=4)


async def poll_for_ever(consumer: Consumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=100)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"value": "text"}, r"the value is a str.*encode it, 'text'\.encode\(\)"),
        ({"key": 5}, "the key is an int"),
        ({"headers": [("h", "text")]}, "the value of header 'h' is a str"),
        ({"headers": [(b"h", b"v")]}, "header name=b'h' is a bytes"),
        ({"headers": "ab"}, "are no pairs"),
        ({"topic": b"t"}, "topic=b't' is a bytes, and a str is wanted"),
        ({"topic": ["t"]}, "is a list, and a str is wanted"),
        ({"topic": ""}, "topic is empty"),
        ({"partition": "0"}, "partition='0' is not a whole number"),
        ({"partition": True}, "partition=True is not a whole number"),
        ({"partition": 7}, "t has no partition 7: it has 0 to 0"),
        ({"timestamp_ms": 1.5}, "1.5 is not a time"),
        ({"timestamp_ms": "now"}, "timestamp_ms='now' is text"),
        ({"timestamp_ms": -2}, "lies before 1970"),
        ({"timestamp_ms": 1_372_953_600}, "looks like seconds.*check_timestamps=False"),
        ({"timestamp_ms": datetime(2013, 7, 4)}, "has no zone"),
    ],
)
async def test_a_bad_argument_of_send_is_refused_and_the_producer_continues(
    broker: RunningBroker, arguments: dict[str, Any], sentence: str
) -> None:
    """It used to end the sender's task: this record, all later ones and `close` hung for ever."""
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"first")
        with pytest.raises(InvalidUse, match=sentence) as caught:
            await producer.send(**{"topic": "t", "value": b"", **arguments})
        is_of_type = "whole number" in sentence or "wanted" in sentence
        assert isinstance(caught.value, TypeError) >= is_of_type
        assert (await producer.send_and_wait("t", b"last")).offset == 1


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63 - 1, "x", True])
async def test_without_the_check_of_units_a_timestamp_still_has_to_fit(
    broker: RunningBroker, timestamp_ms: Any
) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with Producer(broker.bootstrap, check_timestamps=False) as producer:
            with pytest.raises(InvalidUse):
                await producer.send("t", b"", timestamp_ms=timestamp_ms)
            await producer.send_and_wait("t", b"", timestamp_ms=1_372_953_600)


async def test_a_defect_of_the_sender_fails_everything_instead_of_hanging(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S):
        producer = Producer(broker.bootstrap)
        await producer.start()
        await producer.send_and_wait("t", b"good")

        def planted(*_: object, **__: object) -> bytes:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(sender_module, "build_batch", planted)
        delivery = await producer.send("t", b"bad")
        with pytest.raises(ClientBroken, match="ZeroDivisionError: planted"):
            await delivery
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: producer.send("t", b"later"),
            producer.flush,
            producer.close,
        ]
        for call in calls:
            with pytest.raises(ClientBroken):
                await call()


async def test_a_broker_that_falls_silent_keeps_no_record_beyond_its_time(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request's own timeout, 30 s, used to decide."""
    async with asyncio.timeout(LIMIT_S):
        producer = Producer(broker.bootstrap, delivery_timeout_ms=300)
        await producer.start()
        await producer.send_and_wait("t", b"first")
        connection = await producer._cluster.connection(1)
        monkeypatch.setattr(connection, "_answer", lambda frame: None)
        delivery = await producer.send("t", b"unheard")
        with pytest.raises(BrokerUnreachable, match="within 300 ms; it may or may not be stored"):
            await delivery
        await producer.close(flush=False)


OPTIONS: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (Producer, {"linger_ms": -1}, "linger_ms=-1 is out of range: give 0 to"),
    (Producer, {"linger_ms": 500, "delivery_timeout_ms": 500}, "leaves no time to send"),
    (Producer, {"batch_bytes": 0}, "batch_bytes=0 is out of range: give 1 to"),
    (Producer, {"buffer_bytes": -1}, "buffer_bytes=-1 is out of range"),
    (Producer, {"request_timeout_ms": "x"}, "request_timeout_ms='x' is not a whole number"),
    (Producer, {"delivery_timeout_ms": 0}, "delivery_timeout_ms=0 is out of range"),
    (Producer, {"transaction_timeout_ms": 0}, "transaction_timeout_ms=0"),
    (Producer, {"bootstrap": 5}, "bootstrap=5 is no broker address: write 'host:port'"),
    (Producer, {"bootstrap": ["a:1", 5]}, "is no broker address"),
    (Producer, {"bootstrap": "[::1"}, r"'\[::1' is no broker address: write \[host\]:port"),
    (Producer, {"bootstrap": "[::1]9:1"}, r"'\[::1\]9:1' is no broker address"),
    (Producer, {"bootstrap": b"a:1"}, "is no broker address"),
    (Producer, {"compression": "zip"}, "choose none, gzip, snappy, lz4, zstd"),
    (Producer, {"compression": 3}, "there is no compression 3"),
    (Producer, {"acks": 2}, "choose 'all', 1 or 0"),
    (Producer, {"idempotent": "no"}, "idempotent='no' is neither True nor False"),
    (Producer, {"clock_ms": 5}, "clock_ms=5 cannot be called: give a function"),
    (Producer, {"check_timestamps": 1}, "check_timestamps=1 is neither"),
    (Producer, {"transactional_id": b"x"}, "transactional_id=b'x' is a bytes"),
    (Producer, {"client_id": 5}, "client_id=5 is an int"),
    (Consumer, {"fetch_max_bytes": 0}, "fetch_max_bytes=0 is out of range"),
    (Consumer, {"fetch_max_wait_ms": -1}, "fetch_max_wait_ms=-1"),
    (Consumer, {"prefetch_bytes": "1"}, "prefetch_bytes='1' is not a whole number"),
    (Consumer, {"heartbeat_interval_ms": 45_000}, "is not below session_timeout_ms=45000"),
    (Consumer, {"isolation": "dirty"}, "choose read_uncommitted, read_committed"),
    (Consumer, {"start": "soon"}, "start: 'soon' is not a time.*or give earliest, latest, none"),
    (Consumer, {"start": 1_372_953_600}, "looks like seconds"),
    (Consumer, {"start": datetime(2013, 7, 4)}, "has no zone"),
    (Consumer, {"start": None}, "None is not a time"),
    (Consumer, {"group_id": b"g"}, "group_id=b'g' is a bytes"),
    (Consumer, {"group_id": ""}, "group_id is empty"),
    (Consumer, {"group_instance_id": "i"}, "needs a group_id"),
    (Consumer, {"wait_for_topics": True}, "needs a group_id"),
    (Consumer, {"assignors": "rang"}, "there is no assignor 'rang': choose range"),
    (Consumer, {"assignors": []}, "no assignor is given"),
    (Consumer, {"assignors": 5}, "assignors=5 are no names: choose from range"),
    (Consumer, {"assignors": 0}, "assignors=0 are no names"),
    (Consumer, {"auto_commit": "yes"}, "auto_commit='yes'"),
    (Consumer, {"auto_commit_interval_ms": 0}, "auto_commit_interval_ms=0"),
    (Consumer, {"timeout_ms": -1}, "timeout_ms=-1"),
    (Admin, {"request_timeout_ms": 0}, "request_timeout_ms=0"),
    (Admin, {"bootstrap": "h:70000"}, "a port from 1 to 65535"),
]


@pytest.mark.parametrize(("kind", "options", "sentence"), OPTIONS)
async def test_an_option_is_checked_where_it_is_given(
    kind: Callable[..., object], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidUse, match=sentence):
        kind(**options)


TP = TopicPartition("t", 0)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("create_topic", (5,), {}, "topic=5 is an int, and a str is wanted"),
    ("create_topic", (b"x",), {}, r"decode it, b'x'\.decode\(\)"),
    ("create_topic", ("x",), {"partitions": "2"}, "partitions='2' is not a whole number: give -1"),
    ("create_topic", ("x",), {"replication_factor": 10**6}, "give -1 to 32767"),
    ("create_topic", ("x",), {"configs": "a=b"}, "configs is a str, and a mapping is wanted"),
    ("create_topic", ("x",), {"configs": [1]}, "configs is a list, and a mapping is wanted"),
    ("create_topic", ("x",), {"configs": {5: "1"}}, "a name in configs=5 is an int"),
    ("create_topic", ("x",), {"configs": {"retention.ms": 5}}, r"is wanted: write \"5\""),
    ("create_partitions", ("t", "4"), {}, "total='4' is not a whole number: give 1"),
    ("alter_topic_configs", ("t", ["a"]), {}, "changes is a list, and a mapping is wanted"),
    ("read_records", ("t",), {}, "offsets is a str, and a mapping is wanted"),
    ("read_records", ({TP: -5},), {}, r"offsets\[t-0\]=-5 is out of range: give 0 to"),
    ("delete_records", ({"t": 0},), {}, r"'t' is not a partition: write TopicPartition"),
    ("delete_records", ({TP: 10**20},), {}, r"before\[t-0\]=1000\d* is out of range: give -1 to"),
    ("delete_records", ({TP: "x"},), {}, r"before\[t-0\]='x' is not a whole number"),
    ("list_offsets", ({TP: 1.5},), {}, r"timestamps\[t-0\]=1.5 is not a whole number"),
    ("records_before", ("t", 5), {}, "partitions is a str, and partitions are wanted"),
    ("records_before", ([TP], "soonish"), {}, "time_ms='soonish' is not a whole number"),
    ("delete_group", (None,), {}, "group_id=None is a NoneType, and a str is wanted"),
    ("describe_group", (b"g",), {}, "group_id=b'g' is a bytes"),
]


@pytest.mark.parametrize(("call", "arguments", "options", "sentence"), CALLS)
async def test_arguments_of_the_admin_are_checked_before_anything_is_asked(
    broker: RunningBroker,
    call: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    sentence: str,
) -> None:
    async with Admin(broker.bootstrap) as admin:
        with pytest.raises(InvalidUse, match=sentence):
            await getattr(admin, call)(*arguments, **options)


async def test_a_list_of_topics_says_how_to_write_them() -> None:
    with pytest.raises(InvalidType, match=r"write Consumer\('a', 'b'\)"):
        Consumer(["a", "b"])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Consumer(b"a")  # type: ignore[arg-type]


async def test_a_host_that_is_no_name_is_unreachable() -> None:
    with pytest.raises(BrokerUnreachable, match=r"a\.\.b:9092 \(PLAINTEXT\): this is no host name"):
        async with Admin("a..b:9092"):
            pass


async def use(kind: str, where: str) -> None:
    """One client of this kind does its work, or tries to."""
    if kind == "produce":
        async with Producer(where) as producer:
            await producer.send("t", b"1")
    elif kind == "share":
        async with ShareConsumer("t", bootstrap=where, group_id="g") as share:
            while True:
                await share.getmany()
    elif kind == "admin":
        async with Admin(where) as admin:
            await admin.create_topic("t")
    else:
        async with Consumer("t", bootstrap=where, **_GROUPS[kind]) as consumer:
            await poll_for_ever(consumer)


_GROUPS: dict[str, dict[str, Any]] = {
    "read": {},
    "group": {"group_id": "g"},
    "consumer group": {"group_id": "g", "group_protocol": "consumer"},
}


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The error for each host name here; other names are looked up as ever.

    asyncio's own loop asks it. uvloop, which runs the other tests, has a resolver of its own.
    """
    errors: dict[str, int] = {}
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host in errors:
            raise socket.gaierror(errors[host], "no address")
        return look_up("127.0.0.1" if host == "broker.test" else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return errors


@pytest.mark.parametrize("kind", ["produce", "share", "admin", *_GROUPS])
def test_an_advertised_name_that_stays_unknown_here_ends_no_call_late(
    tmp_path: Path, kind: str, resolver: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "UNKNOWN_NAME_S", 0.5)
    resolver["broker.test"] = socket.EAI_NONAME
    # An admin client does not try again.
    error = NameUnknown if kind == "admin" else AddressUnusable

    async def work() -> None:
        advertised = "PLAINTEXT://broker.test:9"
        async with running_broker(tmp_path, advertised_listeners=advertised) as running:
            await create_topic(await running.client(), "t")
            with pytest.raises(error, match=r"the name broker\.test.*advertised\.listeners"):
                await asyncio.wait_for(use(kind, running.bootstrap), LIMIT_S)

    asyncio.run(work())


@pytest.mark.parametrize("code", [socket.EAI_AGAIN, socket.EAI_NODATA, socket.EAI_NONAME])
def test_a_name_that_is_not_looked_up_at_first_delays_a_record(
    tmp_path: Path, code: int, resolver: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a server of names that says so makes a name unknown, and that may be too early."""
    if code != socket.EAI_NONAME:
        monkeypatch.setattr(cluster_module, "UNKNOWN_NAME_S", 0)
    resolver["broker.test"] = code
    (port,) = free_ports(1)
    listeners, advertised = (f"PLAINTEXT://{host}:{port}" for host in ("127.0.0.1", "broker.test"))

    async def work() -> None:
        async with (
            running_broker(
                tmp_path, listeners=listeners, advertised_listeners=advertised
            ) as running,
            Producer(running.bootstrap) as producer,
        ):
            await create_topic(await running.client(), "t")
            asyncio.get_running_loop().call_later(0.5, resolver.clear)
            async with asyncio.timeout(LIMIT_S):
                assert (await (await producer.send("t", b"1"))).offset == 0

    asyncio.run(work())


@pytest.mark.parametrize(
    ("code", "is_unknown"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)]
)
def test_both_faces_tell_an_unknown_name_from_one_not_looked_up(
    resolver: dict[str, int], code: int, is_unknown: bool
) -> None:
    resolver["broker.test"] = code
    options = ClusterOptions(bootstrap=(("broker.test", 9),))

    def in_loop() -> None:
        async def connect() -> None:
            await LoopPool(options).open("broker.test", 9, Role.MAIN)

        asyncio.run(connect())

    def in_thread() -> None:
        blocking.run(blocking.BlockingPool(options).open("broker.test", 9, Role.MAIN))

    for connect in (in_loop, in_thread):
        with pytest.raises(BrokerUnreachable) as found:
            connect()
        assert isinstance(found.value, NameUnknown) == is_unknown
        assert ("is unknown" if is_unknown else "was not looked up") in str(found.value)


async def test_a_group_says_that_its_topic_is_missing(broker: RunningBroker) -> None:
    """`getmany` used to return nothing for ever."""
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(BrokerRefused, match="topic nope: UNKNOWN_TOPIC") as caught:
            async with Consumer("nope", bootstrap=broker.bootstrap, group_id="g"):
                pass
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_sends_to_what_is_not_there_share_a_question(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    find = Cluster.find_topics

    async def noted(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicInfo]:
        asked.append(tuple(names))
        return await find(cluster, asked[-1])

    monkeypatch.setattr(Cluster, "find_topics", noted)
    async with asyncio.timeout(LIMIT_S), Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"here")
        with pytest.raises(NotThere):
            await producer.send("t", b"", partition=7)
        before = len(asked)
        outcomes = await asyncio.gather(
            *(producer.send("t", b"", partition=7) for _ in range(100)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {NotThere}
        assert 1 <= len(asked) - before <= 3
        async with Admin(broker.bootstrap) as admin:
            await admin.create_partitions("t", 8)
        await producer.send_and_wait("t", b"now", partition=7)


async def test_a_group_may_wait_for_a_topic_that_comes_later(broker: RunningBroker) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with Consumer(
            "late",
            bootstrap=broker.bootstrap,
            group_id="g",
            start="earliest",
            wait_for_topics=True,
            heartbeat_interval_ms=50,
        ) as consumer:
            assert await consumer.getmany(timeout_ms=100) == {}
            async with Producer(broker.bootstrap) as producer:
                await producer.send_and_wait("late", b"here")
            async for record in consumer:
                assert record.value == b"here"
                break


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.getmany(max_records=0),
        lambda consumer: consumer.getmany(timeout_ms=-1),
        lambda consumer: consumer.getmany(timeout_ms="1"),
        lambda consumer: consumer.seek_to_time(None),
        lambda consumer: consumer.seek_to_time(-1),
        lambda consumer: consumer.seek_to_time(datetime(2013, 7, 4)),
        lambda consumer: consumer.offsets_for_times({TopicPartition("t", 0): "x"}),
        lambda consumer: consumer.offsets_for_times({"t": 5}),
        lambda consumer: consumer.offsets_for_times([TopicPartition("t", 0)]),
        lambda consumer: consumer.end_offsets(["t"]),
        lambda consumer: consumer.partitions(b"t"),
        lambda consumer: consumer.commit({TopicPartition("t", 0): "5"}),
        lambda consumer: consumer.commit({TopicPartition("t", 0): -5}),
        lambda consumer: consumer.commit({"t": 5}),
        lambda consumer: consumer.commit(5),
        lambda consumer: consumer.start(),
    ],
)
async def test_a_bad_argument_of_a_consumer_is_refused(
    broker: RunningBroker, call: Callable[[Any], Awaitable[object]]
) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"")
    async with asyncio.timeout(LIMIT_S):
        async with Consumer("t", bootstrap=broker.bootstrap, group_id="g") as consumer:
            with pytest.raises(InvalidUse):
                await call(consumer)


async def test_a_consumer_of_nothing_says_so(broker: RunningBroker) -> None:
    """`async for` used to wait for ever."""
    async with asyncio.timeout(LIMIT_S), Consumer(bootstrap=broker.bootstrap) as consumer:
        with pytest.raises(InvalidUse, match="has no topic: name some"):
            await anext(aiter(consumer))
        with pytest.raises(InvalidUse, match="call subscribe or assign first"):
            await consumer.getmany(timeout_ms=0)
        consumer.assign([])
        assert await consumer.getmany(timeout_ms=0) == {}


async def test_a_bad_partition_or_offset_is_refused(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"")
    async with Consumer("t", bootstrap=broker.bootstrap) as consumer:
        wrong: list[Any] = ["t", ("t",), ("t", "0"), (b"t", 0), ("t", -1)]
        for partition in wrong:
            with pytest.raises(InvalidUse):
                consumer.assign([partition])
            with pytest.raises(InvalidUse):
                consumer.position(partition)
        offsets: list[Any] = [-1, "0", 1.0, 2**63]
        for offset in offsets:
            with pytest.raises(InvalidUse, match="offset="):
                consumer.seek(TopicPartition("t", 0), offset)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topic(b"t"),
        lambda admin: admin.create_topic("t", partitions="4"),
        lambda admin: admin.create_topic("t", configs={"retention.ms": 5}),
        lambda admin: admin.delete_topic(["t"]),
        lambda admin: admin.describe_topic(5),
        lambda admin: admin.create_partitions(["t"], 3),
        lambda admin: admin.alter_topic_configs("t", {"retention.ms": 5}),
        lambda admin: admin.alter_group_offsets("g", {TopicPartition("t", 0): "5"}),
        lambda admin: admin.describe_group(b"g"),
        lambda admin: admin.offsets_for_time("t", 1.5),
        lambda admin: admin.list_offsets({TopicPartition("t", 0): "x"}),
        lambda admin: admin.create_topics(["a"]),
        lambda admin: admin.create_topics(5),
        lambda admin: admin.topic_configs(b"t"),
        lambda admin: admin.broker_configs("x"),
        lambda admin: admin.alter_broker_configs(-1, {}),
        lambda admin: admin.group_configs(["g"]),
        lambda admin: admin.explain_lookup("t", 0),
        lambda admin: admin.explain_lookup(TopicPartition("t", 0), "now"),
        lambda admin: admin.forecast_retention("t", {"retention.ms": 5}),
        lambda admin: admin.audit_times("t", size_bytes=0),
        lambda admin: admin.audit_times("t", partition="0"),
        lambda admin: admin.count_by_time(["t"]),
        lambda admin: admin.delete_group(["g"]),
        lambda admin: admin.group_offsets(None),
        lambda admin: admin.describe_share_group(5),
        lambda admin: admin.count_by_time("t", from_ms="yesterday"),
    ],
)
async def test_a_bad_argument_of_an_admin_call_is_of_the_clients_family(
    broker: RunningBroker, call: Callable[[Any], Awaitable[object]]
) -> None:
    """The encoder's own exceptions used to come out: MalformedRequest, TypeError."""
    async with asyncio.timeout(LIMIT_S), Admin(broker.bootstrap) as admin:
        await admin.create_topic("t")
        with pytest.raises(ClientError):
            await call(admin)
        assert "t" in await admin.topics()


async def test_datetimes_go_in_and_come_out(broker: RunningBroker) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with Producer(broker.bootstrap) as producer:
            for minute in range(3):
                await producer.send("t", b"", timestamp_ms=NOON + timedelta(minutes=minute))
            placed = await producer.send_and_wait("t", b"", timestamp_ms=-1)
        assert (placed.timestamp_ms, placed.time) == (-1, None)
        partition = TopicPartition("t", 0)
        when = NOON + timedelta(seconds=30)
        async with Consumer("t", bootstrap=broker.bootstrap, start=when) as consumer:
            record = await anext(aiter(consumer))
            assert (record.offset, record.time) == (1, NOON + timedelta(minutes=1))
            found = (await consumer.seek_to_time(when))[partition]
            assert found is not None
            assert found.time == record.time
            assert await consumer.offsets_for_times({partition: when}) == {partition: found}
        async with Admin(broker.bootstrap) as admin:
            assert await admin.offsets_for_time("t", when) == {partition: found}
        async with Consumer("t", bootstrap=broker.bootstrap, start="9999-12-31") as consumer:
            assert await consumer.getmany(timeout_ms=200) == {}
            assert consumer.position(partition) == 4


async def test_a_listener_that_raises_is_logged_and_the_member_continues(
    broker: RunningBroker,
) -> None:
    """It used to end the membership in silence."""

    def planted(_: object) -> None:
        raise KeyError("planted")

    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"here")
    async with asyncio.timeout(LIMIT_S):
        async with Consumer(
            "t", bootstrap=broker.bootstrap, group_id="g", start="earliest", on_assigned=planted
        ) as consumer:
            with pytest.raises(ListenerFailed, match="on_assigned raised KeyError"):
                await poll_for_ever(consumer)
            records: list[bytes | None] = []
            while not records:
                found = await consumer.getmany(timeout_ms=100)
                records = [record.value for group in found.values() for record in group]
    assert records == [b"here"]


@pytest.mark.parametrize("place", ["_start_fetches", "_fetch", "_find_positions"])
async def test_a_defect_of_the_consumer_is_raised_by_every_poll(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"")

    async def planted(*_: object) -> None:
        raise ZeroDivisionError("planted")

    async with asyncio.timeout(LIMIT_S):
        consumer = Consumer(bootstrap=broker.bootstrap, start="earliest")
        await consumer.start()
        monkeypatch.setattr(consumer._fetcher, place, planted)
        consumer.assign([TopicPartition("t", 0)])
        for _ in range(2):
            with pytest.raises(ClientBroken, match="ZeroDivisionError: planted"):
                await poll_for_ever(consumer)
        await consumer.close()


async def test_a_partition_that_is_not_there_has_a_class_of_its_own(broker: RunningBroker) -> None:
    async with Producer(broker.bootstrap) as producer:
        with pytest.raises(NotThere, match="t has no partition 9: it has 0 to 0"):
            await producer.send("t", b"", partition=9)


@pytest.mark.parametrize("make", [Producer, Consumer, ShareConsumer])
async def test_a_client_starts_once(broker: RunningBroker, make: Callable[..., Any]) -> None:
    """Not again when it is closed, either, which was said to be a broker out of reach."""
    arguments: dict[str, Any] = {"group_id": "g"} if make is ShareConsumer else {}
    await create_topic(await broker.client(), "t")
    topics = [] if make is Producer else ["t"]
    one = make(*topics, bootstrap=broker.bootstrap, **arguments)
    await one.start()
    with pytest.raises(InvalidUse, match="is started already"):
        await one.start()
    await one.close()
    with pytest.raises(InvalidUse, match="is closed: make another one"):
        await one.start()
    other = make(*topics, bootstrap="127.0.0.1:1", request_timeout_ms=500, **arguments)
    with pytest.raises(BrokerUnreachable):
        await other.start()
    with pytest.raises(InvalidUse, match="is closed: make another one"):
        await other.start()


async def test_a_port_that_speaks_http_is_named() -> None:
    """As the metrics port does; it was asked about TLS."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    sentence = "HTTP is spoken there: that is no Kafka listener"
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        bootstrap = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(BrokerUnreachable, match=sentence) as found:
            async with Admin(bootstrap, request_timeout_ms=500, timeout_ms=500) as admin:
                await admin.topics()
        assert "is the address right" not in str(found.value)
        with pytest.raises(BrokerUnreachable, match=sentence):
            await asyncio.to_thread(ask_for_topics, bootstrap)


def ask_for_topics(bootstrap: str) -> None:
    host, _, port = bootstrap.partition(":")
    cluster = blocking.open_cluster(ClusterOptions(bootstrap=((host, int(port)),), timeout_ms=500))
    try:
        blocking.run(cluster.topics())
    finally:
        blocking.run(cluster.close())
