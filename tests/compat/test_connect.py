"""Kafka Connect on top of the broker: a worker alone, and distributed workers.

Distributed workers keep everything in the broker: settings, offsets and states of the connectors in
three compacted topics, who runs what by a group of type "connect". Their sources write exactly
once, by transactions that fence a killed worker's producers. Run by `make compat`; the jars come
from Maven Central.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from client.admin import Admin
from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.compat.programs import HEAP, Tail, ask, jars, running, wait_for
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(400)

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own, as a user would start it."""
    with TidelogProcess(tmp_path_factory.mktemp("connect") / "data") as broker:
        yield broker.bootstrap


def write_properties(path: Path, settings: Mapping[str, object]) -> str:
    """The path of a properties file, as Java reads it."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


def command(program: str, *arguments: str) -> list[str]:
    connect = jars("connect-runtime", "connect-file")
    class_name = f"org.apache.kafka.connect.cli.{program}"
    return [toolchains.java(), HEAP, "-cp", f"{connect}/*", class_name, *arguments]


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_worker_alone_copies_a_file_through_a_topic(address: str, tmp_path: Path) -> None:
    topic = harness.unique("connect")
    source, sink, log = (tmp_path / name for name in ("in.txt", "out.txt", "connect.log"))
    text = "".join(f"line {number}\n" for number in range(500))
    source.write_text(text)
    worker = {
        "bootstrap.servers": address,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 500,
        "listeners": "http://127.0.0.1:0",
    }
    reads = {"name": "source", "connector.class": SOURCE, "file": source, "topic": topic}
    writes = {"name": "sink", "connector.class": SINK, "file": sink, "topics": topic}
    files = [
        write_properties(tmp_path / f"{number}.properties", settings)
        for number, settings in enumerate((worker, reads, writes))
    ]
    with running(command("ConnectStandalone", *files), log) as process:
        wait_for(lambda: text_of(sink) == text, process, log)
        with source.open("a") as file:
            file.write("one more\n")
        wait_for(lambda: text_of(sink) == f"{text}one more\n", process, log)


class Workers:
    """Distributed workers of one group, each a process with its own REST address."""

    def __init__(self, address: str, folder: Path) -> None:
        self.group = harness.unique("workers")
        self.topics = {
            f"{kind}.storage.topic": f"{self.group}-{kind}"
            for kind in ("config", "offset", "status")
        }
        self._address = address
        self._folder = folder

    def command_line(self, port: int) -> list[str]:
        """The command line of a worker that listens on `port`."""
        settings = {
            "bootstrap.servers": self._address,
            "group.id": self.group,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.flush.interval.ms": 500,
            "offset.storage.partitions": 3,
            "status.storage.partitions": 2,
            **{key.replace(".topic", ".replication.factor"): 1 for key in self.topics},
            **self.topics,
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "consumer.session.timeout.ms": 6_000,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "scheduled.rebalance.max.delay.ms": 1_000,
            "listeners": f"http://127.0.0.1:{port}",
        }
        path = self._folder / f"worker-{port}.properties"
        return command("ConnectDistributed", write_properties(path, settings))


def is_running(port: int, *names: str) -> bool:
    """Whether every connector and its task work, by what the worker on `port` knows."""
    for name in names:
        status, answer = ask("GET", f"http://127.0.0.1:{port}/connectors/{name}/status")
        if status != 200 or not answer["tasks"]:
            return False
        states = [answer["connector"]["state"], *(task["state"] for task in answer["tasks"])]
        assert "FAILED" not in states, answer
        if set(states) != {"RUNNING"}:
            return False
    return True


async def what_the_broker_knows(
    address: str, group: str, topics: Mapping[str, str]
) -> tuple[str, set[str]]:
    """The type of the workers' group, and how their topics are cleaned."""
    async with Admin(address) as admin:
        described = await admin.describe_group(group)
        configs = [await admin.topic_configs(topic) for topic in topics.values()]
    return described.protocol_type, {str(each["cleanup.policy"].value) for each in configs}


def test_distributed_workers_go_on_exactly_where_a_killed_one_was(
    address: str, tmp_path: Path
) -> None:
    topic = harness.unique("distributed")
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(600)]

    def append(part: list[str]) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in part)

    harness.create_topic(address, topic, 1)
    append(lines[:200])
    workers = Workers(address, tmp_path)
    first, second = kafka_peer.free_ports(2)
    log, other_log = tmp_path / "first.log", tmp_path / "second.log"
    reads = {"connector.class": SOURCE, "file": str(source), "topic": topic, "tasks.max": "1"}
    reads["exactly.once.support"] = "required"
    writes = {"connector.class": SINK, "file": str(sink), "topics": topic, "tasks.max": "1"}
    tail = Tail(address, topic)

    def copied() -> list[str]:
        tail.poll()
        return [value for _, value in tail.records]

    with ExitStack() as life_of_first:
        process = life_of_first.enter_context(running(workers.command_line(first), log))
        url = f"http://127.0.0.1:{first}/connectors"
        wait_for(lambda: ask("GET", url) == (200, []), process, log)
        for name, settings in (("reads", reads), ("writes", writes)):
            document = {"name": name, "config": settings}
            # 409 while the group rebalances
            while (answer := ask("POST", url, document))[0] == 409:
                time.sleep(0.5)
            assert answer[0] == 201, answer
        wait_for(lambda: is_running(first, "reads", "writes"), process, log)
        wait_for(lambda: copied() == lines[:200], process, log)
        assert asyncio.run(what_the_broker_knows(address, workers.group, workers.topics)) == (
            "connect",
            {"compact"},
        )
        with running(workers.command_line(second), other_log) as survivor:
            wait_for(lambda: is_running(second, "reads", "writes"), survivor, other_log)
            append(lines[200:400])
            wait_for(lambda: len(copied()) > 200, survivor, other_log)
            life_of_first.close()
            append(lines[400:])
            wait_for(lambda: len(copied()) >= 600, survivor, other_log)
            # The sink promises at least once: it may write again what it had not committed.
            wait_for(lambda: set(text_of(sink).split("\n")) >= set(lines), survivor, other_log)
    assert copied() == lines, "something was written twice"
    tail.close()
