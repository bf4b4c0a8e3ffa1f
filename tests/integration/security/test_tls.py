"""TLS listeners: certificates that change, strangers that fail, answers that stay unread."""

import asyncio
import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from broker.net import acceptor
from broker.net.limits import WRITE_BUFFER_HIGH_BYTES
from client.aio.connection import LoopConnection
from client.blocking import BlockingConnection
from client.core.options import ClusterOptions, Security
from client.core.tls import tls_context
from client.errors import BrokerUnreachable
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.metadata import MetadataRequest
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.log.values import Isolation
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.certificates import authority, signed
from tests.support.kafka_peer import resident_bytes

TOPIC = "t"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    signer = authority(directory)
    for number in range(3):
        signed(directory, signer, f"server-{number}")
    signed(directory, signer, "device", subject="/O=Example/CN=Device-7")
    signed(directory, authority(directory, "other"), "stranger")
    return directory


@pytest.fixture
def live(place: Path, tmp_path: Path) -> Path:
    path = tmp_path / "live.pem"
    path.write_bytes((place / "server-0.pem").read_bytes())
    return path


@pytest.fixture
def settings(live: Path, place: Path) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl_keystore_location": str(live),
        "ssl_truststore_location": str(place / "ca.pem"),
        "ssl_client_auth": "requested",
    }


@pytest.fixture
async def secured(tmp_path: Path, settings: dict[str, Any]) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path / "data", **settings) as running:
        yield running


@pytest.fixture
def trusting(place: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(place / "ca.pem"))


async def create_topic(client: RawClient) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]
    )
    answer = await client.request(request, 7)
    assert answer.topics[0].error_code == 0


async def works(client: RawClient) -> bool:
    return bool((await client.request(MetadataRequest(topics=[]), 12)).brokers)


def shown_certificate(port: int, trusting: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        parts: Any = certificate["subject"]
        return str(dict(pair for rdn in parts for pair in rdn)["commonName"])


class LibrdkafkaLoad:
    """A producer that sends for ever, in a thread."""

    def __init__(self, bootstrap: str, authorities: Path) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SSL",
                "ssl.ca.location": str(authorities),
                "linger.ms": 0,
                "log_level": 2,
            }
        )
        self.sent = 0
        self.errors: list[object] = []
        self._is_over = False

    def run(self) -> None:
        while not self._is_over:
            self._producer.produce(TOPIC, b"librdkafka", on_delivery=self._delivered)
            self._producer.flush(30)
        assert self._producer.flush(30) == 0

    def end(self) -> None:
        self._is_over = True

    def _delivered(self, error: object, _: object) -> None:
        self.sent += 1
        if error is not None:
            self.errors.append(error)


