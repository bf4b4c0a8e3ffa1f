"""What Apache Kafka 4.3.1 refuses as the value of a setting is refused here, too.

`ranges_of_kafka.txt` has each setting that Kafka's own definitions name (`AbstractKafkaConfig`,
`LogConfig`, `GroupConfig`, `ClientMetricsConfigs`): whose it is, its name, its type, and its
validator as Kafka writes it: `[1,...]` are numbers from 1 on, `[a, b]` are words. A list may have a
word twice here, which Kafka refuses.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from broker.telemetry.settings import check_client_metrics
from config import ConfigErrors, check_group_overrides, check_topic_overrides, load, with_dynamic
from config.errors import Problem

FILE: Final = Path(__file__).parent / "ranges_of_kafka.txt"
RANGE: Final = re.compile(r"\[(-?[\d.]+),\.\.\.,?([\d.]+)?\]( or -1)?")
WORDS: Final = re.compile(r"(?:\(case insensitive\) )?\[(.*)\]")
WIDTHS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
BROKER: Final = load()

WIDER: Final[dict[str, str]] = {
    "segment.bytes": "segments may be smaller than 1 MiB, as in Kafka up to 4.0",
    "log.segment.bytes": "the same",
}
"""Settings that take more than Kafka's do, with the reason."""


class Row(NamedTuple):
    """A setting as Kafka defines it."""

    kind: str
    name: str
    type: str
    validator: str

    @property
    def bounds(self) -> tuple[str, str]:
        """The least and the largest number as texts; empty where there is none."""
        found = RANGE.fullmatch(self.validator)
        return (found[1], found[2] or "") if found else ("", "")

    @property
    def words(self) -> list[str]:
        """The words that are allowed; empty where any is."""
        found = WORDS.fullmatch(self.validator)
        is_range = "..." in self.validator or "by_duration" in self.validator
        return found[1].split(", ") if found and not is_range else []


ROWS: Final = [Row(*(*line.split(" ", 3), "")[:4]) for line in FILE.read_text().splitlines()]


def refused_by_kafka(row: Row) -> Iterator[str]:
    """Texts that Kafka refuses for a setting."""
    if row.type in WIDTHS or row.type == "DOUBLE":
        yield from ("", "many", "1_0", "0x10")
        low, high = row.bounds
        step = 1 if row.type in WIDTHS else 0.5
        if low:
            yield f"{(int if row.type in WIDTHS else float)(low) - step}"
        if high:
            yield f"{(int if row.type in WIDTHS else float)(high) + step}"
    if row.type in WIDTHS:
        yield from ("1.5", "1e3", str(2 ** (WIDTHS[row.type] - 1)))
    elif row.type == "BOOLEAN":
        yield from ("", "maybe", "1")
    elif row.words:
        yield "no-such-word"
        yield from [""] if row.type == "STRING" else []
    elif row.validator.startswith("non-empty"):
        yield ""


def problems(row: Row, text: str) -> list[Problem]:
    """What is wrong with a value here."""
    if row.kind == "topic":
        return check_topic_overrides({row.name: text})
    if row.kind == "group":
        return check_group_overrides({row.name: text}, BROKER)
    if row.kind == "client-metrics":
        return check_client_metrics({row.name: text})
    try:
        load(file_text=f"{row.name}={text}", file_name="server.properties")
    except ConfigErrors as error:
        return list(error.problems)
    return []


def test_the_table_is_whole() -> None:
    kinds = [row.kind for row in ROWS]
    counts = [kinds.count(kind) for kind in ("broker", "topic", "group", "client-metrics")]
    assert counts == [360, 34, 17, 3]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}-{row.name}")
def test_what_kafka_refuses_is_refused(row: Row) -> None:
    taken = [text for text in refused_by_kafka(row) if not problems(row, text)]
    assert bool(taken) == (row.name in WIDER), taken


@pytest.mark.parametrize("row", [row for row in ROWS if row.words], ids=lambda row: row.name)
def test_words_of_kafka_are_taken(row: Row) -> None:
    assert {word: problems(row, word) for word in row.words} == {word: [] for word in row.words}


def test_at_run_time_the_same_is_refused() -> None:
    name = "num.io.threads"
    reason = f"{name} = '0'.*too small; give a whole number, at least 1"
    with pytest.raises(ConfigErrors, match=reason):
        with_dynamic(BROKER, {name: "0"}, fresh=[name])
    assert with_dynamic(BROKER, {name: "4"}, fresh=[name]).text_of(name) == "4"


@pytest.mark.parametrize(
    "name",
    [
        *("leader.replication.throttled.rate", "follower.replication.throttled.rate"),
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_limits_of_moves_are_taken_at_run_time(name: str) -> None:
    """The settings of a broker that no file has, in Kafka: its tool for moves sets them."""
    assert with_dynamic(BROKER, {name: "1000"}, fresh=[name]).text_of(name) == "1000"
    with pytest.raises(ConfigErrors, match="too small"):
        with_dynamic(BROKER, {name: "-1"}, fresh=[name])


def test_what_an_older_release_has_stored_is_no_obstacle() -> None:
    stored = {"num.io.threads": "0", "max.connections": "7"}
    assert with_dynamic(BROKER, stored, fresh=["max.connections"]).text_of("max.connections") == "7"
