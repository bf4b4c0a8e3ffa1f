"""What admin UIs ask, page by page.

kafbat-ui and AKHQ show what Kafka's admin client tells them; neither is in a package registry, so
`AdminPages.java` asks their questions, with the release that each of them has. Redpanda Console is
a Go program: `REDPANDA_CONSOLE` names its backend, built from its repository, which is then asked
for its pages as a browser would. Both were compared with what they show of Apache Kafka.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.compat import harness
from tests.compat.brokers import judged_broker
from tests.compat.programs import HEAP, ask, running, wait_for
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(300)

RECORDS = 20
SOURCE = Path(__file__).parent / "applications" / "AdminPages.java"
PAGES = {
    "features": "[group.version, metadata.version, share.version, streams.version, "
    "transaction.version]",
    "broker settings": "true",
    "log directories": "null true true",
    "quorum": "1",
    "quotas": "{}",
    "acls": "SecurityDisabledException",
    "users": "{}",
    "reassignments": "{}",
    "transactions": "[]",
    "create": "null",
    "grow": "null",
    "list": "true",
    "describe": "3 1 1 false",
    "change settings": "3600000 DYNAMIC_TOPIC_CONFIG",
    "offsets": f"[0, {RECORDS}, 0, {RECORDS - 1}]",
    "producers": "1",
    "reassign": "null",
    "empty": f"{RECORDS}",
    "delete topic": "null",
    "groups": "true",
    "group": "0 1",
    "lag": f"{RECORDS}",
    "reset": "1",
    "forget offsets": "null",
    "delete group": "null",
}
"""What the page shows; a word that ends in Exception is how the admin client says it."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with judged_broker(tmp_path_factory.mktemp("pages")) as bootstrap:
        yield bootstrap


def filled_topic(address: str) -> str:
    """A topic of one partition whose records a group of the same name has read."""
    topic = harness.unique("pages")
    harness.create_topic(address, topic, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce(topic, f'{{"n": {number}}}', timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0
    settings = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    seen = 0
    while seen < RECORDS:
        seen += len(consumer.consume(RECORDS, timeout=10))
    consumer.commit(asynchronous=False)
    consumer.close()
    return topic


@pytest.mark.parametrize("version", ["3.6.2", "3.9.1", kafka_peer.NEWEST])
def test_pages_of_uis_that_use_kafkas_admin_client(address: str, version: str) -> None:
    jars = toolchains.maven_jars(
        f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36"
    )
    classes = toolchains.java_classes([SOURCE], jars)
    topic = filled_topic(address)
    done = subprocess.run(
        [
            toolchains.java(),
            HEAP,
            "-cp",
            f"{classes}:{jars}/*",
            "AdminPages",
            address,
            topic,
            topic,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert shown.pop("nodes").startswith("1 1 true ")
    assert shown == PAGES


CONSOLE_PAGES = (
    "cluster",
    "brokers",
    "brokers/1/config",
    "api-versions",
    "acls",
    "topics-configs",
    "topics",
    "topics/{topic}/partitions",
    "topics/{topic}/configuration",
    "topics/{topic}/consumers",
    "topics-offsets?topicNames={topic}&timestamp=1700000000005",
    "quotas",
    "consumer-groups",
    "consumer-groups/{topic}",
    "operations/topic-details",
    "operations/reassign-partitions",
)
REDPANDA_ONLY = {"TransformService", "PipelineService", "DebugBundleService"}


@pytest.fixture
def console(address: str, tmp_path: Path) -> Iterator[str]:
    """The address of Redpanda Console's own HTTP service."""
    program = os.environ.get("REDPANDA_CONSOLE")
    if not program:
        pytest.skip("REDPANDA_CONSOLE must name the backend, built from its repository")
    (port,) = kafka_peer.free_ports(1)
    config = tmp_path / "console.yaml"
    config.write_text(
        f'kafka:\n  brokers: ["{address}"]\nserveFrontend: false\n'
        f"server:\n  listenAddress: 127.0.0.1\n  listenPort: {port}\n"
    )
    log = tmp_path / "console.log"
    with running([program, "-config.filepath", str(config)], log) as process:
        url = f"http://127.0.0.1:{port}/api/"
        wait_for(lambda: ask("GET", f"{url}cluster")[0] == 200, process, log)
        yield url


def test_redpanda_console_shows_its_pages(address: str, console: str) -> None:
    topic = filled_topic(address)
    shown: dict[str, Any] = {}
    for page in CONSOLE_PAGES:
        status, shown[page] = ask("GET", console + page.format(topic=topic))
        assert status == 200, (page, shown[page])
    (partition,) = shown["topics/{topic}/partitions"]["partitions"]
    assert (partition["waterMarkLow"], partition["waterMarkHigh"]) == (0, RECORDS)
    found = shown["topics-offsets?topicNames={topic}&timestamp=1700000000005"]["topicOffsets"]
    assert found[0]["partitions"][0]["offset"] == 5
    assert shown["topics/{topic}/consumers"]["topicConsumers"] == [
        {"groupId": topic, "summedLag": 0}
    ]
    assert shown["acls"]["isAuthorizerEnabled"] is False
    _, endpoints = ask("GET", f"{console}console/endpoints")
    greyed_out = {
        endpoint["endpoint"].rpartition(".")[2]
        for endpoint in endpoints["endpointCompatibility"]["endpoints"]
        if not endpoint["isSupported"]
    }
    assert greyed_out == REDPANDA_ONLY


def test_redpanda_console_changes_what_its_pages_show(address: str, console: str) -> None:
    topic = filled_topic(address)
    new = {"topicName": f"{topic}-new", "partitionCount": 3, "replicationFactor": 1}
    cleaned = {"configs": [{"key": "cleanup.policy", "op": "SET", "value": "compact,delete"}]}
    first = {"partitionId": 0, "offset": 10}
    group = {"groupId": topic, "topics": [{"topicName": topic, "partitions": [first]}]}
    partition = {"topicName": topic, "partitions": [{"partitionId": 0}]}
    forgotten = {"groupId": topic, "topics": [partition]}
    record = {"key": "YQ==", "value": "Yg==", "partitionId": 0, "headers": []}
    sent = {"topicNames": [topic], "compressionType": 4, "records": [record]}
    changes: list[tuple[str, str, object]] = [
        ("POST", "topics", {**new, "configs": [{"name": "retention.ms", "value": "3600000"}]}),
        ("PATCH", f"topics/{topic}/configuration", cleaned),
        ("POST", "topics-records", sent),
        ("DELETE", f"topics/{topic}/records", {"partitions": [first]}),
        ("PATCH", f"consumer-groups/{topic}", group),
        ("DELETE", f"consumer-groups/{topic}/offsets", forgotten),
        ("DELETE", f"consumer-groups/{topic}", None),
    ]
    for method, path, document in changes:
        status, answer = ask(method, console + path, document)
        assert status in (200, 201), (path, answer)
        assert "error" not in str(answer).lower(), (path, answer)
    _, partitions = ask("GET", f"{console}topics/{topic}/partitions")
    assert partitions["partitions"][0]["waterMarkLow"] == 10
    assert partitions["partitions"][0]["waterMarkHigh"] == RECORDS + 1