@pytest.mark.timeout(180)
async def test_a_hundred_new_certificates_under_load_fail_no_send(
    secured: RunningBroker, trusting: ssl.SSLContext, place: Path, live: Path
) -> None:
    """One in ten is broken, which keeps the one in force; producers come and go meanwhile."""
    await create_topic(await secured.client(trusting))
    librdkafka = LibrdkafkaLoad(secured.bootstrap, place / "ca.pem")
    thread = asyncio.create_task(asyncio.to_thread(librdkafka.run))

    def producer() -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=secured.bootstrap, security_protocol="SSL", ssl_context=trusting
        )

    sent = 0
    fresh = live.with_suffix(".fresh")
    async with producer() as lasting:
        expected = "server-0"
        for turn in range(100):
            name = f"server-{turn % 3}"
            text = (place / f"{name}.pem").read_bytes()
            if turn % 10 == 9:
                text = text[: len(text) // 2]
            else:
                expected = name
            fresh.write_bytes(text)
            fresh.rename(live)
            renewal = asyncio.create_task(secured.broker.certificates.run())
            for _ in range(3):
                await lasting.send_and_wait(TOPIC, b"aiokafka")
                sent += 1
            await renewal
            assert await asyncio.to_thread(shown_certificate, secured.port, trusting) == expected
            if turn % 5 == 0:
                async with producer() as brief:
                    await brief.send_and_wait(TOPIC, b"brief")
                    sent += 1
    librdkafka.end()
    await thread
    assert librdkafka.errors == []
    assert librdkafka.sent > 0
    (log,) = (log for log in secured.broker.topics.logs() if log.topic == TOPIC)
    assert log.end_offset(Isolation.READ_UNCOMMITTED) == sent + librdkafka.sent


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Device-7,O=Example"),
        ("RULE:^CN=(.*?),.*$/$1/L", "User:device-7"),
        ("RULE:^CN=(.*?),OU=.*$/$1/", None),
    ],
)
async def test_rules_name_the_user_of_a_certificate(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    trusting: ssl.SSLContext,
    place: Path,
    rules: str,
    principal: str | None,
) -> None:
    settings["ssl_principal_mapping_rules"] = rules
    trusting.load_cert_chain(place / "device.pem")
    caplog.set_level(logging.INFO, "tidelog.audit")

    def audited() -> str:
        (line,) = (one for one in caplog.records if one.name == "tidelog.audit")
        return line.getMessage()

    async with running_broker(tmp_path / "data", **settings) as running:
        client = await running.client(trusting)
        if principal is None:
            assert await client.is_closed_by_broker()
            assert "127.0.0.1 failed to authenticate on listener SSL: no rule" in audited()
            return
        assert await works(client)
        name = f"127.0.0.1 authenticated as {principal} with a certificate on listener SSL"
        assert audited() == name
        (connection,) = running.broker.connections
        assert str(connection.session.principal) == principal


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("kind", ["aio", "blocking"])
async def test_a_client_learns_which_certificate_it_lacks(
    tmp_path: Path, settings: dict[str, Any], place: Path, version: str, kind: str
) -> None:
    settings |= {"ssl_client_auth": "required", "ssl_protocol": version}
    async with running_broker(tmp_path / "data", **settings) as running:

        async def connect(certificate: str) -> None:
            options = ClusterOptions(
                bootstrap=(("localhost", running.port),),
                security=Security(
                    tls=True, ca_file=str(place / "ca.pem"), certificate_file=certificate
                ),
            )
            tls = tls_context(options.security)
            if kind == "blocking":
                await asyncio.to_thread(connect_blocking, running.port, options, tls)
            else:
                connection = await LoopConnection.connect("localhost", running.port, options, tls)
                connection.close()

        cure = r"closed the connection.*: Security\(certificate_file=FILE\), .*--tls-cert FILE"
        with pytest.raises(BrokerUnreachable, match=cure):
            await connect("")
        stranger = str(place / "stranger.pem")
        with pytest.raises(BrokerUnreachable, match=rf"may refuse the .* client, {stranger}: is"):
            await connect(stranger)
        await connect(str(place / "device.pem"))


