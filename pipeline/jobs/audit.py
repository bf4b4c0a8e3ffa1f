"""audit: segment files against their own checksums, offsets and indexes.

Reads the `.log`, `.index` and `.timeindex` files of a data directory in the workers, one segment a
task's step, and reports every contradiction. It opens files for reading only. The last segment of
a partition may be open: bytes of an unfinished append at its end are noted, not a defect.

With a staging directory, right indexes are written there for segments whose indexes are wrong;
never into the audited directory.

| file       | entry                            | must hold                                  |
|------------|----------------------------------|--------------------------------------------|
| .log       | batches                          | CRC-32C, sizes, offsets ascending          |
| .index     | i32 offset - base, i32 position  | both ascending; a batch starts there       |
| .timeindex | i64 timestamp, i32 offset - base | both ascending; no batch that ends at or   |
|            |                                  | before the offset is younger               |

Source: Kafka `LogSegment.sanityCheck`, `DumpLogSegments`. Read next: `pipeline.segments`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.batches import iter_headers
from pipeline.errors import BadOptions
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.spreading import run_tasks
from pipeline.option_reader import local_path
from pipeline.segments import Segment, chunks, list_segments
from protocol.records.checksums import crc32c
from protocol.records.layout import ATTRIBUTES_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_INTERVAL_BYTES: Final = 4096
_DEFECTS_SHOWN: Final = 20
_TASKS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Which data directory, which topic (empty: all), and where right indexes go (empty: none)."""

    path: str
    topic: str = ""
    staging: str = ""
    dry_run: bool = False


def audit(spark: SparkSession, settings: AuditSettings, progress: Progress = silent) -> Outcome:
    """One row for each defective segment.

    Raises:
        BadOptions: the directory holds no partitions.
    """
    staging = str(local_path(settings.staging)) if settings.staging else ""
    segments = list_segments(str(local_path(settings.path)), settings.topic)
    if not segments:
        raise BadOptions([f"path {settings.path!r} holds no segment files of a topic"])
    total = sum(one.size_bytes for one in segments)
    if settings.dry_run:
        return Outcome(
            sentence=f"would audit {len(segments)} segments, {total:,} bytes",
            report={"segments": len(segments), "bytes": total},
        )
    progress("audit")
    # A task for each segment would cost more than the segment: tasks of every n-th one.
    count = min(len(segments), _TASKS_MAX)
    shares = [tuple(segments[first::count]) for first in range(count)]
    found = run_tasks(spark, lambda share: [audit_segment(one, staging) for one in share], shares)
    rows = sorted((row for share in found for row in share), key=lambda row: str(row["path"]))
    bad = tuple(row for row in rows if row["defects"])
    records = sum(row["records"] for row in rows)
    return Outcome(
        code=JobCode.DAMAGED if bad else JobCode.DONE,
        sentence=f"{len(rows)} segments, {records:,} records, {total:,} bytes: "
        f"{len(bad)} segments have defects",
        report={"segments": len(rows), "records": records, "bytes": total, "defective": list(bad)},
        rows=bad,
    )


def audit_segment(segment: Segment, staging: str = "") -> dict[str, Any]:
    """What one segment holds and what is wrong with it; runs in a worker.

    Of a segment that retention takes meanwhile nothing is said.
    """
    try:
        return _judge_segment(segment, staging)
    except FileNotFoundError:
        return {"path": segment.path, "records": 0, "bytes": 0, "open_bytes": 0, "defects": []}


