"""Power cuts under a real broker with load: `python -m tests.crash.power_cut --cycles 100`.

Each cycle starts the broker on a loop-mounted ext4, lets librdkafka produce (acks=all, once
idempotent and once plain), consume and commit, and cuts the power of the file system at a random
moment, with requests and syncs under way. Then the broker is killed, the file system mounted again,
and the answers that clients had got are compared with what the next broker finds:

* acknowledged records, and records that a consumer had seen, are there with their offsets;
* the committed offset is there; the topic that was created is there, the one deleted is not;
* after a clean stop the auditor finds nothing.

The answers of a cycle are looked at once more after the next cut. A run like that must be able to
fail: with `--control` the same cycles run with durability given up, by settings (`os`: acks=1 and
flush.policy=os) or by force (`unsynced`: every sync does nothing), and records must be lost.
Without `--control` both follow with fewer cycles, so that one command gives a whole batch.

A power cut stops the processor with the disk, and the ioctl alone does not: a sync that is under
way while the file system goes down may return success over data that is gone (Linux 6.18 does
that about once in ten cuts). So the broker's loop is stopped first, by a signal, and then the file
system; what the clients have received by then had left a machine with power.

Prints a line of JSON per batch; the exit code is 1 when anything promised was lost, 2 when a
control lost nothing, 3 when this machine cannot do it.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException

from storage.audit.fsck import audit_directory
from storage.disk.files import RealFiles
from tests.crash.client_load import (
    Load,
    Records,
    admin,
    committed,
    create_topic,
    delete_topic,
    lost,
    read,
)
from tests.crash.loop_disk import LoopDisk, why_unavailable
from tests.support.broker import BrokerProcess

CONTROLS = ("os", "unsynced")
CONTROL_SHARE = 10
"""One control cycle, of each kind, per so many real ones."""

LOAD_S = (0.1, 0.5)
AFTER_CUT_S = 0.05


@dataclass(slots=True, kw_only=True)
class Promise:
    """The answers that clients got in one cycle, about one topic."""

    topic: str
    acked: Records = field(default_factory=dict)
    seen: Records = field(default_factory=dict)
    group: str = ""
    committed: int = -1
    deleted: str = ""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of a batch of cycles."""

    control: str
    seed: int
    cycles: int = 0
    acked: int = 0
    acked_lost: int = 0
    seen: int = 0
    seen_lost: int = 0
    commits_lost: int = 0
    topics_wrong: int = 0
    fsck_findings: int = 0
    recovery_ms_max: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    @property
    def problems(self) -> int:
        counts = (self.acked_lost, self.seen_lost, self.commits_lost, self.topics_wrong)
        return sum(counts) + self.fsck_findings

    def note(self, sentence: str) -> None:
        if len(self.examples) < 10:
            self.examples.append(f"seed {self.seed} cycle {self.cycles}: {sentence}")


