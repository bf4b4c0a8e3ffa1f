"""The blocks of the pages with Kafka's own tools, run as they are written but for addresses."""

import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.integration.documents.terminal import Terminal
from tests.integration.documents.test_single_blocks import HTTP, block
from tests.support import kafka_peer
from tidelog.testing import RunningBroker, running_broker

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

TOOLS = {
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
}
PATIENCE_S = 60


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, broker: RunningBroker) -> Terminal:
    """A terminal in which the names of the tools start them."""
    made = Terminal(tmp_path, broker.bootstrap)
    for name, java_class in TOOLS.items():
        words = shlex.join(kafka_peer.tool_command(java_class, heap="96m"))
        (tmp_path / name).write_text(f'exec {words} "$@"\n')
        made.exchanged[f"{name} "] = f"bash {tmp_path / name} "
    made.exchanged["HOST:PORT"] = broker.bootstrap
    made.exchanged[HTTP] = f"127.0.0.1:{broker.metrics_port}"
    return made


def test_a_setting_of_one_group(here: Terminal) -> None:
    here.exchanged["--group NAME"] = "--group pilots"
    here.lines(block("docs/groups.md", "kafka-configs"))
    shown = here.lines("tidelog group configs pilots --json")
    assert '"50000"' in shown


def test_a_share_group_is_set_read_and_described(here: Terminal) -> None:
    configure, consume, describe = block("docs/share-groups.md", "kafka-configs").splitlines()
    here.lines("echo one | tidelog produce orders -q")
    here.lines(configure)
    command, variables = here.command(consume)
    with subprocess.Popen(
        command, cwd=here.place, env=variables, stdout=subprocess.PIPE, text=True
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "one\n"
        shown = here.lines(describe)
        consumer.terminate()
    assert "workers" in shown
    assert "orders" in shown


def test_clients_push_what_a_subscription_asks_for(here: Terminal, broker: RunningBroker) -> None:
    here.exchanged["--interval 30000"] = "--interval 500"  # else the first push is 45 s away
    _, subscribe, ask = block("docs/client-telemetry.md", "pip install").splitlines()
    here.lines(subscribe)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    while (done := here.shell(ask)).returncode != 0 and time.monotonic() < deadline:
        producer.produce("flights", b"one")
        producer.flush(10)
        time.sleep(0.5)
    assert done.stdout.startswith("tidelog_client_")
