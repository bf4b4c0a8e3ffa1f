"""A group is moved to the consumer protocol and back while it works, with real clients.

Java 4.3, the newest librdkafka and the bundled client, each in both protocols, are replaced one by
one; records are produced all the time. At every halt each partition has one owner, and in the end
every record has been read, none of them twice: a member that gives a partition up has committed
before.

Also here: a group's own settings with Kafka's `kafka-configs --group`.
"""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat import harness
from tests.compat.brokers import TidelogProcess
from tests.support import kafka_peer, toolchains
from tidelog import BlockingConsumer

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 6
WAIT_S = 60
PAUSE_S = 0.02
SOURCE = Path(__file__).parent / "applications" / "GroupMember.java"
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose members notice a rebalance quickly."""
    directory = tmp_path_factory.mktemp("moved") / "data"
    with TidelogProcess(directory, settings=SETTINGS) as broker:
        yield broker.bootstrap


class Member(Protocol):
    """Somebody in the group: what it owns now and all that it has read."""

    owned: set[int]
    read: list[int]

    def stop(self) -> None:
        """Commit, leave, end."""


class LibrdkafkaMember:
    """librdkafka's newest, in a thread."""

    def __init__(self, address: str, topic: str, group: str, protocol: str) -> None:
        classic = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300}
        self.owned: set[int] = set()
        self.read: list[int] = []
        self._is_stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(classic if protocol == "classic" else {}),
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._is_stopping:
            for message in self._consumer.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                self.read.append(int(message.value() or b""))
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned | {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [each for each in consumer.position(partitions) if each.offset >= 0]
        if places:
            consumer.commit(offsets=places, asynchronous=False)
        self.owned = self.owned - {each.partition for each in partitions}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise AssertionError(f"partitions were lost: {partitions}")


class JavaMember:
    """Java's newest, in a process; see `GroupMember.java`."""

    def __init__(self, address: str, topic: str, group: str, protocol: str) -> None:
        jars = toolchains.maven_jars(
            f"org.apache.kafka:kafka-clients:{kafka_peer.NEWEST}", "org.slf4j:slf4j-nop:1.7.36"
        )
        classes = toolchains.java_classes([SOURCE], jars)
        self.owned: set[int] = set()
        self.read: list[int] = []
        self._process = subprocess.Popen(
            [
                *(toolchains.java(), "-Xmx96m", "-XX:+UseSerialGC", "-cp", f"{classes}:{jars}/*"),
                *("GroupMember", address, topic, group, protocol),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._thread.join(WAIT_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                word, _, rest = line.strip().partition(" ")
                if word == "read":
                    self.read.append(int(rest))
                elif word == "owns":
                    self.owned = {int(each) for each in rest.split(",") if each}
                else:
                    raise AssertionError(line)


class BundledMember:
    """The bundled client, in a thread."""

    def __init__(self, address: str, topic: str, group: str, protocol: str) -> None:
        classic: dict[str, Any] = {"assignors": "range", "heartbeat_interval_ms": 300}
        self.owned: set[int] = set()
        self.read: list[int] = []
        self._is_stopping = False
        self._consumer = BlockingConsumer(
            topic,
            bootstrap=address,
            group_id=group,
            group_protocol=protocol,
            start="earliest",
            auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            **(classic if protocol == "classic" else {}),
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        with self._consumer as consumer:
            while not self._is_stopping:
                for records in consumer.getmany(timeout_ms=100).values():
                    self.read += [int(record.value or b"") for record in records]

    def _assigned(self, partitions: frozenset[tuple[str, int]]) -> None:
        self.owned = {number for _, number in partitions}

    def _revoked(self, partitions: frozenset[tuple[str, int]]) -> None:
        self._consumer.commit()
        self.owned = self.owned - {number for _, number in partitions}

    def _lost(self, partitions: frozenset[tuple[str, int]]) -> None:
        raise AssertionError(f"partitions were lost: {partitions}")


class Traffic:
    """Numbers, one after the other, into all partitions until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        self.count = 0
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        self._topic = topic
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0

    def _run(self) -> None:
        while not self._is_stopping:
            self._producer.produce(self._topic, str(self.count), partition=self.count % PARTITIONS)
            self.count += 1
            time.sleep(PAUSE_S / 4)


def wait_until_shared(*members: Member) -> None:
    """Every member has something, every partition one owner."""
    everything = list(range(PARTITIONS))

    def is_shared() -> bool:
        owned = [set(member.owned) for member in members]
        return all(owned) and sorted(p for each in owned for p in each) == everything

    deadline = time.monotonic() + WAIT_S
    while not is_shared():
        assert time.monotonic() < deadline, [member.owned for member in members]
        time.sleep(PAUSE_S)


def group_type(address: str, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": address})
    found = admin.list_consumer_groups().result().valid
    kind: ConsumerGroupType = next(each.type for each in found if each.group_id == group)
    return kind


Kind = Callable[[str, str, str, str], Member]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (JavaMember, LibrdkafkaMember),
        (LibrdkafkaMember, JavaMember),
        (BundledMember, LibrdkafkaMember),
        (JavaMember, BundledMember),
    ],
    ids=["java first", "librdkafka first", "bundled first", "bundled second"],
)
def test_a_group_is_moved_over_and_back(address: str, first: Kind, second: Kind) -> None:
    topic, group = harness.unique("moved"), harness.unique("group")
    harness.create_topic(address, topic, PARTITIONS)
    everybody: list[Member] = []
    with ExitStack() as stack:

        def member(kind: Kind, protocol: str) -> Member:
            made = kind(address, topic, group, protocol)
            everybody.append(made)
            stack.callback(made.stop)
            return made

        traffic = stack.enter_context(Traffic(address, topic))
        old = [member(first, "classic"), member(second, "classic")]
        wait_until_shared(*old)
        assert group_type(address, group) is ConsumerGroupType.CLASSIC
        new = [member(first, "consumer")]
        wait_until_shared(*old, *new)
        assert group_type(address, group) is ConsumerGroupType.CONSUMER
        old[0].stop()
        wait_until_shared(old[1], *new)
        new.append(member(second, "consumer"))
        wait_until_shared(old[1], *new)
        old[1].stop()
        wait_until_shared(*new)
        # And back again.
        again = member(first, "classic")
        wait_until_shared(again, *new)
        new[0].stop()
        wait_until_shared(again, new[1])
        assert group_type(address, group) is ConsumerGroupType.CONSUMER
        new[1].stop()
        wait_until_shared(again)
        assert group_type(address, group) is ConsumerGroupType.CLASSIC
        traffic.__exit__()
        deadline = time.monotonic() + WAIT_S
        while sum(len(each.read) for each in everybody) < traffic.count:
            assert time.monotonic() < deadline
            time.sleep(PAUSE_S)
    seen = Counter(value for each in everybody for value in each.read)
    assert sorted(seen) == list(range(traffic.count)), "every record"
    assert max(seen.values()) == 1, "and none twice"


def configs(address: str, *arguments: str) -> str:
    command = kafka_peer.tool_command(
        "kafka.admin.ConfigCommand", "--bootstrap-server", address, *arguments, heap="96m"
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_configs_sets_a_groups_own_timings(address: str) -> None:
    group = ("--group", "g")
    configs(address, *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    shown = configs(address, *group, "--describe")
    assert "consumer.session.timeout.ms=50000" in shown
    configs(address, *group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "50000" not in configs(address, *group, "--describe")
