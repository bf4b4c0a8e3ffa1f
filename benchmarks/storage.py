"""The storage engine by itself, without broker and sockets: what its design promises, measured.

Appends with group commits, sequential reads, lookups by time, recovery after a crash with small and
with large batches, compaction, a clean start and the memory of idle partitions. Every answer of a
lookup is checked against arithmetic. The targets are those that the engine was designed for.
`python -m benchmarks.storage [--records 10000000] [--partitions 3500] [--folder DIR]`
"""

import argparse
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import machine
from config import load, topic_config
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.directory.data_dir import DataDir
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.log.compaction import compact
from storage.log.log import Log
from storage.log.values import Isolation
from storage.recovery.recovery import open_log

NOW_MS = 1_700_000_000_000
STEP_MS = 10
BATCH_RECORDS = 50
SEGMENTS = 1000
READ_BYTES = 1 << 20
FLUSH_EVERY = 200

Row = tuple[str, str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=20_000)
    parser.add_argument("--partitions", type=int, default=3500)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-storage-", dir=options.folder) as name:
        folder = Path(name)
        print(machine.markdown(machine.describe(folder)))
        rows = [
            *measure_log(folder / "log", options.records, options.lookups),
            *(measure_recovery(folder / f"recovery-{n}", n) for n in (1, BATCH_RECORDS)),
            measure_compaction(folder / "compaction"),
            measure_start(folder / "start", 1000),
            measure_memory(folder / "idle", options.partitions),
        ]
    print("| what | measured | target |\n|---|---|---|")
    for what, measured, target in rows:
        print(f"| {what} | {measured} | {target} |")
    return 0


def batch(first: int, count: int, *, value_bytes: int = 60, keys: int = 0) -> memoryview:
    """A batch of records 10 ms apart; with `keys` each has one of so many."""
    records = [
        Record(
            0,
            NOW_MS + number * STEP_MS,
            b"key-%d" % (number % keys) if keys else None,
            bytes(value_bytes),
        )
        for number in range(first, first + count)
    ]
    return memoryview(bytearray(build_batch(records)))


