"""The density variants of KIP-33's drafts beside the index that shipped: cost, size, memory.

An early draft has a table: what an index with an entry per second, or per minute, takes of memory
on a broker with 3,500 partitions, for a day. This measures it. A *quiet* partition gets one batch
per second for a day (86,400 batches), so that an entry per second is one per batch. One such log is
written for each variant by the storage engine itself, and 3,500 partitions are made of it by hard
links, which cost a broker the same memory as copies would.

* size: of the index file that lookups start from;
* idle: what 3,500 partitions add to the resident memory of a fresh process that opens them after a
  clean stop, less what 3,500 empty partitions add;
* asked: the same after one lookup in each;
* lookups at random times, each answer checked, in the quiet partition and in a *busy* one: 20
  batches of 10 KB per second for ten minutes. The bytes are all that was read of log and indexes.

The log lies in the page cache. `python -m benchmarks.density [--partitions N] [--write]`
"""

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.harness import machine, report
from config import load, topic_config
from protocol.records.builder import build_batch
from protocol.records.record import Record
from storage.disk.file_names import DENSITY_SUFFIX, TIME_INDEX_SUFFIX, segment_file_path
from storage.disk.files import RealFiles
from storage.log.log import Log
from storage.recovery.recovery import open_log
from storage.segment.density import DensityIndex, Variant, parse_density

PARTITIONS: Final = 3_500
DAY_S: Final = 86_400
NOW_MS: Final = 1_700_006_400_000
"""The start of a day."""

LOOKUPS: Final = 400
PAGE: Final = report.DOCS / "density.md"

