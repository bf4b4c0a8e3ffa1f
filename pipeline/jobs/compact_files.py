"""compact-files: the small files of an archive's Iceberg table into few; then the leftovers.

Each batch of an archive adds files to every day that it has records of, so days collect small
files. A run joins those of one day and topic, and its decision is one document of the journal:

1. tasks write a file for each group of small files, under a name that is a function of the group;
2. `compactions/N` of the journal names the replaced files and the new ones: from then on readers of
   the archive take the new ones;
3. one snapshot of the table removes the replaced files and adds the new ones.

A run that dies before 2 has changed nothing, and one that finds N without its snapshot makes it
first. Of two runs at once the first to write N wins, and the other one ends (`Fenced`).

Replaced files stay for a while: queries that were planned before read them, and so does a look at
an earlier snapshot. After `keep_ms` the snapshots from before are expired, and the files that no
snapshot names any more are deleted, and so are files of runs that died.

The records are the same, with the same offsets, times and batches. Plain Parquet is not compacted:
a reader of the directory would see the old files beside the new ones. A Delta table has OPTIMIZE.

Source: Iceberg "Maintenance" (compaction, expiry of snapshots, orphan files).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.times import MS_PER_DAY
from pipeline.errors import BadOptions
from pipeline.jobs.files import check_files, rewrite_files, sweep
from pipeline.jobs.lake import IcebergLake
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.jobs.spreading import run_tasks
from pipeline.plan.archived import COMPACTIONS, Archive, WrittenFile, parse_file
from pipeline.plan.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SWEPT: Final = "swept"
_STALE_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactFilesSettings:
    """The archive whose table is compacted.

    Attributes:
        target: the table, `NAMESPACE.TABLE`, as the archive was given it.
        state_dir: the archive's state directory.
        small_bytes: files below this size are joined.
        file_bytes: up to about so many bytes of them become one file.
        keep_ms: how long replaced files and the snapshots that name them stay.
        dry_run: report, change nothing.
    """

    target: str
    state_dir: str
    small_bytes: int = 64 << 20
    file_bytes: int = 256 << 20
    keep_ms: int = 7 * MS_PER_DAY
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Group:
    """Files of one day and topic that become the file `name`."""

    name: str
    files: tuple[WrittenFile, ...]


def compact_files(
    spark: SparkSession, settings: CompactFilesSettings, progress: Progress = silent
) -> Outcome:
    """Join the small files, and remove what earlier runs have left long enough.

    Raises:
        BadOptions: the state directory is not that of an archive with a table.
        Fenced: another run has compacted meanwhile.
        JournalConflict: the table does not have the files that the archive lists.
        NotShared: executors write elsewhere than the driver reads.
    """
    archive = Archive(settings.state_dir, name="--state-dir ")
    lake = IcebergLake(settings.target, settings.state_dir)
    journal = Journal(settings.state_dir)
    if archive.files and not lake.has_table:
        raise BadOptions(
            f"target {settings.target!r}: the archive in {settings.state_dir} has no such "
            "Iceberg table; give the --target of `tidelog spark archive --format iceberg`"
        )
    progress("plan")
    groups = _groups(archive.files, lake.app_id, settings)
    if settings.dry_run:
        return _outcome(groups, (), 0, 0, dry_run=True)
    last = list(journal.names(COMPACTIONS))[-1:]
    if last:
        # The run that has decided it may have died before the table knew.
        lake.replace(*_parsed(journal, last[0]))
    written: list[WrittenFile] = []
    if groups:
        progress("write")
        written = _write(spark, lake, groups)
        progress("commit")
        replaced = sorted(file.path for group in groups for file in group.files)
        # The number after those that `groups` knows: another run may have compacted since.
        _decide(journal, archive.compactions, replaced, written)
        lake.replace(archive.compactions, replaced, written)
        sweep(written, "")
    progress("sweep")
    removed, removed_bytes = _sweep(journal, archive, lake, settings)
    return _outcome(groups, written, removed, removed_bytes)


def _groups(
    files: Iterable[WrittenFile], app_id: str, settings: CompactFilesSettings
) -> list[_Group]:
    """The small files of each day and topic, in groups of at least two."""
    by_day: dict[tuple[str, str], list[WrittenFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < settings.small_bytes:
            by_day[file.event_date, file.topic].append(file)
    groups = []
    for _, those in sorted(by_day.items()):
        group: list[WrittenFile] = []
        filled = 0
        for file in sorted(those, key=lambda file: (file.first_offset, file.path)):
            if filled + file.size_bytes > settings.file_bytes:
                groups.append(group)
                group, filled = [], 0
            group.append(file)
            filled += file.size_bytes
        groups.append(group)
    return [
        _Group(_name(group, app_id), tuple(group)) for group in groups if len(group) > 1
    ]  # fmt: skip


def _name(group: Sequence[WrittenFile], app_id: str) -> str:
    """A name that another run chooses for the same files, and for no others."""
    digest = hashlib.sha256("\n".join(file.path for file in group).encode()).hexdigest()[:16]
    topic = re.sub(r"[^A-Za-z0-9._-]", "_", group[0].topic)
    return f"{topic}-{_mark(app_id)}-{digest}.parquet"


def _mark(app_id: str) -> str:
    """What is in the names of all files that the compaction of one archive writes."""
    return f"compacted-{app_id.rpartition('-')[2][:8]}"


def _write(spark: SparkSession, lake: IcebergLake, groups: Sequence[_Group]) -> list[WrittenFile]:
    folder, dated = lake.folder, lake.has_dated_files

    def work(group: _Group) -> WrittenFile:
        return rewrite_files(group.files, folder, group.name, dated=dated)

    written = run_tasks(spark, work, groups)
    check_files(written)
    for group, file in zip(groups, written, strict=True):
        rows = sum(one.rows for one in group.files)
        assert file.rows == rows, f"{file.path} has {file.rows} rows of {rows}"
    return written


def _decide(
    journal: Journal, number: int, replaced: Sequence[str], written: Sequence[WrittenFile]
) -> None:
    """Have readers of the archive take the new files. Raises Fenced."""
    document = {
        "number": number,
        "made_ms": time.time_ns() // 1_000_000,
        "replaced": list(replaced),
        "files": [asdict(file) for file in written],
    }
    running = "has compacted this archive at the same time"
    journal.decide(f"{COMPACTIONS}/{number:08d}", document, running)


def _parsed(journal: Journal, name: str) -> tuple[int, list[str], list[WrittenFile]]:
    document = journal.get(f"{COMPACTIONS}/{name}")
    files = [parse_file(one) for one in document["files"]]
    return document["number"], document["replaced"], files


def _sweep(
    journal: Journal, archive: Archive, lake: IcebergLake, settings: CompactFilesSettings
) -> tuple[int, int]:
    """Delete what was replaced long enough ago, and files of runs that died: how many, and bytes.

    Nothing while a batch of the archive is unfinished: its snapshot may be one of those to expire.
    """
    archive.refresh()
    if archive.is_pending:
        return 0, 0
    now_ms = time.time_ns() // 1_000_000
    removed = [
        path for path in Path(lake.folder).glob(f"event_date=*/*-{_mark(lake.app_id)}-*.parquet")
        if str(path) not in archive.known_paths and _is_stale(path)
    ]  # fmt: skip
    before_ms = now_ms - settings.keep_ms
    swept, over = set(journal.names(_SWEPT)), []
    replaced: list[str] = []
    for name in journal.names(COMPACTIONS):
        if name in swept:
            continue
        document = journal.get(f"{COMPACTIONS}/{name}")
        # After a run that died the table may have changed long after the decision.
        if max(document["made_ms"], lake.replaced_ms(document["number"])) > before_ms:
            continue
        replaced += document["replaced"]
        over.append(name)
    if over:
        lake.expire_snapshots(before_ms)
        # What a tag has kept names its files for ever.
        named = lake.paths_before(before_ms)
        removed += [Path(path) for path in replaced if path not in named]
    sizes = 0
    for path in removed:
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
            path.unlink()
    for name in over:
        journal.put(f"{_SWEPT}/{name}", {"swept_ms": now_ms})
    return len(removed), sizes


def _is_stale(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime > _STALE_S
    return False


def _outcome(
    groups: Sequence[_Group],
    written: Sequence[WrittenFile],
    removed: int,
    removed_bytes: int,
    *,
    dry_run: bool = False,
) -> Outcome:
    joined = sum(len(group.files) for group in groups)
    days = {group.files[0].event_date for group in groups}
    would = "would join" if dry_run else "joined"
    report: Mapping[str, Any] = {
        "joined": joined,
        "written": len(groups),
        "rows": sum(file.rows for group in groups for file in group.files),
        "bytes_before": sum(file.size_bytes for group in groups for file in group.files),
        "bytes_after": sum(file.size_bytes for file in written),
        "removed": removed,
        "removed_bytes": removed_bytes,
    }
    sentence = f"{would} {joined} files of {len(days)} days into {len(groups)}"
    if removed:
        sentence += f", and deleted {removed} that were replaced before"
    return Outcome(
        code=JobCode.DONE if groups or removed else JobCode.NOTHING_TO_DO,
        sentence=sentence if groups or removed else "no two small files of one day and topic",
        report=report,
    )
