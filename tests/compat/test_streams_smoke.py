"""The smoke test of Kafka Streams itself, with both group protocols, over kills of its application.

Its driver writes 20,000 records, waits until the application has put the results of all of them
into a dozen topics (minima, sums, windows, suppressed ones, joins by foreign keys), and compares
these with its own computation; of exactly_once_v2 also that each result is there once. Meanwhile
the application is killed with SIGKILL, twice, and started again without its state.

COMPAT_BROKER=kafka-4.3.1 judges the test.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.brokers import judged_broker
from tests.compat.programs import HEAP, running
from tests.support import kafka_peer, toolchains

PROGRAM = "org.apache.kafka.streams.tests.StreamsSmokeTest"
PARTITIONS = 5
KILLS = 2
LIFE_S = 12
"""How long the application lives before a kill; the driver writes for about half a minute."""

PATIENCE_S = 600
SESSION_MS = 6_000
TOPICS = (
    *("data", "echo", "max", "min", "min-suppressed", "min-raw", "sum", "sws-raw"),
    *("sws-suppressed", "dif", "cnt", "avg", "tagg", "fk"),
)
SETTINGS = {
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.session.timeout.ms": str(SESSION_MS),
}

pytestmark = pytest.mark.timeout(PATIENCE_S + 200)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker of its own: the topics have fixed names, and old records would be counted."""
    with judged_broker(tmp_path, SETTINGS) as bootstrap:
        yield bootstrap


def jars() -> Path:
    """The tests of Streams, and what they need of those of the clients."""
    release = kafka_peer.NEWEST
    parts = [f"org.apache.kafka:kafka-{name}:{release}" for name in ("streams", "clients")]
    return toolchains.maven_jars(
        *parts,
        *(f"{part}:test" for part in parts),
        "org.slf4j:slf4j-nop:1.7.36",
        "org.junit.jupiter:junit-jupiter-api:5.13.1",
        "org.hamcrest:hamcrest:3.0",
    )


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_streams_computes_the_same_over_kills(
    address: str, tmp_path: Path, protocol: str, guarantee: str
) -> None:
    for topic in TOPICS:
        harness.create_topic(address, topic, PARTITIONS)
    settings = {
        "bootstrap.servers": address,
        "processing.guarantee": guarantee,
        "group.protocol": protocol,
        "num.stream.threads": "2",
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = str(SESSION_MS)
    properties = tmp_path / "smoke.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [toolchains.java(), HEAP, "-cp", f"{jars()}/*", PROGRAM, str(properties)]
    logs = tmp_path / "driver.log", tmp_path / "application.log"
    with ExitStack() as stack:
        driver = stack.enter_context(running([*command, "run"], logs[0]))
        for _ in range(KILLS):
            with running([*command, "process"], logs[1]) as application:
                time.sleep(LIFE_S)
                assert application.poll() is None, logs[1].read_text()[-3000:]
        stack.enter_context(running([*command, "process"], logs[1]))
        driver.wait(PATIENCE_S)
    said = logs[0].read_text().splitlines()
    assert "SUCCESS" in said, said[-60:]
    assert "ALL-RECORDS-DELIVERED" in said
