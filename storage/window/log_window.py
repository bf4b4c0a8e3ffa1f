"""A time window over one log: `Log`'s reading side for the records with a time in [start, end).

Owns no data and writes nothing. Offsets stay those of the log, with gaps where records do not
match, as compaction leaves them. A late record is in the window at its own offset.

| question | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| start    | the first record at or after the window's start; the visible end if there is none |
| end      | the end of the last segment whose times meet the window; not below the start      |
| read     | segments and stretches without a match are skipped; batches are decided by their  |
|          | headers where that is enough, and cut where only some of their records match      |

A stretch without a match becomes one batch without records, so that readers move on. Nothing after
it is in the same answer, because a marker in it may end a transaction of which the answer has
records.

What a read may cost is bounded: it ends after `SCAN_BYTES`, its slices are short, and large batches
are opened in the side thread. Each window remembers stretches without a match: no record can appear
in one later, so it is read once and not again by every reader. kafkajs depends on that. It asks
again for the same offset when an answer has no record, and then gets further.
"""

from contextlib import suppress
from functools import partial
from typing import Final

from protocol.errors import DecompressionLimitExceeded, RecordsError
from protocol.records.builder import build_empty_batch
from protocol.records.checksums import Buffer
from protocol.records.layout import (
    BATCH_OVERHEAD,
    INT32_MAX,
    INT64_MAX,
    NO_OFFSET,
    NO_TIMESTAMP,
)
from protocol.records.scan import Entry, iter_records, scan_entries
from storage.disk.steps import Slice, Steps, off_loop
from storage.errors import (
    OffsetOutOfRange,
    StorageError,
    TooMuchAtOnce,
    WindowTooLarge,
    storage_failure,
)
from storage.log.log import Log
from storage.log.lookup import LargeEntries, TimestampOffset
from storage.log.values import Isolation, ReadResult
from storage.segment.segment import Segment
from storage.segment.txn_index import AbortedTxn
from storage.window.window_filter import (
    AT_ONCE_BYTES,
    decide_by_header,
    may_begin_below,
    select_records,
)

SCAN_BYTES: Final = 32 * 1024 * 1024
"""Bytes of log that one read examines; an answer has fewer."""

SEARCH_BYTES: Final = 256 * 1024 * 1024
"""The same for one search by time, which fails beyond it."""

GAPS_MAX: Final = 8
"""Stretches without a match that a window remembers."""

_CHUNK_MIN: Final = 64 * 1024
_CHUNK_MAX: Final = 1024 * 1024


class _Answer:
    """The bytes that a read collects, in order, and how much more may come."""

    __slots__ = (
        "_run",
        "first_base",
        "first_offset",
        "is_full",
        "left",
        "matches",
        "needs_one",
        "next_offset",
        "parts",
    )

    def __init__(self, offset: int, max_bytes: int, *, needs_one: bool) -> None:
        self.parts: list[memoryview | bytes] = []
        self.next_offset = self.first_offset = offset
        self.first_base = NO_OFFSET
        self.left = max_bytes
        self.needs_one = needs_one
        self.is_full = False
        self.matches = 0
        # The chunk of which the last piece is a part, and where that begins and ends.
        self._run: tuple[memoryview | None, int, int] = (None, 0, 0)

    def add(self, piece: memoryview | bytes, entry: Entry, chunk: memoryview) -> bool:
        """Take a piece of what was read; False if it does not fit, which ends the answer."""
        if len(piece) > self.left and not self.needs_one:
            self.is_full = True
            return False
        if not self.parts:
            self.first_base = entry.base_offset
        last, start, end = self._run
        if not isinstance(piece, memoryview):
            self._run = (None, 0, 0)
            self.parts.append(piece)
        elif last is chunk and end == entry.position:
            # Neighbours stay together, so that an answer that is one run is sent without a copy.
            self._run = (chunk, start, end + entry.size)
            self.parts[-1] = chunk[start : end + entry.size]
        else:
            self._run = (chunk, entry.position, entry.position + entry.size)
            self.parts.append(piece)
        self.left -= len(piece)
        self.matches += not entry.is_control
        self.needs_one = False
        self.next_offset = entry.next_offset
        return True

    def cover(self, next_offset: int) -> None:
        """Move readers to `next_offset` by a batch without records."""
        next_offset = min(next_offset, self.next_offset + INT32_MAX)
        if next_offset > self.next_offset:
            self.parts.append(build_empty_batch(self.next_offset, next_offset))
            self.next_offset = next_offset

    def records(self) -> memoryview:
        """All pieces; without a copy if there is one."""
        if len(self.parts) == 1:
            return memoryview(self.parts[0])
        return memoryview(b"".join(self.parts))


