"""Writes one directory with everything in it: `python -m tests.old_directories.write NAME`.

A run makes two archives: NAME-stopped after a clean stop, NAME-killed after kill -9; both with an
open transaction. The workload is that of the round trips, and groups of both protocols with commits
of their members, topics with each density variant, a topic that the cleaner has compacted, and
settings changed at run time.
"""

import json
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.compat.brokers import TidelogProcess
from tests.old_directories.contents import CLASSIC_GROUP, CONSUMER_GROUP, contents
from tests.roundtrip import workload
from tests.support.wire import Wire

ARCHIVES = Path(__file__).parent / "directories"
VARIANTS = ("interval", "minute", "minute-map")
SETTINGS = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}
PATIENCE_S = 180
CHANGED = {
    ConfigResource.Type.TOPIC: ("untimed", "retention.ms", "98765432100"),
    ConfigResource.Type.BROKER: ("0", "log.retention.ms", "87654321000"),
    ConfigResource.Type.GROUP: (CONSUMER_GROUP, "consumer.session.timeout.ms", "50000"),
}


def main() -> int:
    """Write both archives of the name on the command line."""
    (name,) = sys.argv[1:]
    write(f"{name}-stopped", lambda broker: broker.stop())
    write(f"{name}-killed", _kill)
    return 0


def write(name: str, end: Callable[[TidelogProcess], None]) -> None:
    """Fill a directory, ask what is in it, `end` the broker and pack what it left."""
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home, "data")
        broker = TidelogProcess(directory, settings=SETTINGS)
        broker.start()
        fill(broker.bootstrap)
        wait_for(lambda: not _dirty(directory), "the cleaner has compacted")
        expected = contents(broker.bootstrap)
        end(broker)
        Path(home, "expected.json").write_text(json.dumps(expected), encoding="utf-8")
        ARCHIVES.mkdir(exist_ok=True)
        with tarfile.open(ARCHIVES / f"{name}.tar.xz", "w:xz") as archive:
            for member in ("data", "expected.json"):
                archive.add(Path(home, member), member)


def fill(bootstrap: str) -> None:
    """Every kind of record, group and setting that a directory can hold."""
    made = workload.topics(workload.SMALL)
    made["compacted"] = (1, {**workload.SMALL, "cleanup.policy": "compact", "segment.bytes": "300"})
    for variant in VARIANTS:
        made[f"density-{variant}"] = (1, {**workload.SMALL, "time.index.variant": variant})
    with Wire(bootstrap) as wire:
        workload.write(wire, made, rounds=4, old_formats=True)
        for variant in VARIANTS:
            workload.timed(wire, f"density-{variant}", rounds=30)
        workload.leave_open(wire, Random(5))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    node = str(next(iter(admin.list_topics(timeout=PATIENCE_S).brokers)))
    for kind, (resource, setting, value) in CHANGED.items():
        changed = ConfigResource(kind, node if kind is ConfigResource.Type.BROKER else resource)
        changed.add_incremental_config(
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        )
        for done in admin.incremental_alter_configs([changed]).values():
            done.result(timeout=PATIENCE_S)
    _consume(bootstrap, CLASSIC_GROUP, {"group.protocol": "classic"})
    _consume(bootstrap, CONSUMER_GROUP, {"group.protocol": "consumer"})


def _consume(bootstrap: str, group: str, options: dict[str, str]) -> None:
    """A member of `group` that reads ten records and commits them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe(["formats"])
    seen: list[object] = []

    def has_read() -> bool:
        seen.extend(consumer.consume(10 - len(seen), 0.2))
        return len(seen) >= 10

    wait_for(has_read, f"{group} has read")
    consumer.commit(asynchronous=False)
    consumer.close()


def wait_for(is_true: Callable[[], bool], what: str) -> None:
    """Return when `is_true`; raise after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S} s until {what}")
        time.sleep(0.05)


def _dirty(directory: Path) -> bool:
    """Whether the cleaner has still to compact the topic `compacted`."""
    checkpoint = directory / "cleaner-offset-checkpoint"
    return not (checkpoint.exists() and "compacted 0" in checkpoint.read_text(encoding="utf-8"))


def _kill(broker: TidelogProcess) -> None:
    assert broker.process is not None
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait()


if __name__ == "__main__":
    sys.exit(main())
