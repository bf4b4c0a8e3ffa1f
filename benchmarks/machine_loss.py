"""What the loss of a machine costs under load: records that were acknowledged, and are gone.

A broker with `remote.storage.url` has one tiered topic. A producer (librdkafka, acks=all, in order)
sends numbered records at `--rate` and notes when which of them were acknowledged. After `--seconds`
the broker is killed (SIGKILL) and its data directory deleted, `tidelog restore --take-over` makes a
new one from the store, and a broker on that says where each partition ends. All restored records
are read and compared with what was sent: exit code 1 if one is missing before the end, or is wrong.

Lost is what was acknowledged and is not there. "Oldest" is how long before the kill the oldest lost
record was acknowledged, 0 when none is lost. The acknowledgement of each 64th record of a partition
is noted, so both may be too low by as much. MB are 10^6 bytes of values. The rate counts from the
first send to the kill, with what was acknowledged then.

The store is a folder, or with `--s3` an S3 server (versitygw; `make test-s3` installs it) that
outlives the broker. Producer, broker and store share this machine. All files are below TMPDIR: with
`--rate 0` up to some GB.
`python -m benchmarks.machine_loss [--rate MB] [--seconds S] [--runs N] [--s3] [--partitions N]
[--segment-bytes N] [--setting NAME=VALUE ...]`
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness import brokers, loads, machine, report
from benchmarks.harness.numbered_load import NUMBER_BYTES, value_of
from storage.bucket.journal import read_state
from storage.bucket.restore import topics_in
from storage.remote.engine import list_clusters, open_store
from tests.compat.brokers import TidelogProcess
from tests.s3.server import BUCKET, find_versitygw, s3_server

TOPIC = "numbered"
PATIENCE_S = 60.0
READ_AT_ONCE = 10_000
HEADINGS = ["run", "MB/s acknowledged", "MB acknowledged", "MB lost", "oldest s", "restore s"]

Note = tuple[float, int, int]
"""When, which partition, and the end of what was acknowledged of it."""


class WrongRecord(Exception):
    """A restored record is missing or is not what was sent; the message says which."""


class Loss(NamedTuple):
    """What one run found."""

    mb_per_s: float
    acknowledged_mb: float
    lost_mb: float
    oldest_s: float
    restore_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table; 1 if a restored record is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_loss", description=__doc__)
    parser.add_argument("--rate", type=float, default=8, help="MB/s; 0: as fast as it goes")
    parser.add_argument("--seconds", type=float, default=20, help="of load before the kill")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--segment-bytes", type=int, help="default: the broker's")
    parser.add_argument("--s3", action="store_true", help="an S3 server in place of a folder")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="more of the topic"
    )
    options = parser.parse_args(arguments)
    if options.value_bytes < NUMBER_BYTES:
        parser.error(f"--value-bytes is at least {NUMBER_BYTES}")
    if not all("=" in setting for setting in options.setting):
        parser.error("--setting takes NAME=VALUE")
    if options.s3 and find_versitygw() is None:
        parser.error("there is no S3 server: `make .cache/go/bin/versitygw` builds it")
    brokers.end_with_us()
    found = []
    load = os.getloadavg()[0]
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="bench-machine-loss-") as name:
            try:
                found.append(_run(Path(name), options))
            except WrongRecord as error:
                print(f"a restored record is wrong: {error}", file=sys.stderr)
                return 1
    facts = machine.markdown(machine.describe(Path(tempfile.gettempdir())))
    print(f"{facts}\n* load before: {load:.1f}\n\n{report.table(HEADINGS, rows(found))}")
    return 0


def _run(folder: Path, options: argparse.Namespace) -> Loss:
    """Fill, kill, restore, compare."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(_store(folder, is_s3=options.s3))
        settings = {"metrics.listener": "", "remote.storage.url": url}
        broker = stack.enter_context(TidelogProcess(folder / "first", settings=settings))
        loads.create_topic(broker.bootstrap, TOPIC, options.partitions, **_topic_settings(options))
        _wait_for_topic(url)
        producer, started_s = stack.enter_context(_producer(broker.bootstrap, options))
        time.sleep(max(0.0, started_s + options.seconds - time.monotonic()))
        killed_s = time.monotonic()
        broker.kill()
        notes = _notes(producer)
        shutil.rmtree(folder / "first")
        restore_s = _restore(url, folder / "second")
        restored = TidelogProcess(folder / "second", settings=settings)
        ends = read_back(
            stack.enter_context(restored).bootstrap, options.partitions, options.value_bytes
        )
    acknowledged, lost, oldest_s = loss(notes, ends, killed_s)
    mb = acknowledged * options.value_bytes / 1e6
    lost_mb = lost * options.value_bytes / 1e6
    return Loss(mb / (killed_s - started_s), mb, lost_mb, oldest_s, restore_s)