def connect_blocking(port: int, options: ClusterOptions, tls: ssl.SSLContext | None) -> None:
    connection = BlockingConnection("localhost", port, options, tls)
    try:
        asyncio.run(connection.greet())
    finally:
        connection.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def fail_to_shake_hands(port: int, number: int, place: Path) -> None:
    """One stranger: the wrong authority, plain bytes, half a hello, or a silent connection."""
    context = None
    if number % 4 == 0:
        context = ssl.create_default_context(cafile=str(place / "ca.pem"))
        context.load_cert_chain(place / "stranger.pem")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    with suppress(OSError, EOFError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        if number % 4 == 1:
            writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
            await reader.read()
        elif number % 4 == 2:
            writer.write(HALF_A_HELLO)
        writer.close()
        await writer.wait_closed()


FAILED_HANDSHAKES = int(os.environ.get("FAILED_HANDSHAKES", "800"))


@pytest.mark.timeout(120 + FAILED_HANDSHAKES // 4)
async def test_failed_handshakes_leave_nothing_and_hurt_no_one(
    secured: RunningBroker, trusting: ssl.SSLContext, place: Path
) -> None:
    bystander = await secured.client(trusting)
    assert await works(bystander)

    async def storm(count: int) -> None:
        for start in range(0, count, 40):
            await asyncio.gather(
                *(fail_to_shake_hands(secured.port, n, place) for n in range(start, start + 40))
            )
            assert await works(bystander)

    async def settled() -> int:
        """The open descriptors once the broker has seen the last stranger go."""
        async with asyncio.timeout(30):
            while len(secured.broker.connections) > 1 or descriptors() > before:
                await asyncio.sleep(0.05)
        return descriptors()

    await storm(400)
    before = 1_000_000
    before = await settled()
    memory = resident_bytes(os.getpid())
    await storm(FAILED_HANDSHAKES)
    assert await settled() <= before
    assert resident_bytes(os.getpid()) - memory < 8 << 20
    failed = secured.broker.metrics.handshakes["SSL", "failed"]
    assert failed == 400 + FAILED_HANDSHAKES


async def test_stalled_handshakes_count_as_connections_and_end(
    tmp_path: Path,
    settings: dict[str, Any],
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that connects and is silent counts as a connection, for a short time."""
    monkeypatch.setattr(acceptor, "SILENCE_TIMEOUT_S", 1.0)
    settings["max_connections_per_ip"] = "5"
    async with running_broker(tmp_path / "data", **settings) as running:
        silent = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(5)]
        await asyncio.sleep(0.2)
        with pytest.raises((OSError, EOFError)):
            await running.client(trusting)
        assert running.broker.connections.refused == 1
        for reader, writer in silent:
            async with asyncio.timeout(10):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()
        while running.broker.metrics.handshakes["SSL", "failed"] < 5:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # a task is counted out once it has ended
        assert await works(await running.client(trusting))


@pytest.mark.parametrize(
    ("sent", "address"), [(b"", "127.0.0.1"), (HALF_A_HELLO, "127.0.0.2")], ids=["silent", "half"]
)
async def test_stalled_handshakes_of_one_address_keep_no_one_out(
    tmp_path: Path,
    settings: dict[str, Any],
    trusting: ssl.SSLContext,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
    address: str,
) -> None:
    """Silent clients have no place of a handshake; those that have begun one have a share."""
    monkeypatch.setattr(acceptor, "SILENCE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(acceptor, "HANDSHAKE_TIMEOUT_S", 60.0)
    settings |= {"metrics_listener": "127.0.0.1:0", "metrics_listener_security": "tls"}
    async with running_broker(tmp_path / "data", **settings) as running:
        metrics_port = running.ready.metrics_port
        assert metrics_port is not None
        ports = [*[running.port] * 200, *[metrics_port] * 12]
        with ExitStack() as strangers:
            for port in ports:
                stranger = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
                strangers.enter_context(stranger).sendall(sent)
            await asyncio.sleep(0.2)
            for port in (running.port, metrics_port):
                async with asyncio.timeout(30):
                    _, writer = await asyncio.open_connection(
                        "127.0.0.1", port, ssl=trusting, local_addr=(address, 0)
                    )
                writer.close()
                await writer.wait_closed()


async def test_a_tls_hello_on_a_clear_port_closes(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        with pytest.raises((OSError, EOFError)):
            async with asyncio.timeout(5):
                await running.client(ssl.create_default_context())
        assert await works(await running.client())


async def test_answers_that_stay_unread_are_bounded(
    secured: RunningBroker, trusting: ssl.SSLContext
) -> None:
    client = await secured.client(trusting)
    await create_topic(client)
    records = batch(b"x" * 900_000)
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    answer = await client.request(produce, 7)
    assert answer.responses[0].partition_responses[0].error_code == 0
    plain = socket.create_connection(("127.0.0.1", secured.port))
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader, writer = await asyncio.open_connection(
        sock=plain, ssl=trusting, server_hostname="localhost", limit=1
    )
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    glutton = RawClient(reader, writer)
    fetch = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=TOPIC,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    for _ in range(64):
        glutton.send(fetch, 6)
    await asyncio.sleep(1)
    connection = max(secured.broker.connections, key=lambda one: one.unread_bytes)
    assert 0 < connection.unread_bytes <= WRITE_BUFFER_HIGH_BYTES + 2 * len(records)
    connection.cut("the test ends")
    async with asyncio.timeout(0.5):  # a shutdown of TLS would wait for a peer that never reads
        while len(secured.broker.connections) > 1:
            await asyncio.sleep(0.01)
    assert await works(client)
    writer.transport.abort()
