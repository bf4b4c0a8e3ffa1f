"""Runs the catalogue through one Apache Kafka and through Tidelog, and lists what differs.

`python -m tests.differential.run VERSION...` prints a report; the tests call `compare`.
"""

import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.compat.brokers import TidelogProcess
from tests.differential.catalogue import Case, cases
from tests.differential.observe import SETTINGS, Observed, Observer, Reach, differing, wanted
from tests.support.kafka_peer import (
    FIRST_WITH_TIME_INDEX,
    LAST_BEFORE_KRAFT,
    LAST_WITH_OLD_PROTOCOLS,
    NEWEST,
    OLDEST,
    KafkaPeer,
)

REACHES: Final[Mapping[str, Reach]] = {
    OLDEST: Reach(range(1), (0,), range(1), False, False, None),
    FIRST_WITH_TIME_INDEX: Reach(range(3), (0, 1, 2, 3), range(2), False, False, 0),
    LAST_BEFORE_KRAFT: Reach(range(10), (0, 1, 2, 3, 4, 9, 10, 11), range(6), True, False, 2),
    LAST_WITH_OLD_PROTOCOLS: Reach(range(12), (0, 1, 2, 3, 4, 9, 10, 12), range(10), True, True, 2),
    NEWEST: Reach(range(3, 12), (4, 9, 10, 12), range(1, 11), True, True, 2),
}
"""What each release and Tidelog have in common."""

_QUIET: Final = {"log.retention.check.interval.ms": "3600000", "log.cleaner.enable": "false"}


_STOP_TIMEOUT_S: Final = 180
_STOPPED_CLEANLY: Final = (0, 128 + signal.SIGTERM)
"""Exit statuses after SIGTERM: ours, and that of a Java which ran its shutdown hooks."""


class Difference(NamedTuple):
    """One aspect of one case in one topic that is not the same."""

    version: str
    topic: str
    case: str
    aspect: str
    ours: object
    theirs: object


def compare(version: str, directory: Path) -> list[Difference]:
    """Every difference between Tidelog and an Apache Kafka of that version."""
    reach = REACHES[version]
    topics = ["create-time"] if reach.create_topics is None else list(SETTINGS)
    chosen = {topic: [case for case in cases() if wanted(topic, case, reach)] for topic in topics}
    partitions = max(len(some) for some in chosen.values())
    default_partitions = {"num.partitions": str(partitions), "log.index.interval.bytes": "200"}
    ours_dir = directory / "tide"
    tide = TidelogProcess(ours_dir, settings={**default_partitions, "metrics.listener": ""})
    ours = _observe(tide, ours_dir, reach, chosen)
    peer = KafkaPeer(
        directory / "kafka",
        version=version,
        settings={**_QUIET, **default_partitions},
        heap="768m",
    )
    theirs = _observe(peer, peer.log_dir, reach, chosen)
    return [
        Difference(
            version,
            topic,
            case.name,
            aspect,
            ours[topic][case.name].aspects.get(aspect),
            theirs[topic][case.name].aspects.get(aspect),
        )
        for topic, some in chosen.items()
        for case in some
        for aspect in differing(ours[topic][case.name], theirs[topic][case.name])
    ]


def _observe(
    broker: TidelogProcess | KafkaPeer,
    data: Path,
    reach: Reach,
    chosen: Mapping[str, list[Case]],
) -> dict[str, dict[str, Observed]]:
    with broker:
        observer = Observer(broker.bootstrap, data, reach)
        found = {topic: observer.run(topic, some) for topic, some in chosen.items()}
        observer.close()
        assert broker.process is not None
        broker.process.send_signal(signal.SIGTERM)
        # More than a thousand partitions to close; a broker that is killed leaves other files.
        status = broker.process.wait(_STOP_TIMEOUT_S)
        assert status in _STOPPED_CLEANLY, f"{type(broker).__name__} ended with {status}"
    if reach.has_batches:
        for topic, some in chosen.items():
            for partition, case in enumerate(some):
                found[topic][case.name].aspects |= observer.stored(topic, partition)
    return found


def main() -> int:
    """Prints the differences that are not said to be intended; the exit status says if any."""
    from tests.differential.intended import unexplained

    versions = sys.argv[1:] or list(REACHES)
    count = 0
    for version in versions:
        with tempfile.TemporaryDirectory() as directory:
            found = unexplained(compare(version, Path(directory)))
        count += len(found)
        for difference in found:
            print(
                f"{difference.version} {difference.topic}: {difference.case}: {difference.aspect}\n"
                f"  ours   {difference.ours!r:.300}\n  theirs {difference.theirs!r:.300}"
            )
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