def _judge_segment(segment: Segment, staging: str) -> dict[str, Any]:
    defects: list[str] = []
    batches: list[tuple[int, int, int, int]] = []
    records = 0
    end = 0
    next_offset = segment.base_offset
    for start, view in chunks(segment):
        for position, behind, fields in iter_headers(view):
            at, end = start + position, start + behind
            if crc32c(view[position + ATTRIBUTES_AT : behind]) != fields[4]:
                defects.append(f"batch at byte {at}: wrong CRC-32C")
            if fields[0] < next_offset:
                defects.append(f"batch at byte {at}: offset {fields[0]} after {next_offset - 1}")
            next_offset = fields[0] + fields[6] + 1
            records += max(fields[12], 0)
            batches.append((at, fields[0], next_offset - 1, fields[8]))
        if end < start + len(view):
            break
    rest = segment.size_bytes - end
    if rest and not segment.is_last:
        defects.append(f"{rest} bytes behind byte {end} are no batch")
    index_defects = [*_index_defects(segment, batches), *_time_defects(segment, batches)]
    if index_defects and staging:
        _stage(segment, batches, Path(staging))
    return {
        "path": segment.path,
        "records": records,
        "bytes": segment.size_bytes,
        "open_bytes": rest if segment.is_last else 0,
        "defects": [*defects, *index_defects][:_DEFECTS_SHOWN],
    }


def _entries(segment: Segment, suffix: str, entry: struct.Struct) -> list[tuple[int, int]]:
    """The entries of an index file without the zeros that Kafka preallocates."""
    path = Path(segment.path).with_suffix(suffix)
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = len(data) // entry.size * entry.size
    found: list[tuple[int, int]] = [(a, b) for a, b in entry.iter_unpack(data[:whole])]
    while found and found[-1] == (0, 0):
        found.pop()
    return found


def _index_defects(segment: Segment, batches: list[tuple[int, int, int, int]]) -> list[str]:
    starts = {position: base for position, base, _, _ in batches}
    defects = []
    before = (-1, -1)
    for number, (relative, position) in enumerate(_entries(segment, ".index", _INDEX_ENTRY)):
        offset = segment.base_offset + relative
        if relative <= before[0] or (position <= before[1] and number):
            defects.append(f".index entry {number} is not above the one before")
        elif position not in starts:
            defects.append(f".index entry {number}: no batch starts at byte {position}")
        elif starts[position] > offset:
            defects.append(f".index entry {number}: offset {offset} lies before byte {position}")
        before = (relative, position)
    return defects


def _time_defects(segment: Segment, batches: list[tuple[int, int, int, int]]) -> list[str]:
    defects = []
    before = (-2, -1)
    youngest, at = -1, 0
    for number, (timestamp, relative) in enumerate(_entries(segment, ".timeindex", _TIME_ENTRY)):
        offset = segment.base_offset + relative
        if timestamp < before[0] or relative < before[1]:
            defects.append(f".timeindex entry {number} is not above the one before")
        while at < len(batches) and batches[at][2] <= offset:
            youngest = max(youngest, batches[at][3])
            at += 1
        if youngest > timestamp:
            defects.append(
                f".timeindex entry {number} says {timestamp} up to offset {offset}, and there is "
                f"a record of {youngest}"
            )
        before = (timestamp, relative)
    return defects


def _stage(segment: Segment, batches: list[tuple[int, int, int, int]], staging: Path) -> None:
    """Write right indexes for `segment` below `staging`, in its partition's directory."""
    source = Path(segment.path)
    folder = staging / source.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    index, times = bytearray(), bytearray()
    since = 0
    youngest, youngest_offset, written = -1, segment.base_offset, -1
    for number, (position, _, last, max_timestamp) in enumerate(batches):
        following = batches[number + 1][0] if number + 1 < len(batches) else segment.size_bytes
        if since > _INTERVAL_BYTES:
            index += _INDEX_ENTRY.pack(last - segment.base_offset, position)
            since = 0
            if youngest > written:
                times += _TIME_ENTRY.pack(youngest, youngest_offset - segment.base_offset)
                written = youngest
        if max_timestamp > youngest:
            youngest, youngest_offset = max_timestamp, last
        since += following - position
    if youngest > written:
        times += _TIME_ENTRY.pack(youngest, youngest_offset - segment.base_offset)
    (folder / source.with_suffix(".index").name).write_bytes(index)
    (folder / source.with_suffix(".timeindex").name).write_bytes(times)