class PowerCuts:
    """A batch of cycles on one disk."""

    def __init__(self, directory: Path, *, control: str = "", seed: int = 1) -> None:
        """`control` is empty or one of `CONTROLS`."""
        self.tally = Tally(control=control, seed=seed)
        self._directory = directory
        self._rng = random.Random(seed)
        self._promises: list[Promise] = []

    def run(self, cycles: int) -> Tally:
        """So many cuts, and one more look at what is there in the end."""
        started = time.perf_counter()
        with LoopDisk(self._directory) as disk:
            for cycle in range(cycles):
                self._look(disk)
                self._load_and_cut(disk, cycle)
                self.tally.cycles += 1
            self._look(disk)
        self.tally.seconds = round(time.perf_counter() - started, 1)
        return self.tally

    def _broker(self, disk: LoopDisk) -> BrokerProcess:
        control = self.tally.control
        module = f"{__package__}.unsynced_broker" if control == "unsynced" else "broker"
        broker = BrokerProcess(disk.path / "data", module=module)
        broker.wait_ready()
        return broker

    def _load_and_cut(self, disk: LoopDisk, cycle: int) -> None:
        promise = Promise(topic=f"cycle-{cycle}", group=f"watcher-{cycle}")
        is_os = self.tally.control == "os"
        broker = self._broker(disk)
        try:
            create_topic(broker.port, promise.topic, flush_policy="os" if is_os else "batch")
            if len(self._promises) > 1:
                promise.deleted = self._promises.pop(0).topic
                with suppress(KafkaException) if self.tally.control else nullcontext():
                    # The creation may have been lost where everything may be lost.
                    delete_topic(broker.port, promise.deleted)
            load = Load(
                broker.port, promise.topic, cycle, acks="1" if is_os else "all", consumes=True
            )
            load.run(self._rng.uniform(*LOAD_S))
            promise.committed = load.commit()
            load.run(self._rng.uniform(*LOAD_S))
            stop_loop(broker.process.pid)
            disk.cut_power()
            load.run(AFTER_CUT_S)
        finally:
            broker.process.kill()
            broker.process.communicate()
        load.collect()
        disk.unmount()
        disk.mount()
        promise.acked, promise.seen = load.acked, load.seen
        self._promises.append(promise)

    def _look(self, disk: LoopDisk) -> None:
        """Start, compare with the answers, stop cleanly, audit."""
        if not self._promises:
            return
        tally = self.tally
        broker = self._broker(disk)
        tally.recovery_ms_max = max(tally.recovery_ms_max, int(broker.ready_after_s * 1000))
        try:
            topics = admin(broker.port).list_topics(timeout=10).topics
            for promise in self._promises:
                if promise.topic not in topics or promise.deleted in topics:
                    tally.topics_wrong += 1
                    tally.note(f"after {promise.topic} the topics are {sorted(topics)}")
                self._compare(broker.port, promise, exists=promise.topic in topics)
        finally:
            status = broker.stop()
        if status != 0:
            tally.note(f"the stop ended with {status}")
        for finding in audit_directory(str(disk.path / "data"), RealFiles()).findings:
            tally.fsck_findings += 1
            tally.note(f"fsck: {finding}")

    def _compare(self, port: int, promise: Promise, *, exists: bool) -> None:
        tally = self.tally
        found = read(port, promise.topic) if exists else {}
        is_new = promise is self._promises[-1]
        tally.acked += len(promise.acked) * is_new
        tally.seen += len(promise.seen) * is_new
        for name, records in (("acked", promise.acked), ("seen", promise.seen)):
            gone = lost(found, records)
            if gone:
                setattr(tally, f"{name}_lost", getattr(tally, f"{name}_lost") + len(gone))
                where = min(gone)
                tally.note(f"{len(gone)} {name} records of {promise.topic} lost, first {where}")
        offset = committed(port, promise.group, promise.topic)
        if offset < promise.committed:
            tally.commits_lost += 1
            tally.note(f"offset {promise.committed} was committed, {offset} is there")


def stop_loop(pid: int) -> None:
    """Stop the process; on return its main thread runs no further, while others may still sync."""
    os.kill(pid, signal.SIGSTOP)
    while _state(pid) != "T":
        time.sleep(0)


def _state(pid: int) -> str:
    """The state of the main thread: R, S, D, T, ..."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def run_batch(cycles: int, *, control: str = "", seed: int = 1) -> Tally:
    """A batch on a disk of its own, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="power-cut-") as directory:
        return PowerCuts(Path(directory), control=control, seed=seed).run(cycles)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--control", choices=CONTROLS, help="run only this negative control")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    reason = why_unavailable()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 3
    if arguments.control:
        return _report(run_batch(arguments.cycles, control=arguments.control, seed=arguments.seed))
    status = _report(run_batch(arguments.cycles, seed=arguments.seed))
    for control in CONTROLS:
        cycles = max(2, arguments.cycles // CONTROL_SHARE)
        status = max(status, _report(run_batch(cycles, control=control, seed=arguments.seed)))
    return status


def _report(tally: Tally) -> int:
    print(json.dumps(asdict(tally)), flush=True)
    if tally.control:
        return 0 if tally.acked_lost else 2
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
