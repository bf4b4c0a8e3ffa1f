"""TLS and SASL for real: Tidelog behind a proxy that ends TLS, and Apache Kafka's own listeners.

Tidelog itself speaks neither; the source does, for brokers behind such a proxy and for other
clusters. `tests.unit.client.test_faces` has the same against a few lines that play the broker.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.errors import BrokerRefused, BrokerUnreachable
from pipeline.net.cluster import Cluster
from pipeline.net.producing import TaskProducer
from pipeline.options.options import TopicChoice, parse_sink_options
from pipeline.spark.session import by_partition
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from tests.pipeline.conftest import START_MS, Broker, expected, values
from tests.support.kafka_peer import KafkaPeer
from tests.support.secured_kafka import PASSWORD, USER, Keys, make_keys, secured_kafka


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


class TlsProxy:
    """Ends TLS on one port and passes the bytes on to another; asks clients for a certificate."""

    def __init__(self, keys: Keys) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(keys.server)
        self.context.load_verify_locations(keys.authority)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.target = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(peer,), daemon=True).start()

    def _connect(self, peer: socket.socket) -> None:
        try:
            outside = self.context.wrap_socket(peer, server_side=True)
            inside = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            peer.close()
            return
        back = threading.Thread(target=_pass_on, args=(inside, outside), daemon=True)
        back.start()
        _pass_on(outside, inside)
        back.join()
        outside.close()
        inside.close()

    def close(self) -> None:
        self.server.close()


def _pass_on(origin: socket.socket, target: socket.socket) -> None:
    try:
        while data := origin.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture(scope="module")
def hidden(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Tidelog that advertises the address of the proxy in front of it."""
    proxy = TlsProxy(keys)
    running = Broker(
        tmp_path_factory.mktemp("hidden") / "data",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}",
    )
    proxy.target = running.port
    running.port = proxy.port
    running.security = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(keys.authority),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.location": str(keys.client),
        "kafka.ssl.keystore.type": "PEM",
    }
    yield running
    running.stop()
    proxy.close()


def test_a_source_and_a_sink_over_tls_with_a_certificate_of_their_own(
    spark: SparkSession, hidden: Broker
) -> None:
    origin, copy = hidden.topic(2), hidden.topic(2)
    for partition in range(2):
        hidden.produce(origin, partition, 1000, first=1000 * partition)
    frame = spark.read.format("tidelog").options(**hidden.options, subscribe=origin).load()
    assert values(frame) == expected((0, 2000))
    sink = frame.drop("topic").write.format("tidelog").mode("append")
    sink.options(**hidden.options, topic=copy).save()
    again = spark.read.format("tidelog").options(**hidden.options, subscribe=copy).load()
    assert values(again) == expected((0, 2000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kafka.ssl.truststore.location": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"kafka.ssl.keystore.location": ""}, "is the broker running|broke|closed"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "does the listener use this security protocol"),
    ],
    ids=["strange-authority", "no-certificate", "no-tls"],
)
def test_a_client_of_another_protocol_than_the_listeners_gets_a_clear_error(
    hidden: Broker, change: Mapping[str, str], message: str
) -> None:
    named = {**hidden.options, **change, "topic": "t"}
    with pytest.raises(BrokerUnreachable, match=message):
        topics(named)


def topics(options: Mapping[str, str]) -> list[tuple[str, int]]:
    """The partitions of the topic in `options`, asked at once and once."""
    parsed = parse_sink_options(options)
    with Cluster(parsed.connection) as cluster:
        return cluster.partitions(TopicChoice(names=(parsed.topic,)))


@pytest.fixture(scope="module")
def kafka(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """Apache Kafka with every kind of listener, one user, and 100 records in `events`."""
    with secured_kafka(tmp_path_factory.mktemp("kafka"), keys) as peer:
        plain = {"kafka.bootstrap.servers": peer.bootstrap, "topic": "events"}
        options = parse_sink_options(plain)
        with Cluster(options.connection) as cluster:
            topic = CreatableTopic(name="events", num_partitions=1, replication_factor=1)
            cluster.call(CreateTopicsRequest(timeout_ms=30_000, topics=[topic]))
            producer = TaskProducer(cluster, options)
            for number in range(100):
                producer.add("events", 0, START_MS + number, None, b"v%d" % number)
            producer.flush()
        yield peer


def secured(
    peer: KafkaPeer, keys: Keys, protocol: str, mechanism: str = "", password: str = PASSWORD
) -> dict[str, str]:
    """The options of a Java client for this listener, as they stand in Kafka's documentation."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{peer.listeners[protocol]}",
        "kafka.security.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["kafka.ssl.truststore.location"] = str(keys.authority)
        options["kafka.ssl.truststore.type"] = "PEM"
    if mechanism:
        options["kafka.sasl.mechanism"] = mechanism
        options["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f'username="{USER}" password="{password}";'
        )
    return options


@pytest.mark.jvm
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_apache_kafka_lets_the_user_in_and_no_other(
    kafka: KafkaPeer, keys: Keys, protocol: str, mechanism: str
) -> None:
    good = secured(kafka, keys, protocol, mechanism)
    assert topics({**good, "topic": "events"}) == [("events", 0)]
    bad = secured(kafka, keys, protocol, mechanism, password="wrong")
    with pytest.raises(BrokerRefused, match=f"authenticating as '{USER}'") as caught:
        topics({**bad, "topic": "events"})
    assert "wrong" not in str(caught.value)


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")], ids=["tls", "both"]
)
def test_spark_reads_and_writes_apache_kafka_over_secured_listeners(
    spark: SparkSession, kafka: KafkaPeer, keys: Keys, protocol: str, mechanism: str
) -> None:
    options: dict[str, Any] = secured(kafka, keys, protocol, mechanism)
    frame = spark.read.format("tidelog").options(**options, subscribe="events").load()
    before = frame.count()
    assert before >= 100
    written = frame.limit(10).select("value", "partition", "timestamp")
    spread = by_partition(written, options["kafka.bootstrap.servers"], "events", options)
    sink = {"topic": "events", "delivery": "exactly-once", "transactionalIdPrefix": protocol}
    for _ in range(2):
        spread.write.format("tidelog").mode("append").options(**options, **sink).save()
    committed = {"kafka.isolation.level": "read_committed", "subscribe": "events"}
    again = spark.read.format("tidelog").options(**options, **committed).load()
    assert again.count() == before + 10
