"""Session fixtures: the broker under judgement and a topic that every client reads."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.brokers import judged_broker
from tests.compat.matrix import CLIENTS

SEEDED_PARTITIONS = 4
SEEDED_COUNT = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededTopic:
    """A topic with out-of-order timestamps in batches of every codec that old clients know."""

    name: str
    partitions: int
    base: int
    records: tuple[harness.StoredRecord, ...]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with judged_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(scope="session")
def seeded(bootstrap: str) -> SeededTopic:
    name = harness.unique("seeded")
    harness.create_topic(bootstrap, name, SEEDED_PARTITIONS)
    writer = next(client for client in CLIENTS if client.name == "confluent-kafka newest")
    base = int(time.time() * 1000) - 24 * 3600 * 1000
    for step, codec in enumerate(("none", "gzip", "snappy", "lz4")):
        harness.run(
            writer,
            "produce",
            bootstrap=bootstrap,
            topic=name,
            count=SEEDED_COUNT // 4,
            partitions=SEEDED_PARTITIONS,
            codec=codec,
            base=base + step * 7_000,
        )
    records = harness.read_topic(bootstrap, name, SEEDED_PARTITIONS)
    assert len(records) == SEEDED_COUNT
    return SeededTopic(name=name, partitions=SEEDED_PARTITIONS, base=base, records=tuple(records))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
