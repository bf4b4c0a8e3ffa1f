"""Lookups by time between everything else that happens to a log, against a list of records.

`python -m tests.crash.lookup_race --lookups 1000000` asks that many times for the first record at
or after a time (now and then for the largest timestamp) while the same log is appended to, rolled,
flushed by another thread, cut at its head by retention and DeleteRecords, compacted in steps whose
syncs run in other threads, closed and opened again, cleanly or not. Timestamps are out of order,
some far off, some absent; batches are plain and compressed. After each
change a consumer reads on to the high watermark.

The oracle knows no segments and no indexes: it is a list, and a lookup is the first element that
fits. (Running maxima make that fast; every hundredth answer is also found by looking at each
element.) What compaction and retention leave is read back from the log: it has to be a part of what
was there, with the newest record of every key from the log's start on.

Prints one line of JSON; the exit code is 1 when an answer was wrong.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from protocol.records.builder import build_batch
from protocol.records.layout import NO_TIMESTAMP, Codec
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.disk.files import RealFiles
from storage.disk.steps import OffLoop, Steps, run_steps
from storage.errors import StorageError
from storage.log.compaction import compact
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.log.retention import delete_expired
from storage.log.values import Isolation
from storage.recovery.recovery import open_log
from tests.support.logs import config

START_MS = 1_700_000_000_000
SETTINGS: dict[str, dict[str, object]] = {
    "deleted": {"segment_bytes": 4000, "index_interval_bytes": 300, "retention_bytes": 60_000},
    "compacted": {
        "segment_bytes": 4000,
        "index_interval_bytes": 300,
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0,
    },
    "both": {
        "segment_bytes": 6000,
        "index_interval_bytes": 0,
        "cleanup_policy": "compact,delete",
        "min_cleanable_dirty_ratio": 0,
        "retention_bytes": 50_000,
    },
}
LOOKUPS_PER_CHANGE = 25
SCANNED_EVERY = 100
EXAMPLES_MAX = 10

Found = tuple[int, int] | None
"""(timestamp, offset), or nothing."""


class Oracle:
    """The records of a log, start to end, as (offset, timestamp)."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int]] = []
        self._maxima: list[int] | None = None

    def append(self, offset: int, timestamps: list[int]) -> None:
        self.records += ((offset + index, stamp) for index, stamp in enumerate(timestamps))
        self._maxima = None

    def keep(self, records: list[tuple[int, int]]) -> None:
        self.records = records
        self._maxima = None

    def delete_before(self, offset: int) -> None:
        self.keep([record for record in self.records if record[0] >= offset])

    def find(self, timestamp: int) -> Found:
        if self._maxima is None:
            self._maxima = list(accumulate((stamp for _, stamp in self.records), max))
        index = bisect_left(self._maxima, timestamp)
        if index == len(self._maxima):
            return None
        offset, stamp = self.records[index]
        return stamp, offset

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        first, last = (bisect_left(self.records, (offset,)) for offset in (start, end))
        return self.records[first:last]

    def scan(self, timestamp: int) -> Found:
        return next(((s, o) for o, s in self.records if s >= timestamp), None)

    def find_max(self) -> Found:
        largest = max((stamp for _, stamp in self.records), default=NO_TIMESTAMP)
        return None if largest == NO_TIMESTAMP else self.scan(largest)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of a race."""

    lookups: int = 0
    reads: int = 0
    found: int = 0
    while_flushing: int = 0
    while_compacting: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.lookups += other.lookups
        self.reads += other.reads
        self.found += other.found
        self.while_flushing += other.while_flushing
        self.while_compacting += other.while_compacting
        self.changes += other.changes
        self.wrong += other.wrong
        self.examples += other.examples


class Race:
    """One log on a real disk, its oracle, and a seed."""

    def __init__(self, directory: Path, kind: str, seed: int, pool: ThreadPoolExecutor) -> None:
        """`kind` is a key of `SETTINGS`."""
        self.tally = Tally()
        self._name = f"{kind}, seed {seed}"
        self._config = config(**SETTINGS[kind])
        self._directory = str(directory)
        self._files = RealFiles()
        self._pool = pool
        self._rng = random.Random(seed)
        self._oracle = Oracle()
        self._now_ms = START_MS
        self._flush: tuple[FlushTicket, Future[None]] | None = None
        self._steps: Steps[object] | None = None
        self._call: Future[None] | None = None
        self._segments: list[int] = []
        self._newest: dict[bytes | None, int] = {}
        self._log = self._open(is_clean=True)

    def run(self, lookups: int) -> Tally:
        """So many lookups, with a change before some of them."""
        changes: list[tuple[Callable[[], None], int]] = [
            (self._append, 40),
            (self._begin_flush, 12),
            (self._end_flush, 12),
            (self._roll, 2),
            (self._roll_while_flushing, 4),
            (self._retain, 4),
            (self._delete, 1 if self._config.is_deleted_by_retention else 0),
            (self._compact, 30 if self._config.is_compacted else 0),
            (self._compact_all, 8 if self._config.is_compacted else 0),
            (self._reopen, 1),
        ]
        kinds, weights = [kind for kind, _ in changes], [weight for _, weight in changes]
        while self.tally.lookups < lookups:
            if self._rng.random() * LOOKUPS_PER_CHANGE < 1:
                change = self._rng.choices(kinds, weights)[0]
                change()
                self.tally.changes[change.__name__.strip("_")] += 1
                self._read_to_high_watermark()
            self._look()
        self._settle()
        self._log.close(self._now_ms)
        return self.tally

    # --- lookups --------------------------------------------------------------------------------

    def _look(self) -> None:
        tally, log, rng = self.tally, self._log, self._rng
        tally.lookups += 1
        tally.while_flushing += self._flush is not None
        tally.while_compacting += self._steps is not None
        if rng.random() < 0.02:
            answer, expected = log.offset_for_max_timestamp(), self._oracle.find_max()
            timestamp = -3
        else:
            timestamp = self._some_time()
            answer, expected = log.offset_for_timestamp(timestamp), self._oracle.find(timestamp)
            if tally.lookups % SCANNED_EVERY == 0:
                assert expected == self._oracle.scan(timestamp), "the oracle errs"
        if expected is not None and expected[1] >= log.high_watermark:
            expected = None
        found = None if answer is None else (answer.timestamp, answer.offset)
        tally.found += found is not None
        if found != expected:
            self._report(f"{timestamp} found {found}, expected {expected}")

    def _read_to_high_watermark(self) -> None:
        """What a consumer near the end gets: everything from its offset to the high watermark."""
        self.tally.reads += 1
        end = self._log.high_watermark
        start = max(self._log.log_start_offset, end - self._rng.randrange(60))
        expected = self._oracle.between(start, end)
        try:
            found = self._read(start, Isolation.READ_UNCOMMITTED)
        except StorageError as error:
            self._report(f"a read from {start} to {end} failed: {error}")
        else:
            if found != expected:
                self._report(f"a read from {start} to {end} found {found}, expected {expected}")

    def _report(self, wrong: str) -> None:
        tally = self.tally
        tally.wrong += 1
        if len(tally.examples) < EXAMPLES_MAX:
            tally.examples.append(f"{self._name}, lookup {tally.lookups}: {wrong}")

    def _some_time(self) -> int:
        if self._oracle.records and self._rng.random() < 0.7:
            return max(0, self._rng.choice(self._oracle.records)[1] + self._rng.randint(-1, 1))
        return self._rng.randint(START_MS - 50_000, self._now_ms + 50_000)

    # --- changes --------------------------------------------------------------------------------

    def _append(self) -> None:
        rng = self._rng
        self._now_ms += rng.randrange(500)
        stamps = [self._some_stamp() for _ in range(rng.randint(1, 6))]
        codec = rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))
        records = [
            Record(0, stamp, b"key-%d" % rng.randrange(60), rng.randbytes(rng.randrange(120)))
            for stamp in stamps
        ]
        data = memoryview(bytearray(build_batch(records, codec=codec)))
        result = self._log.append(data, now_ms=self._now_ms)
        self._oracle.append(result.first_offset, stamps)
        for index, record in enumerate(records):
            self._newest[record.key] = result.first_offset + index

    def _some_stamp(self) -> int:
        chance = self._rng.random()
        if chance < 0.03:
            return NO_TIMESTAMP
        if chance < 0.05:
            return self._now_ms + self._rng.randrange(40_000)
        return self._now_ms - self._rng.randrange(3_000 if chance < 0.8 else 60_000)

    def _begin_flush(self) -> None:
        if self._flush is None:
            ticket = self._log.begin_flush()
            if ticket is not None:
                self._flush = ticket, self._pool.submit(ticket.run)

    def _end_flush(self) -> None:
        if self._flush is not None:
            ticket, done = self._flush
            self._flush = None
            done.result()
            self._log.complete_flush(ticket)

    def _roll(self) -> None:
        self._log.roll(self._now_ms)

    def _roll_while_flushing(self) -> None:
        """A flush of the whole log ends when that has become a closed segment."""
        self._end_flush()
        self._begin_flush()
        self._roll()
        self._append()
        self._end_flush()

    def _retain(self) -> None:
        delete_expired(self._log, self._now_ms)
        run_steps(self._log.delete_pending_files(self._now_ms))
        self._oracle.delete_before(self._log.log_start_offset)
        self._take_over_compacted()

    def _delete(self) -> None:
        start, end = self._log.log_start_offset, self._log.high_watermark
        self._log.delete_before(self._rng.randint(start, start + (end - start) // 4))
        self._oracle.delete_before(self._log.log_start_offset)

    def _compact(self) -> None:
        """One step of a round; a call for another thread runs there while lookups go on."""
        if self._call is not None:
            self._call.result()
            self._call = None
        if self._steps is None:
            map_bytes = self._rng.choice((2_000, 1 << 20))
            self._steps = compact(self._log, now_ms=self._now_ms, map_bytes=map_bytes)
            self._note_segments()
        try:
            call = next(self._steps)
        except StopIteration:
            self._steps = None
        else:
            if isinstance(call, OffLoop):
                self._call = self._pool.submit(call.run)
        self._take_over_compacted()

    def _compact_all(self) -> None:
        """A whole round, or the rest of one: none of what flushes do comes in between."""
        self._compact()
        while self._steps is not None:
            self._compact()

    def _take_over_compacted(self) -> None:
        """After a swap the log says what is left, which has to be a part of what there was."""
        if self._segments == self._segment_ids():
            return
        self._note_segments()
        left = self._read(self._log.log_start_offset, Isolation.LOG_END)
        gone = set(left) - set(self._oracle.records)
        assert not gone, f"{self._name}: compaction made up {sorted(gone)[:3]}"
        start, offsets = self._log.log_start_offset, {offset for offset, _ in left}
        lost = [at for at in self._newest.values() if at >= start and at not in offsets]
        assert not lost, f"{self._name}: the newest records of their keys are gone: {lost[:3]}"
        self._oracle.keep(left)

    def _reopen(self) -> None:
        self._settle()
        is_clean = self._rng.random() < 0.5
        if is_clean:
            self._log.close(self._now_ms)
        else:
            self._log.abandon()
        start, end = self._log.log_start_offset, self._log.log_end_offset
        self._log = self._open(is_clean=is_clean, log_start_offset=start)
        assert (self._log.log_start_offset, self._log.log_end_offset) == (start, end)

    def _settle(self) -> None:
        """Nothing is under way in other threads."""
        self._end_flush()
        if self._steps is not None:
            self._compact_all()

    # --- helpers --------------------------------------------------------------------------------

    def _open(self, *, is_clean: bool, log_start_offset: int = 0) -> Log:
        return open_log(
            self._directory,
            topic="t",
            partition=0,
            config=self._config,
            files=self._files,
            now_ms=self._now_ms,
            is_clean=is_clean,
            log_start_offset=log_start_offset,
            random=random.Random(1),
        )

    def _segment_ids(self) -> list[int]:
        return [id(segment) for segment in self._log.segments][:-1]

    def _note_segments(self) -> None:
        self._segments = self._segment_ids()

    def _read(self, start: int, isolation: Isolation) -> list[tuple[int, int]]:
        """All records from `start` on, as a reader of this kind gets them."""
        records: list[tuple[int, int]] = []
        offset = start
        while offset < self._log.end_offset(isolation):
            result = self._log.read(offset, max_bytes=1 << 20, isolation=isolation)
            records += (
                (record.offset, record.timestamp)
                for entry in scan_entries(result.records)
                for record in iter_records(result.records, entry.position)
                if record.offset >= start
            )
            offset = result.next_offset
        return records


def race(lookups: int, *, seed: int = 1) -> Tally:
    """So many lookups in all, shared by one log of each kind."""
    total = Tally()
    with ThreadPoolExecutor(4) as pool:
        for number, kind in enumerate(SETTINGS):
            with tempfile.TemporaryDirectory(prefix="lookup-race-") as directory:
                left = (lookups - total.lookups) // (len(SETTINGS) - number)
                total.add(Race(Path(directory), kind, seed, pool).run(left))
    return total


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    tally = race(arguments.lookups, seed=arguments.seed)
    print(
        json.dumps(
            {
                "lookups": tally.lookups,
                "reads": tally.reads,
                "found": tally.found,
                "while_flushing": tally.while_flushing,
                "while_compacting": tally.while_compacting,
                "changes": dict(tally.changes),
                "wrong": tally.wrong,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
    )
    for example in tally.examples:
        print(example, file=sys.stderr)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
