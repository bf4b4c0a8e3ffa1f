"""What uploading to an object store costs appends: their latency, rate and CPU, beside none.

Brokers take turns in a random order, each with one topic of small segments:

    local      no object store
    again      the same in another broker: its ratio is the noise of this machine
    stranger   the same, beside a process that sends its files to a real S3 server, read back and
               compared: what the store takes of this machine, by whichever process sends
    uploading  `remote.storage.enable`: closed segments and tails go to a real S3 server
    former     the same with the program of another checkout, `--former DIRECTORY` (its `bin`)
    down       the same, and its store does not answer from the first turn on

A turn is a paced producer (the time from when each request was due until its acknowledgement), then
one that sends as fast as the broker answers. After each turn the broker that uploads has all of it
in the store before the next one begins; the table says how much was uploaded *during* the paced
part. In the end the store that was down answers again, a last paced part runs beside the catching
up, and the time until nothing waits is measured.

The store shares the processors of this machine with broker and producer, which a store elsewhere
does not: `uploading` beside `stranger` is what the broker itself loses by uploading. With
`--elsewhere` the stores run only while no other thread needs a core (SCHED_IDLE), and have their
bytes in memory, which is as near to another machine as one machine comes. Ratios are medians over
the rounds, each beside `local` of the same round, with the quartiles. CPU is that of the broker
while it appends, and until the store has all of it. With `--unsigned` payloads are not signed
(`AWS_UNSIGNED_PAYLOAD`). `make test-s3` installs the store (versitygw). All files are below TMPDIR.
`python -m benchmarks.tiering [--rounds N] [--seconds S] [--rate N] [--megabytes N] [--elsewhere]`
"""

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from benchmarks.harness import brokers, loads, machine, report
from tests.compat.brokers import TidelogProcess
from tests.s3.server import BUCKET, S3Server, find_versitygw, s3_server
from tests.support.kafka_peer import cpu_seconds

TOPIC = "paced"
URL = f"s3://{BUCKET}/bench"
CONDITIONS = ("local", "again", "stranger", "uploading", "former", "down")
UPLOADING = ("uploading", "former")
SEGMENT_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 16_000
SETTLED_S = 300.0
"""How long the store may take to get what waits."""

PATH_HEADINGS = ["store", "p50", "p99", "of each round", "p99 beside local", "uploaded meanwhile"]
RATE_HEADINGS = ["store", "MB/s", "beside local", "CPU s for 1 GB", "until the store has it"]


class Turn(NamedTuple):
    """What one turn of one broker found."""

    p50_ms: float
    p99_ms: float
    uploaded_bytes: int
    bytes_per_s: float
    cpu_s_per_gb: float
    settled_s_per_gb: float


