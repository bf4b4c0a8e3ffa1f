"""Session fixtures: the broker under judgement and a topic that every client reads."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat import harness
from tests.compat.brokers import judged_broker
from tests.compat.matrix import CLIENTS, Client

SEEDED_PARTITIONS = 4
SEEDED_COUNT = 240
SEEDED_CODECS = ("none", "gzip", "snappy", "lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededTopic:
    """A topic with out-of-order timestamps in batches of several codecs."""

    name: str
    partitions: int
    base: int
    records: tuple[harness.StoredRecord, ...]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with judged_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


class Seeder:
    """Makes one topic per set of codecs, when the first client that knows these asks for it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._made: dict[tuple[str, ...], SeededTopic] = {}

    def topic_for(self, client: Client) -> SeededTopic:
        """A topic of which the client can read every batch."""
        codecs = tuple(codec for codec in SEEDED_CODECS if codec in client.codecs)
        if codecs not in self._made:
            self._made[codecs] = _seed(self._bootstrap, codecs)
        return self._made[codecs]


@pytest.fixture(scope="session")
def seeder(bootstrap: str) -> Seeder:
    return Seeder(bootstrap)


def _seed(bootstrap: str, codecs: tuple[str, ...]) -> SeededTopic:
    name = harness.unique("seeded")
    harness.create_topic(bootstrap, name, SEEDED_PARTITIONS)
    writer = next(client for client in CLIENTS if client.name == "confluent-kafka newest")
    base = int(time.time() * 1000) - 24 * 3600 * 1000
    for step, codec in enumerate(codecs):
        harness.run(
            writer,
            "produce",
            bootstrap=bootstrap,
            topic=name,
            count=SEEDED_COUNT // len(codecs),
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