class LogWindow:
    """The records of `log` in [start_ms, end_ms). Same thread as the log's."""

    __slots__ = ("_closed_end", "_gaps", "_start", "end_ms", "log", "start_ms")

    def __init__(self, log: Log, start_ms: int, end_ms: int) -> None:
        """Read `log`; 0 <= start_ms < end_ms."""
        self.log = log
        self.start_ms = start_ms
        self.end_ms = end_ms
        # No record in [first, second) is in the window; the last one was extended last.
        self._gaps: list[tuple[int, int]] = []
        self._start = NO_OFFSET
        # Base offset of the active segment, and the end that the closed ones give.
        self._closed_end = (NO_OFFSET, 0)

    # --- ends -----------------------------------------------------------------------------------

    def start_offset(self) -> Steps[int]:
        """The first record that is not older than the window, or the visible end.

        Raises StorageFailed; LogQuarantined when it may be among the lost records.
        """
        found = yield from self._first_reaching(self.start_ms, self.log.log_start_offset)
        if found is None or found.offset >= self.log.high_watermark:
            self.log.check_end()
            return self.log.high_watermark
        self._start = found.offset
        return found.offset

    def end_offset(self, isolation: Isolation, start: int) -> int:
        """One above the last offset that can be in the window, of what `isolation` may see.

        Not below `start`.
        """
        return max(start, min(self._end(), self.log.end_offset(isolation)))

    def _end(self) -> int:
        segments = self.log.segments
        if self._meets(segments.active):
            return self.log.high_watermark
        base_offset, end = self._closed_end
        if base_offset != segments.active.base_offset:
            end = 0
            for number in range(len(segments) - 2, -1, -1):
                if self._meets(segments[number]):
                    end = segments[number].next_offset
                    break
            self._closed_end = (segments.active.base_offset, end)
        return end

    def _meets(self, segment: Segment) -> bool:
        return segment.min_timestamp < self.end_ms and segment.newest_record_ms >= self.start_ms

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, isolation: Isolation, min_one: bool
    ) -> Steps[ReadResult]:
        """The batches of the window from `offset` on, as `Log.read`; start and end are its own.

        An offset below the start is served from the start. The reported end is not below the last
        offset that was read: it may move back when the times of a segment become known.

        Raises OffsetOutOfRange above the log's end, and as `Log.read`; RecordsError when a batch
        that has to be opened is broken.
        """
        log = self.log
        if not 0 <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(offset, start=log.log_start_offset, end=log.log_end_offset)
        start = self._start
        if start < log.log_start_offset:
            start = yield from self.start_offset()
        answer = _Answer(offset, max_bytes, needs_one=min_one)
        if min_one or max_bytes >= BATCH_OVERHEAD:
            yield from self._collect(answer, max(start, offset), isolation)
        aborted: list[AbortedTxn] | None = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = []
            if answer.first_base != NO_OFFSET and log.producers.has_aborts:
                try:
                    aborted = log.reader.aborted_transactions(answer.first_base, answer.next_offset)
                except OSError as error:
                    raise storage_failure("read", log.path, error) from error
        end = self.end_offset(Isolation.READ_UNCOMMITTED, max(start, answer.next_offset))
        return ReadResult(
            answer.records(),
            answer.next_offset,
            end,
            min(end, max(log.last_stable_offset, answer.next_offset)),
            start,
            aborted,
        )

    def _collect(
        self, answer: _Answer, position: int, isolation: Isolation, until: int = INT64_MAX
    ) -> Steps[None]:
        """Fill `answer` with what matches from `position` on, below `until`."""
        log = self.log
        left, scanned, searched = SCAN_BYTES, 0, NO_OFFSET
        gap_start = position
        while not answer.is_full and left > 0:
            position = max(position, log.log_start_offset)
            end = min(self.end_offset(isolation, 0), until)
            segment = log.segments.floor(position)
            beyond = min(self._beyond(position, segment), end)
            if beyond > position:
                if answer.parts:
                    break
                position = beyond
                yield None
                continue
            if position >= end:
                break
            matches = answer.matches
            known = gap_start if scanned else position
            position, size = yield from self._take_chunk(
                answer, position, segment, isolation, known
            )
            if not size:
                break
            left -= size
            if answer.matches > matches:
                scanned, gap_start = 0, answer.next_offset
            elif not answer.is_full:
                scanned += size
            if not answer.parts and segment.base_offset != searched:
                # What follows may be old as well: the indexes know where newer records begin.
                searched = segment.base_offset
                self._remember_gap(gap_start, position)
                found = yield from self._first_reaching(self.start_ms, position)
                position = max(position, end if found is None else min(found.offset, end))
        self._remember_gap(gap_start, position if scanned else gap_start)
        if answer.parts or not answer.is_full:
            answer.cover(position)

    def _beyond(self, position: int, segment: Segment) -> int:
        """Where the next record of the window can be, as far as that is known without reading."""
        for start, end in self._gaps:
            if start <= position < end:
                return end
        if self._meets(segment):
            return position
        following = self.log.segments.after(segment)
        return self.log.high_watermark if following is None else following.base_offset

    def _remember_gap(self, start: int, end: int) -> None:
        if end <= start:
            return
        for number, (known_start, known_end) in enumerate(self._gaps):
            if known_start <= start <= known_end:
                del self._gaps[number]
                start, end = known_start, max(known_end, end)
                break
        self._gaps.append((start, end))
        del self._gaps[:-GAPS_MAX]

    def _take_chunk(
        self,
        answer: _Answer,
        position: int,
        segment: Segment,
        isolation: Isolation,
        gap_start: int,
    ) -> Steps[tuple[int, int]]:
        """Take what matches of the next bytes; returns where to continue, and how many they are.

        Nothing from `gap_start` to `position` has matched.
        """
        wanted = min(max(answer.left, _CHUNK_MIN), _CHUNK_MAX)
        try:
            chunk = self.log.read(position, max_bytes=wanted, isolation=isolation, min_one=True)
            position = yield from self._filter(chunk, position, segment, answer)
        except (StorageError, RecordsError):
            if answer.parts:
                return position, 0  # The next read fails; what is before the damage is served.
            # A read that lacks bytes of an object store is repeated with them: it continues here.
            self._remember_gap(gap_start, position)
            raise
        return position, len(chunk.records)

    def _filter(
        self, chunk: ReadResult, position: int, segment: Segment, answer: _Answer
    ) -> Steps[int]:
        """Put what matches of `chunk` into `answer`; returns where to continue."""
        view, oldest_ms = chunk.records, segment.min_timestamp
        spent = Slice()
        for entry in scan_entries(view):
            if entry.last_offset < position:
                continue
            data = view[entry.position : entry.position + entry.size]
            # A reader below the log's start cannot leave out what is deleted of a batch.
            log_start = self.log.log_start_offset
            deleted_before = log_start if answer.first_offset < log_start else 0
            piece: memoryview | bytes | None
            if entry.is_control:
                piece = data if answer.parts else None
            else:
                is_inside = decide_by_header(entry, self.start_ms, self.end_ms, oldest_ms)
                if is_inside is None or (is_inside and may_begin_below(entry, deleted_before)):
                    piece = yield from self._select(entry, data, deleted_before)
                else:
                    piece = data if is_inside else None
            if piece is not None and not answer.add(piece, entry, view):
                return position
            position = entry.next_offset
            if spent.add(max(1, entry.records_count)):
                yield None
        return max(position, chunk.next_offset)

    def _select(
        self, entry: Entry, data: memoryview, first_offset: int
    ) -> Steps[memoryview | bytes | None]:
        select = partial(
            select_records, entry, data, self.start_ms, self.end_ms, first_offset=first_offset
        )
        if entry.size <= AT_ONCE_BYTES:
            with suppress(DecompressionLimitExceeded):
                return select(at_once=True)
        return (yield from off_loop(partial(select, at_once=False)))

    # --- time -----------------------------------------------------------------------------------

    def find(self, timestamp: int, isolation: Isolation) -> Steps[TimestampOffset | None]:
        """The first record of the window at or after `timestamp` (ms), or None.

        Raises as `read`; WindowTooLarge when it takes too long.
        """
        start_ms = max(timestamp, self.start_ms)
        if start_ms >= self.end_ms:
            return None
        narrow = self if start_ms == self.start_ms else LogWindow(self.log, start_ms, self.end_ms)
        position = yield from narrow.start_offset()
        for _ in range(SEARCH_BYTES // SCAN_BYTES):
            answer = _Answer(position, 1, needs_one=True)
            answer.first_offset = NO_OFFSET  # nothing below the log's start may be found
            yield from narrow._collect(answer, position, isolation)
            if answer.first_base != NO_OFFSET:
                search = partial(_first_record, answer.parts[0], start_ms, self.end_ms)
                return (yield from off_loop(search))
            if answer.next_offset == position:
                return None
            position = answer.next_offset
        raise WindowTooLarge(self.log.topic, self.log.partition, SEARCH_BYTES)

    def find_max(self, isolation: Isolation) -> Steps[TimestampOffset | None]:
        """The first record that has the largest time of the window, or None. Raises as `find`."""
        start = yield from self.start_offset()
        largest, until, left = NO_TIMESTAMP, INT64_MAX, SEARCH_BYTES
        # In most logs the newest segment of the window has it, and the others are not read.
        for segment in reversed(tuple(self.log.segments)):
            position = max(start, segment.base_offset)
            while self._meets(segment) and largest < min(segment.newest_record_ms, self.end_ms - 1):
                narrow = LogWindow(self.log, max(self.start_ms, largest + 1), self.end_ms)
                answer = _Answer(position, _CHUNK_MAX, needs_one=True)
                answer.first_offset = NO_OFFSET
                yield from narrow._collect(answer, position, isolation, until)
                if answer.next_offset == position:
                    break
                position = answer.next_offset
                entries = scan_entries(answer.records())
                newer = (entry.max_timestamp for entry in entries if not entry.is_control)
                largest = max(largest, *newer)
                if answer.first_base != NO_OFFSET:
                    left -= _CHUNK_MAX
                else:
                    left -= max(_CHUNK_MIN, min(SCAN_BYTES, segment.size))
                if left <= 0:
                    raise WindowTooLarge(self.log.topic, self.log.partition, SEARCH_BYTES)
            until = segment.base_offset
            if until <= start:
                break
        if largest == NO_TIMESTAMP:
            return None
        return (yield from LogWindow(self.log, largest, largest + 1).find(largest, isolation))

    def _first_reaching(self, timestamp: int, offset: int) -> Steps[TimestampOffset | None]:
        """The first record or marker from `offset` on with this time (ms) or a later one."""
        large = LargeEntries()
        while True:
            try:
                return self.log.lookup.find(timestamp, offset, None, large)
            except TooMuchAtOnce:
                yield from off_loop(large.search)
            except OSError as error:
                raise storage_failure("lookup", self.log.path, error) from error


def _first_record(piece: Buffer, start_ms: int, end_ms: int) -> TimestampOffset:
    """The first record of an entry that has one in [start_ms, end_ms)."""
    entry = next(scan_entries(piece))
    return next(
        TimestampOffset(record.timestamp, record.offset, entry.partition_leader_epoch)
        for record in iter_records(piece)
        if start_ms <= record.timestamp < end_ms
    )