@dataclass(slots=True)
class Subject:
    """A broker, and its store if it has one."""

    broker: TidelogProcess
    store: S3Server | None
    report: Path | None = None
    """What the stranger writes, if there is one."""

    @property
    def is_uploading(self) -> bool:
        """Whether the broker itself has a store."""
        return self.store is not None and self.report is None

    def of_stranger(self, name: str) -> int:
        """A figure of the stranger's report."""
        assert self.report is not None
        return int(json.loads(self.report.read_text())[name])

    def metric(self, name: str) -> int:
        """A figure of the metrics port, without labels."""
        url = f"http://127.0.0.1:{self.broker.ready['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M)
        if found is None:
            raise RuntimeError(f"the metrics port has no {name}")
        return int(float(found[1]))

    @property
    def waiting_bytes(self) -> int:
        """What the store does not have yet of closed segments and tails."""
        if self.report is not None:
            return self.of_stranger("waiting")
        return self.metric("tidelog_remote_backlog_bytes") + self.metric(
            "tidelog_remote_tail_bytes"
        )

    def settle(self) -> float:
        """Seconds until the store has everything."""
        started = time.perf_counter()
        while self.waiting_bytes:
            if time.perf_counter() - started > SETTLED_S:
                raise RuntimeError(f"{self.waiting_bytes} bytes wait for the store")
            time.sleep(0.5)  # an answer of the metrics port is CPU of the broker, too
        return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiering", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15, help="of each paced part")
    parser.add_argument("--rate", type=int, default=200, help="requests a second, of ten records")
    parser.add_argument("--megabytes", type=int, default=200, help="of each unpaced part")
    parser.add_argument("--flush-policy", default="batch", help="of the brokers")
    parser.add_argument("--elsewhere", action="store_true", help="stores at the lowest priority")
    parser.add_argument("--unsigned", action="store_true", help="payloads are not signed")
    parser.add_argument("--former", help="directory of another `tidelog` for the row `former`")
    parser.add_argument("--without", default="", help="rows that are left out, with commas")
    options = parser.parse_args(arguments)
    left_out = {*options.without.split(","), *([] if options.former else ["former"])}
    names = [name for name in CONDITIONS if name not in left_out]
    program = find_versitygw()
    if program is None:
        parser.error("there is no S3 server: `make .cache/go/bin/versitygw` builds it")
    os.environ["AWS_UNSIGNED_PAYLOAD"] = str(options.unsigned).lower()
    brokers.end_with_us()
    machine.touch_memory()
    found: dict[str, list[Turn]] = {name: [] for name in names}
    order = random.Random(17)
    with (
        tempfile.TemporaryDirectory(prefix="bench-tiering-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        subjects = {
            name: stack.enter_context(_subject(name, folder / name, program, options))
            for name in names
        }
        down = subjects.get("down")
        if down is not None and down.store is not None:
            down.store.stop()
        for subject in subjects.values():
            _turn(subject, 20, 1.0, 20)
        for _ in range(options.rounds):
            for name in order.sample(names, len(names)):
                turn = _turn(subjects[name], options.rate, options.seconds, options.megabytes)
                found[name].append(turn)
        last = "" if down is None else _catching_up(down, options.rate, options.seconds)
        facts = machine.markdown(machine.describe(folder))
    print(f"{facts}\n\n{report.table(PATH_HEADINGS, paced_rows(found))}\n")
    print(f"{report.table(RATE_HEADINGS, rate_rows(found))}\n\n{last}")
    return 0


@contextlib.contextmanager
def _subject(
    name: str, folder: Path, program: str, options: argparse.Namespace
) -> Iterator[Subject]:
    """A broker with its topic; with a store it owns the bucket already."""
    folder.mkdir()
    settings = {"log.flush.policy": options.flush_policy, "metrics.listener": "127.0.0.1:0"}
    topic = {"segment_bytes": str(SEGMENT_BYTES)}
    with contextlib.ExitStack() as stack:
        store = None
        if name not in ("local", "again"):
            place = folder
            if options.elsewhere:
                memory = tempfile.TemporaryDirectory(prefix="bench-tiering-", dir="/dev/shm")
                place = Path(stack.enter_context(memory))
            store = stack.enter_context(s3_server(program, place))
            if options.elsewhere:
                _run_when_idle(store)
            os.environ.update(store.environment)  # of the process that starts next
        if name in (*UPLOADING, "down"):
            settings["remote.storage.url"] = URL
            topic["remote_storage_enable"] = "true"
        python = str(Path(options.former) / "python") if name == "former" else ""
        process = TidelogProcess(folder / "data", settings=settings, python=python)
        broker = stack.enter_context(process)
        loads.create_topic(broker.bootstrap, TOPIC, 1, **topic)
        subject = Subject(broker, store)
        if name == "stranger":
            subject.report = folder / "report"
            stack.enter_context(_stranger(folder / "data" / f"{TOPIC}-0", subject.report))
        elif store is not None:
            loads.raw_produce(broker.bootstrap, TOPIC, total_bytes=BATCH_BYTES, batch_bytes=1_100)
            while not subject.metric("tidelog_remote_entries_total"):
                time.sleep(0.2)
        yield subject


@contextlib.contextmanager
def _stranger(partition: Path, report: Path) -> Iterator[None]:
    """The stranger's process, with the store of the environment."""
    command = [sys.executable, "-m", "benchmarks.harness.stranger"]
    with subprocess.Popen([*command, str(partition), URL, str(report)]) as process:
        try:
            while not report.exists():
                if process.poll() is not None:
                    raise RuntimeError(f"the stranger ended with {process.returncode}")
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def _run_when_idle(store: S3Server) -> None:
    """Give the store's threads, and those that they start, what no other thread wants."""
    assert store.process is not None
    for thread in Path(f"/proc/{store.process.pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


def _turn(subject: Subject, rate: int, seconds: float, megabytes: int) -> Turn:
    """The paced part, then the unpaced one."""
    uploaded = _uploaded(subject)
    times = sorted(loads.paced_produce(subject.broker.bootstrap, TOPIC, rate, seconds))
    uploaded = _uploaded(subject) - uploaded
    cpu_s = cpu_seconds(subject.broker.pid)
    total = megabytes * 1_000_000
    speed = loads.raw_produce(
        subject.broker.bootstrap, TOPIC, total_bytes=total, batch_bytes=BATCH_BYTES
    )
    used_s = cpu_seconds(subject.broker.pid) - cpu_s
    if subject.store is not None and subject.store.process is not None:
        subject.settle()
    settled_s = cpu_seconds(subject.broker.pid) - cpu_s
    p50_ms, p99_ms = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.99))
    per_gb = 1e9 / total
    return Turn(p50_ms, p99_ms, uploaded, speed, used_s * per_gb, settled_s * per_gb)