console = Console(highlight=False, stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A row of the table: the setting, and what the draft's table says of it."""

    title: str
    settings: tuple[tuple[str, str], ...]
    seed: str = "-"


CONTENDERS: Final = (
    Contender(title="none (as shipped), index.interval.bytes=4096", settings=()),
    Contender(
        title="interval, time.index.interval.ms=1000",
        settings=(("time.index.variant", "interval"), ("time.index.interval.ms", "1000")),
        seed="86,400 entries, 3.4 GB",
    ),
    Contender(
        title="interval, time.index.interval.ms=60000",
        settings=(("time.index.variant", "interval"),),
        seed="1,440 entries, 57 MB",
    ),
    Contender(
        title="minute",
        settings=(("time.index.variant", "minute"),),
        seed="1,440 entries, 57 MB",
    ),
    Contender(
        title="minute-map",
        settings=(("time.index.variant", "minute-map"),),
        seed="more than minute: all in memory",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Batches of one record, `step_ms` apart, `value_bytes` each."""

    name: str
    batches: int
    step_ms: int
    value_bytes: int


QUIET: Final = Load(name="quiet", batches=DAY_S, step_ms=1_000, value_bytes=100)
BUSY: Final = Load(name="busy", batches=12_000, step_ms=50, value_bytes=10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCost:
    """What one lookup takes: median and 99th percentile in seconds, bytes on average."""

    p50_s: float
    p99_s: float
    bytes_read: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints Markdown tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.density", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--write", action="store_true", help="renew docs/density.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-density-") as name:
        folder = Path(name)
        _open(folder / "empty").close(NOW_MS)
        floor, _ = _memory_of(folder / "empty", options.partitions)
        memory, cost = [], []
        for contender in CONTENDERS:
            console.print(contender.title)
            quiet, busy = folder / "quiet", folder / "busy"
            _write(quiet, QUIET, contender)
            _write(busy, BUSY, contender)
            memory.append(_memory_row(contender, quiet, options.partitions, floor))
            cost.append(_cost_row(contender, _lookups(quiet, QUIET), _lookups(busy, BUSY)))
            _remove(quiet)
            _remove(busy)
        facts = machine.describe(folder)
    head = ["time.index.variant", "the draft's table", "entries", "file"]
    head += [f"{options.partitions:,} files", "resident, idle", "resident, asked"]
    sizes = report.table(head, memory)
    head = ["time.index.variant"]
    head += [f"{each.name}: {what}" for each in (QUIET, BUSY) for what in ("p50", "p99", "read")]
    costs = report.table(head, cost)
    text = (
        f"{machine.markdown({key: facts[key] for key in ('processor', 'disk', 'Python')})}\n\n"
        f"A partition-day, {options.partitions:,} partitions:\n\n{sizes}\n\n"
        f"One lookup:\n\n{costs}"
    )
    print(text)
    if options.write:
        report.replace_section("density", text, PAGE)
    return 0


def _memory_row(contender: Contender, log: Path, partitions: int, floor: int) -> list[str]:
    entries, size = _index_of(log)
    idle, asked = _memory_of(log, partitions)
    return [
        contender.title,
        contender.seed,
        f"{entries:,}",
        f"{size / 1e3:,.1f} KB",
        f"{size * partitions / 1e6:,.0f} MB",
        f"{max(0, idle - floor) / 1e6:,.1f} MB",
        f"{max(0, asked - floor) / 1e6:,.1f} MB",
    ]


def _cost_row(contender: Contender, *costs: LookupCost) -> list[str]:
    row = [contender.title]
    for cost in costs:
        row += [f"{cost.p50_s * 1e6:,.0f} us", f"{cost.p99_s * 1e6:,.0f} us"]
        row.append(f"{cost.bytes_read / 1e3:,.1f} KB")
    return row


# --- logs ---------------------------------------------------------------------------------------


def _open(
    folder: Path, settings: Sequence[tuple[str, str]] = (), files: RealFiles | None = None
) -> Log:
    folder.mkdir(parents=True, exist_ok=True)
    overrides = {
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "flush.policy": "os",
        "segment.ms": str(2**63 - 1),
        **dict(settings),
    }
    return open_log(
        str(folder),
        topic="bench",
        partition=0,
        config=topic_config(overrides, load()),
        files=files or RealFiles(),
        now_ms=NOW_MS,
        is_clean=True,
    )


def _write(folder: Path, load_: Load, contender: Contender) -> None:
    """One segment with the whole load, by the engine, stopped cleanly."""
    log = _open(folder, contender.settings)
    value = bytes(load_.value_bytes)
    for number in range(load_.batches):
        record = Record(0, NOW_MS + number * load_.step_ms, None, value)
        log.append(memoryview(bytearray(build_batch([record]))), now_ms=NOW_MS)
    log.close(NOW_MS)


def _index_of(folder: Path) -> tuple[int, int]:
    """Entries and bytes of the index that lookups start from."""
    side = Path(segment_file_path(str(folder), 0, DENSITY_SUFFIX))
    log = _reopened(folder)
    active = log.segments.active
    variants = [index.count for index in active.auxiliary if isinstance(index, DensityIndex)]
    entries = sum(variants) or active.time_index.count
    log.abandon()
    path = side if side.exists() else Path(segment_file_path(str(folder), 0, TIME_INDEX_SUFFIX))
    return entries, path.stat().st_size


def _reopened(folder: Path, files: RealFiles | None = None) -> Log:
    """The log with the variant that its density file has, if any."""
    side = Path(segment_file_path(str(folder), 0, DENSITY_SUFFIX))
    settings: tuple[tuple[str, str], ...] = ()
    if side.exists():
        written = parse_density(side.read_bytes())
        settings = (
            ("time.index.variant", Variant(written.variant).setting),
            ("time.index.interval.ms", str(written.interval_ms)),
        )
    return _open(folder, settings, files)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


# --- lookups ------------------------------------------------------------------------------------


def _lookups(folder: Path, load_: Load) -> LookupCost:
    """Random lookups in a log just opened, each of which has to find the right record."""
    log = _reopened(folder)
    chosen = random.Random(1)
    asked = [
        (chosen.randrange(load_.batches), chosen.randrange(load_.step_ms)) for _ in range(LOOKUPS)
    ]
    log.offset_for_timestamp(NOW_MS)
    times = []
    read_before = _bytes_read()
    for offset, early in asked:
        started = time.perf_counter()
        found = log.offset_for_timestamp(NOW_MS + offset * load_.step_ms - early)
        times.append(time.perf_counter() - started)
        if found is None or found.offset != offset:
            raise SystemExit(f"lookup of record {offset} found {found}")
    bytes_read = (_bytes_read() - read_before) / LOOKUPS
    log.abandon()
    times.sort()
    return LookupCost(
        p50_s=times[LOOKUPS // 2], p99_s=times[LOOKUPS * 99 // 100], bytes_read=bytes_read
    )


def _bytes_read() -> int:
    """What this process has read by system calls; its own reading of this costs a few hundred."""
    line = Path("/proc/self/io").read_text().partition("\n")[0]
    return int(line.partition(" ")[2])


# --- memory -------------------------------------------------------------------------------------


def _memory_of(log: Path, partitions: int) -> tuple[int, int]:
    """Resident bytes that so many partitions like `log` add: opened, and after a lookup each."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure_memory, (log, partitions))


def _measure_memory(log: Path, partitions: int) -> tuple[int, int]:
    """In a process of its own."""
    with tempfile.TemporaryDirectory(prefix="partitions-", dir=log.parent) as name:
        folders = [Path(name) / str(number) for number in range(partitions)]
        for folder in folders:
            folder.mkdir()
            for path in log.iterdir():
                os.link(path, folder / path.name)
        files = RealFiles()
        first = _reopened(log)
        first.offset_for_timestamp(NOW_MS)
        before = _resident_bytes()
        logs = [_reopened(folder, files) for folder in folders]
        idle = _resident_bytes() - before
        for number, opened in enumerate(logs):
            opened.offset_for_timestamp(NOW_MS + number * 1_000)
        asked = _resident_bytes() - before
        for opened in [first, *logs]:
            opened.abandon()
    return idle, asked


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