@contextlib.contextmanager
def _store(folder: Path, *, is_s3: bool) -> Iterator[str]:
    """The URL of an empty store; the environment gets what its clients need."""
    if not is_s3:
        yield f"file://{folder}/bucket"
        return
    program = find_versitygw()
    assert program is not None
    with s3_server(program, folder) as server:
        os.environ.update(server.environment)
        yield f"s3://{BUCKET}/bench"


def _topic_settings(options: argparse.Namespace) -> dict[str, str]:
    settings = {"remote.storage.enable": "true"}
    if options.segment_bytes is not None:
        settings["segment.bytes"] = str(options.segment_bytes)
    return settings | dict(setting.split("=", 1) for setting in options.setting)


def _wait_for_topic(url: str) -> None:
    """Return when the store knows the topic, as it does of one that is not new."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        for cluster in list_clusters(url):
            if TOPIC in [topic.name for topic in topics_in(read_state(open_store(url, cluster)))]:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the store does not know the topic after {PATIENCE_S:.0f} s")


@contextlib.contextmanager
def _producer(
    bootstrap: str, options: argparse.Namespace
) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """The producer's process, and when it started to send."""
    load = [TOPIC, options.partitions, options.value_bytes, options.rate * 1e6]
    command = [sys.executable, "-m", "benchmarks.harness.numbered_load", bootstrap]
    with subprocess.Popen(
        [*command, *map(str, load)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, float(_line(process)["started_s"])
        finally:
            process.kill()


def _notes(producer: subprocess.Popen[str]) -> list[Note]:
    """End the producer; what it has noted."""
    producer.send_signal(signal.SIGTERM)
    said = _line(producer)
    if said["failures"]:
        raise loads.LoadFailed(f"records were refused: {said['failures'][:1]}")
    return [(at_s, partition, end) for at_s, partition, end in said["notes"]]


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise loads.LoadFailed(f"the producer ended with {process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def _restore(url: str, directory: Path) -> float:
    """Make the directory with the command; the seconds it took."""
    command = [str(Path(sys.executable).parent / "tidelog"), "restore", url]
    started_s = time.monotonic()
    done = subprocess.run(
        [*command, "--data-dir", str(directory), "--take-over"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"tidelog restore ended with {done.returncode}: {done.stderr[-800:]}")
    return time.monotonic() - started_s


def read_back(bootstrap: str, partitions: int, size: int) -> dict[int, int]:
    """The end of each partition, after all of its records were compared with what was sent.

    Raises:
        WrongRecord: one is missing or has another value.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 2,
            "log_level": 2,
        }
    )
    places = [TopicPartition(TOPIC, number, 0) for number in range(partitions)]
    ends = {}
    for place in places:
        start, ends[place.partition] = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        if start != 0:
            raise WrongRecord(f"partition {place.partition} begins at {start}")
    consumer.assign([place for place in places if ends[place.partition]])
    seen = dict.fromkeys(ends, 0)
    deadline_s = time.monotonic() + PATIENCE_S
    while left := sum(ends.values()) - sum(seen.values()):
        messages = consumer.consume(min(READ_AT_ONCE, left), 1.0)
        for message in messages:
            check(message, seen, size)
        if messages:
            deadline_s = time.monotonic() + PATIENCE_S
        elif time.monotonic() > deadline_s:
            raise WrongRecord(f"no record comes after {seen} of {ends}")
    consumer.close()
    return ends


def check(message: Any, seen: dict[int, int], size: int) -> None:
    """Count a message as seen if it is the next one of its partition, with the value sent.

    Raises:
        WrongRecord: it is another one.
    """
    if message.error() is not None:
        raise WrongRecord(f"{message.error()} after {seen}")
    partition, offset = message.partition(), message.offset()
    if offset != seen[partition]:
        raise WrongRecord(f"partition {partition} has {offset} after {seen[partition]} records")
    number = offset * len(seen) + partition
    if message.value() != value_of(number, size):
        raise WrongRecord(f"partition {partition}, offset {offset} is not number {number}")
    seen[partition] += 1


def loss(notes: Sequence[Note], ends: dict[int, int], killed_s: float) -> tuple[int, int, float]:
    """Records acknowledged, those of them that are lost, and the age of the oldest in seconds."""
    acknowledged: dict[int, int] = {}
    for _, partition, end in notes:
        acknowledged[partition] = max(end, acknowledged.get(partition, 0))
    lost = sum(max(0, end - ends[partition]) for partition, end in acknowledged.items())
    ages_s = [killed_s - at_s for at_s, partition, end in notes if end > ends[partition]]
    return sum(acknowledged.values()), lost, max([0.0, *ages_s])


def rows(found: Sequence[Loss]) -> list[list[str]]:
    """A row for each run, and one of medians."""
    middle = Loss(*(median(column) for column in zip(*found, strict=True)))
    named = {**{str(number): one for number, one in enumerate(found, 1)}, "median": middle}
    return [
        [
            name,
            f"{one.mb_per_s:.1f}",
            f"{one.acknowledged_mb:,.0f}",
            f"{one.lost_mb:,.1f}",
            f"{one.oldest_s:.2f}",
            f"{one.restore_s:.2f}",
        ]
        for name, one in named.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