def opened(folder: Path, *, is_clean: bool = True, **settings: str) -> Log:
    """The log in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return open_log(
        str(folder),
        topic="bench",
        partition=0,
        config=topic_config(
            {"message.timestamp.after.max.ms": str(2**63 - 1), **overrides}, load()
        ),
        files=RealFiles(),
        now_ms=NOW_MS,
        is_clean=is_clean,
    )


def fill(log: Log, records: int, batch_records: int = BATCH_RECORDS, *, keys: int = 0) -> float:
    """Append so many records with a group commit now and then; seconds spent in the log."""
    spent = 0.0
    for number, first in enumerate(range(0, records, batch_records)):
        data = batch(first, batch_records, keys=keys)
        started = time.perf_counter()
        log.append(data, now_ms=NOW_MS)
        if number % FLUSH_EVERY == 0:
            log.flush()
        spent += time.perf_counter() - started
    started = time.perf_counter()
    log.flush()
    return spent + time.perf_counter() - started


def measure_log(folder: Path, records: int, lookups: int) -> list[Row]:
    """Appends, reads and lookups over one log in a thousand segments."""
    one = len(batch(0, BATCH_RECORDS)) * records // BATCH_RECORDS
    segment_bytes = max(20_000, one // SEGMENTS)
    log = opened(folder, segment_bytes=str(segment_bytes))
    seconds = fill(log, records)
    size = log.size_bytes
    rows = [("append, with syncs", f"{size / seconds / 1e6:,.0f} MB/s", "")]
    started = time.perf_counter()
    offset = 0
    while offset < log.high_watermark:
        result = log.read(offset, max_bytes=READ_BYTES, isolation=Isolation.READ_UNCOMMITTED)
        offset = result.next_offset
    seconds = time.perf_counter() - started
    rows.append(("read from the start", f"{size / seconds / 1e6:,.0f} MB/s", ""))
    source = random.Random(1)
    times_ms: list[float] = []
    bytes_read: list[int] = []
    for number in range(lookups):
        wanted = source.randrange(records)
        asked = NOW_MS + wanted * STEP_MS - source.randrange(STEP_MS)
        started = time.perf_counter()
        found = log.offset_for_timestamp(asked)
        times_ms.append((time.perf_counter() - started) * 1000)
        assert found is not None
        assert found.offset == wanted
        if number % 100 == 0:
            bytes_read.append(log.explain_offset_for_timestamp(asked).bytes_read)
    centiles = statistics.quantiles(times_ms, n=100)
    what = f"lookup by time, {records:,} records in {len(log.segments):,} segments"
    rows.append((what, f"p50 {centiles[49]:.3f} ms, p99 {centiles[98]:.3f} ms", "p99 below 2 ms"))
    limit = log.config.index_interval_bytes + 2 * len(batch(0, BATCH_RECORDS))
    rows.append(
        ("bytes of log read by a lookup, at most", f"{max(bytes_read):,}", f"about {limit:,}")
    )
    log.close(NOW_MS)
    return rows


def measure_recovery(folder: Path, batch_records: int) -> Row:
    """How fast everything is verified and indexed again after a crash."""
    records = 200_000 if batch_records == 1 else 1_000_000
    log = opened(folder)
    fill(log, records, batch_records)
    size = log.size_bytes
    log.abandon()
    for file in folder.glob("*index"):
        file.unlink()
    started = time.perf_counter()
    again = opened(folder, is_clean=False)
    seconds = time.perf_counter() - started
    assert again.recovery_report.scanned_bytes == size
    assert again.log_end_offset == records
    again.close(NOW_MS)
    what = (
        f"recovery, batches of {batch_records} records ({size * batch_records // records:,} bytes)"
    )
    return what, f"{size / seconds / 1e6:,.0f} MB/s", "200 MB/s"


def measure_compaction(folder: Path) -> Row:
    """One round over 500,000 records of 50,000 keys."""
    log = opened(folder, cleanup_policy="compact", segment_bytes="10000000")
    fill(log, 500_000, keys=50_000)
    log.roll(NOW_MS)
    log.flush()
    started = time.perf_counter()
    result = run_steps(compact(log, now_ms=NOW_MS, map_bytes=1 << 27))
    seconds = time.perf_counter() - started
    assert result is not None
    assert result.records_dropped == 450_000
    log.close(NOW_MS)
    rate = 500_000 / seconds
    return (
        "compaction",
        f"{rate:,.0f} records/s, {result.bytes_before / seconds / 1e6:,.0f} MB/s",
        "",
    )


def measure_start(folder: Path, partitions: int) -> Row:
    """A clean start of many partitions with a few closed segments each."""
    prepare_partitions(folder, partitions)
    started = time.perf_counter()
    data_dir = DataDir.open(str(folder), files=RealFiles(), broker_config=load(), now_ms=NOW_MS)
    seconds = time.perf_counter() - started
    assert data_dir.stopped_cleanly
    data_dir.close(NOW_MS)
    return f"clean start of {partitions:,} partitions", f"{seconds:.2f} s", "below 2 s"


def measure_memory(folder: Path, partitions: int) -> Row:
    """Resident memory that idle partitions take, with everything of them."""
    prepare_partitions(folder, partitions)
    gc.collect()
    before = resident_bytes()
    data_dir = DataDir.open(str(folder), files=RealFiles(), broker_config=load(), now_ms=NOW_MS)
    gc.collect()
    grown = resident_bytes() - before
    data_dir.close(NOW_MS)
    what = f"memory of {partitions:,} idle partitions, logs and indexes"
    return what, f"{grown / 1e6:,.0f} MB", "indexes below 57 MB"


def prepare_partitions(folder: Path, partitions: int) -> None:
    """A directory with a topic of so many partitions, three segments each, cleanly stopped."""
    data_dir = DataDir.open(str(folder), files=RealFiles(), broker_config=load(), now_ms=NOW_MS)
    settings = {"segment.bytes": "4000", "index.interval.bytes": "1000"}
    topic = run_steps(data_dir.create_topic("idle", partitions, settings, NOW_MS))
    data = bytes(batch(0, 10, value_bytes=100))
    for log in topic.logs:
        for _ in range(7):
            log.append(memoryview(bytearray(data)), now_ms=NOW_MS)
        # As a broker does; unsynced files keep their descriptors.
        log.flush()
    data_dir.close(NOW_MS)


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


if __name__ == "__main__":
    sys.exit(main())
