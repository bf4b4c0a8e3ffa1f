"""Segment files read directly: the closed ones from storage, the tail from the broker.

For executors that see the broker's data directory (the same machine, a shared mount): reading it
there scales with the executors and costs the broker nothing. A segment is *closed* when another
one follows it; the last one belongs to the broker. Files are read, never mapped: a mapped file
that the broker truncates kills the process.

Other sources fill in the rest. Aborted transactions are in the `.txnindex` files of the partition,
each in the segment of its marker. The broker supplies all records from the last segment on, those
that retention deletes meanwhile, and all from an incomplete file on. So the result is the same as
without this module, or an error, never less.

    .txnindex   i16 version, i64 producer id, i64 first offset, i64 last offset, i64 stable offset

Source: Kafka `LogSegment`, `AbortedTxn`, `LocalLog` (names).
"""

import contextlib
import re
import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from pipeline.errors import DataLoss
from pipeline.net.cluster import LATEST, Cluster
from pipeline.options.options import FROM_FILES, SourceOptions
from pipeline.plan.pruning import from_manifest, listed_in
from pipeline.plan.reading import RangeReader
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules, PartitionDecoder

READ_BYTES: Final = 8 << 20

_LOG_NAME: Final = re.compile(r"\d{20}\.log")
_ABORTED: Final = struct.Struct(">hqqqq")
_INDEX_ENTRY: Final = struct.Struct(">ii")


AbortedTransaction = tuple[int, int, int]
"""Producer id, first offset, and last offset: the abort marker's."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One `.log` file as it was listed; `is_last` is the one the broker still writes."""

    base_offset: int
    path: str
    size_bytes: int
    is_last: bool


def read_closed(
    options: SourceOptions, wanted: OffsetRange, rules: DecodeRules
) -> Generator[pa.RecordBatch, None, OffsetRange]:
    """Yield the records of `wanted` that closed segments hold; return the rest of the range.

    With `readFrom=segments` the rest must be empty.

    Raises:
        CorruptData: a segment contradicts itself.
        DataLoss: `readFrom=segments`, and the files hold less than the range.
    """
    folder = Path(options.segments_path) / f"{wanted.topic}-{wanted.partition}"
    segments = _segments_of(folder)
    is_all = options.read_from == "segments"
    skips_losses = is_all and not options.fail_on_data_loss
    sure = _sure_segments(folder, segments, is_all=is_all, skips_losses=skips_losses)
    decoder = PartitionDecoder(wanted.topic, wanted.partition, wanted.start, wanted.end, rules)
    # If the first file begins after the range's start: a partial copy, or retention has run.
    if segments and (segments[0].base_offset <= wanted.start or skips_losses):
        yield from _read_segments(
            segments, decoder, wanted, aborted_in(folder), sure, with_last=is_all
        )
    if is_all and not decoder.is_done and options.fail_on_data_loss:
        raise DataLoss(
            f"{wanted.topic}-{wanted.partition}: segment files hold nothing from offset "
            f"{decoder.next_offset} on, and {wanted.end} was to be reached; use readFrom=hybrid, "
            "or set failOnDataLoss=false to continue with what is there"
        )
    rest = wanted.end if is_all else min(decoder.next_offset, wanted.end)
    return OffsetRange(wanted.topic, wanted.partition, rest, wanted.end)


def read_range(
    cluster: Cluster, options: SourceOptions, wanted: OffsetRange, rules: DecodeRules
) -> Generator[pa.RecordBatch, None, None]:
    """The records of `wanted`, from files as far as the options allow and the files reach.

    Raises as `read_closed` and `RangeReader.batches`.
    """
    rest = wanted
    if options.read_from in FROM_FILES:
        left = yield from read_closed(options, _decided(cluster, options, wanted), rules)
        rest = OffsetRange(wanted.topic, wanted.partition, left.start, wanted.end)
    reader = RangeReader(
        cluster,
        rest,
        rules,
        fetch_bytes=options.fetch_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        archive=options.archive,
    )
    yield from reader.batches()


def _decided(cluster: Cluster, options: SourceOptions, one: OffsetRange) -> OffsetRange:
    """The part of `one` below every open transaction, for readers of committed records.

    Files do not show whether a transaction is still open; the broker does.
    """
    if not options.read_committed:
        return one
    tp = one.topic_partition
    end = cluster.list_offsets({tp: LATEST}, read_committed=True)[tp].offset
    return OffsetRange(one.topic, one.partition, one.start, max(min(one.end, end), one.start))


