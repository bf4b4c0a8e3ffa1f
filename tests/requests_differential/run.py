"""Sends the catalogue to one Apache Kafka and to Tidelog, and lists what differs.

`python -m tests.requests_differential.run [API...]` prints a report, one line for what differs
alike in several versions; the tests call `compare`.
"""

import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey
from tests.compat.brokers import TidelogProcess
from tests.requests_differential.conversation import Conversation, Seen
from tests.requests_differential.mutations import Case, cases
from tests.requests_differential.normal import mismatches
from tests.support.kafka_peer import NEWEST, KafkaPeer

_NO_TIMER_MS: Final = str(3_600_000)
FOR_BOTH: Final = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": _NO_TIMER_MS,
    "log.cleaner.enable": "false",
    # Kafka maps this much for each of two indexes of each partition.
    "log.index.size.max.bytes": "65536",
    # One session for each fetch of the catalogue.
    "max.incremental.fetch.session.cache.slots": "10000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": _NO_TIMER_MS,
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Nothing happens by itself while the requests are sent."""

FOR_KAFKA: Final = {
    **FOR_BOTH,
    # Assignments are made before a heartbeat is answered, so that answers do not hang on time.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
}


class Difference(NamedTuple):
    """One row of one answer that is not the same."""

    api: ApiKey
    version: int
    sent: str
    at: str
    ours: str
    theirs: str


def compare(chosen: Sequence[Case], directory: Path) -> list[Difference]:
    """Every difference between the answers of Tidelog and those of an Apache Kafka."""
    return differences(chosen, from_tidelog(chosen, directory), from_kafka(chosen, directory))


def from_tidelog(chosen: Sequence[Case], directory: Path) -> list[Seen]:
    """What a Tidelog on a new directory answers."""
    data_dir = directory / "tide"
    with TidelogProcess(data_dir, settings={**FOR_BOTH, "metrics.listener": ""}) as broker:
        return asyncio.run(Conversation(broker.bootstrap, str(data_dir)).run(chosen))


def from_kafka(chosen: Sequence[Case], directory: Path) -> list[Seen]:
    """What an Apache Kafka on a new directory answers."""
    with KafkaPeer(directory / "kafka", settings=FOR_KAFKA, heap="1g") as broker:
        return asyncio.run(Conversation(broker.bootstrap, str(broker.log_dir)).run(chosen))


def differences(
    chosen: Sequence[Case], ours: Sequence[Seen], theirs: Sequence[Seen]
) -> list[Difference]:
    """What differs, case by case."""
    return [
        Difference(case.api, case.version, case.sent, prefix + row.at, row.ours, row.theirs)
        for case, mine, other in zip(chosen, ours, theirs, strict=True)
        for prefix, left, right in (
            ("", mine.answer, other.answer),
            *(
                (f"afterwards {n}: ", *pair)
                for n, pair in enumerate(zip_longest(mine.after, other.after), 1)
            ),
        )
        for row in mismatches(left, right)
    ]


def report(found: Iterable[Difference]) -> list[str]:
    """A line for each difference that is the same in several versions."""
    grouped = defaultdict(list)
    for row in found:
        grouped[row._replace(version=0)].append(row.version)
    return [
        f"{row.api.name} {_ranges(versions)} | {row.sent} | {row.at} | "
        f"ours {row.ours:.200} | kafka {row.theirs:.200}"
        for row, versions in grouped.items()
    ]


def _ranges(versions: Sequence[int]) -> str:
    return f"{min(versions)}-{max(versions)}" if len(versions) > 1 else str(versions[0])


def main() -> int:
    """Prints the differences that are not said to be intended; the exit status says if any."""
    from tests.requests_differential.intended import unexplained

    wanted = sys.argv[1:]
    chosen = [case for case in cases() if not wanted or case.api.name in wanted]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found = compare(chosen, Path(directory))
    left = unexplained(found)
    print(*report(left), sep="\n")
    print(
        f"{len(chosen)} requests to Apache Kafka {NEWEST} and to Tidelog: {len(found)} differences,"
        f" {len(left)} unexplained; {time.monotonic() - started:.0f} s"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
