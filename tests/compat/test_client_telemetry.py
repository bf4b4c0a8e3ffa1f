"""Metrics of real clients (KIP-714): they push what they are asked for, and the port shows it."""

import time
from pathlib import Path
from urllib.request import urlopen

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.test_kafka_tools import CLIENT_METRICS, PRODUCER_PERF, TOPICS, run

pytestmark = pytest.mark.timeout(300)

WAIT_S = 60


def figures(broker: TidelogProcess) -> dict[tuple[str, str], float]:
    """What clients have pushed: the largest value of each name and client id."""
    url = f"http://127.0.0.1:{broker.ready['metrics_port']}/metrics"
    with urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found: dict[tuple[str, str], float] = {}
    for family in families:
        for sample in family.samples:
            if sample.name.startswith("tidelog_client_"):
                key = (sample.name.removeprefix("tidelog_client_"), sample.labels["client_id"])
                found[key] = max(sample.value, found.get(key, sample.value))
    return found


@pytest.mark.jvm
def test_java_and_librdkafka_push_their_metrics(tmp_path: Path) -> None:
    settings = {"metrics.listener": "127.0.0.1:0"}
    with TidelogProcess(tmp_path / "data", settings=settings) as broker:
        where = ("--bootstrap-server", broker.bootstrap)
        named = (*where, "--name", "all")
        run(
            CLIENT_METRICS,
            *(*named, "--alter", "--metrics", "org.apache.kafka.producer.,org.apache.kafka.admin."),
            *("--interval", "500"),
        )
        described = run(CLIENT_METRICS, *named, "--describe")
        assert "interval.ms=500" in described
        assert "org.apache.kafka.producer." in described
        assert "all" in run(CLIENT_METRICS, *where, "--list").split()

        topic = harness.unique("measured")
        run(TOPICS, *where, "--create", "--topic", topic)
        run(
            PRODUCER_PERF,
            *("--topic", topic, "--num-records", "600", "--record-size", "10"),
            *("--throughput", "200", "--bootstrap-server", broker.bootstrap),
            *("--command-property", "client.id=java"),
        )
        java = {
            name: value for (name, client), value in figures(broker).items() if client == "java"
        }
        assert any(name.startswith("producer_") for name in java), sorted(java)
        assert java["producer_record_send_total"] > 0

        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": "librdkafka"}
        )
        deadline = time.monotonic() + WAIT_S
        while not any(client == "librdkafka" for _, client in figures(broker)):
            assert time.monotonic() < deadline, "librdkafka has pushed nothing"
            producer.produce(topic, b"value")
            producer.poll(0.2)
        producer.flush(10)
        names = {name for name, client in figures(broker) if client == "librdkafka"}
        assert any(name.startswith("producer_") for name in names), sorted(names)

        run(CLIENT_METRICS, *named, "--delete")
        assert "all" not in run(CLIENT_METRICS, *where, "--list").split()