def _read_segments(
    segments: Sequence[Segment],
    decoder: PartitionDecoder,
    wanted: OffsetRange,
    aborted: Sequence[AbortedTransaction],
    sure: frozenset[int],
    *,
    with_last: bool,
) -> Generator[pa.RecordBatch, None, None]:
    """The records of `wanted` in `segments`, up to the first that is missing or incomplete.

    Offsets missing at a segment's end are a gap if the segment is one of the `sure`; in others they
    may be bytes that the file system does not show yet.
    """
    for number, segment in enumerate(segments):
        following = None if segment.is_last else segments[number + 1].base_offset
        if following is not None and following <= wanted.start:
            continue
        if (segment.is_last and not with_last) or segment.base_offset >= wanted.end:
            return
        try:
            is_whole = yield from _read_segment(segment, decoder, aborted)
        except FileNotFoundError:
            # Retention was faster; the broker knows the remaining records.
            return
        if following is not None:
            end = min(following, wanted.end)
            if not is_whole or (decoder.next_offset < end and segment.base_offset not in sure):
                return
            decoder.next_offset = max(decoder.next_offset, end)


def _segments_of(folder: Path) -> list[Segment]:
    names = sorted(path for path in folder.glob("*.log") if _LOG_NAME.fullmatch(path.name))
    found = []
    for path in names:
        # Retention removes the oldest segments while we list; the others are listed correctly.
        with contextlib.suppress(FileNotFoundError):
            size = path.stat().st_size
            found.append(Segment(int(path.stem), str(path), size, path == names[-1]))
    return found


def _sure_segments(
    folder: Path, segments: Sequence[Segment], *, is_all: bool, skips_losses: bool
) -> frozenset[int]:
    """The segments (by base offset) whose end is believed to be their end.

    With a broker, those that the manifest confirms, since the broker knows the others better. From
    files alone, those that it does not contradict: a directory of Apache Kafka has no manifest.
    """
    confirmed = frozenset(one.base_offset for one in from_manifest(folder))
    if not is_all:
        return confirmed
    everything = frozenset(one.base_offset for one in segments)
    return everything if skips_losses else everything - (listed_in(folder) - confirmed)


def _read_segment(
    segment: Segment, decoder: PartitionDecoder, aborted: Sequence[AbortedTransaction]
) -> Generator[pa.RecordBatch, None, bool]:
    """The records of `segment` from the decoder's offset on, in chunks of whole batches.

    False if the file ends in the middle of a batch, before the decoder's end.
    """
    position = _position_of(segment, decoder.next_offset)
    for start, data in _chunks(segment, position):
        # Transactions that ended before this chunk must not start again in it.
        ahead = [(one[0], one[1]) for one in aborted if one[2] >= decoder.next_offset]
        yield from decoder.feed(data, ahead)
        position = start + len(data)
        if decoder.is_done:
            return True
    return position >= segment.size_bytes


def _chunks(segment: Segment, position: int) -> Iterator[tuple[int, memoryview]]:
    """(byte position, whole entries) of the segment from `position` on, a few MiB at a time.

    Stops where the file ends in the middle of an entry.

    Raises:
        FileNotFoundError: the segment was deleted.
    """
    chunk_bytes = READ_BYTES
    with open(segment.path, "rb") as file:
        while position < segment.size_bytes:
            file.seek(position)
            data = file.read(min(chunk_bytes, segment.size_bytes - position))
            used = whole_batches(data)
            if used:
                yield position, memoryview(data)[:used]
                position += used
            elif len(data) < chunk_bytes:
                return
            else:
                # One batch is larger than a chunk.
                chunk_bytes *= 2


def whole_batches(data: bytes) -> int:
    """How many bytes at the start of `data` are whole entries."""
    position = 0
    while len(data) - position >= 12:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if size <= 12 or size > len(data) - position:
            break
        position += size
    return position


def _position_of(segment: Segment, offset: int) -> int:
    """A byte position in the segment at or before the batch with `offset`, by its `.index`."""
    path = Path(segment.path).with_suffix(".index")
    if offset <= segment.base_offset or not path.exists():
        return 0
    return position_before(index_entries(path.read_bytes()), offset - segment.base_offset)


def index_entries(index: bytes) -> list[tuple[int, int]]:
    """The whole entries of an `.index`: last offset of a batch, from the base on, and its place."""
    whole = len(index) // _INDEX_ENTRY.size * _INDEX_ENTRY.size
    return list(_INDEX_ENTRY.iter_unpack(index[:whole]))


def position_before(entries: Sequence[tuple[int, int]], relative: int) -> int:
    """A byte position at or before the batch with the offset `relative` to the base."""
    # An entry holds the last offset of its batch, so only one below the wanted offset is before it.
    return max((at for last, at in entries if 0 < last < relative), default=0)


def aborted_in(folder: Path) -> list[AbortedTransaction]:
    """The aborted transactions of a partition, as all its `.txnindex` files list them.

    All files, the open segment's too: a transaction is listed in the segment of its marker, and its
    records may be in earlier segments.
    """
    found = []
    for path in sorted(folder.glob("*.txnindex")):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            # Deleted with its segment, and with all segments before that.
            continue
        found += [entry[:3] for entry in txn_entries(data)]
    return found


def txn_entries(index: bytes) -> list[tuple[int, int, int, int]]:
    """The whole entries of a `.txnindex`: `AbortedTransaction`, and the stable offset then."""
    whole = len(index) // _ABORTED.size * _ABORTED.size
    return [entry[1:] for entry in _ABORTED.iter_unpack(index[:whole])]