def _uploaded(subject: Subject) -> int:
    if subject.report is not None:
        return subject.of_stranger("uploaded")
    return subject.metric("tidelog_remote_uploaded_bytes_total") if subject.is_uploading else 0


def _catching_up(subject: Subject, rate: int, seconds: float) -> str:
    """Let the store answer again, and append meanwhile."""
    assert subject.store is not None
    waiting = subject.waiting_bytes
    errors = subject.metric(r'tidelog_remote_errors_total\{operation="upload"\}')
    subject.store.start()
    started = time.perf_counter()
    times = sorted(loads.paced_produce(subject.broker.bootstrap, TOPIC, rate, seconds))
    subject.settle()
    took_s = time.perf_counter() - started
    return (
        f"The store that was down refused {errors} uploads; {waiting / 1e6:,.0f} MB waited. When "
        f"it answered again they were there after {took_s:.0f} s; p99 of the paced producer in "
        f"its first {seconds:g} s: {times[int(len(times) * 0.99)] * 1e3:.2f} ms."
    )


def paced_rows(found: Mapping[str, Sequence[Turn]]) -> list[list[str]]:
    """Latencies: medians over the rounds, ratios of turns of the same round."""
    rows = []
    for name, turns in found.items():
        ratios = [a.p99_ms / b.p99_ms for a, b in zip(turns, found["local"], strict=True)]
        rows.append(
            [
                name,
                f"{median(turn.p50_ms for turn in turns):.2f} ms",
                f"{median(turn.p99_ms for turn in turns):.2f} ms",
                ", ".join(f"{turn.p99_ms:.1f}" for turn in turns),
                "" if name == "local" else _spread(ratios),
                f"{sum(turn.uploaded_bytes for turn in turns) / 1e6:,.0f} MB",
            ]
        )
    return rows


def rate_rows(found: Mapping[str, Sequence[Turn]]) -> list[list[str]]:
    """Rates and CPU, the same way."""
    rows = []
    for name, turns in found.items():
        pairs = zip(turns, found["local"], strict=True)
        ratios = [a.bytes_per_s / b.bytes_per_s for a, b in pairs]
        rows.append(
            [
                name,
                f"{median(turn.bytes_per_s for turn in turns) / 1e6:.0f}",
                "" if name == "local" else _spread(ratios),
                f"{median(turn.cpu_s_per_gb for turn in turns):.2f}",
                f"{median(turn.settled_s_per_gb for turn in turns):.2f}",
            ]
        )
    return rows


def _spread(ratios: Sequence[float]) -> str:
    """The median, and the quartiles where there are enough for them."""
    text = f"{median(ratios):.2f}"
    if len(ratios) < 4:
        return text
    low, _, high = quantiles(ratios, n=4)
    return f"{text} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
