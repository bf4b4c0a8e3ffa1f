"""The audit of a data directory at rest: is every file correct, and do the files agree?

Owns the rules about the whole directory; `storage.audit.partition` has those about one log.

| rule | about                                                                                 |
|------|---------------------------------------------------------------------------------------|
| D7   | identity, journal and checkpoints can be read; no checkpoint is ahead of its log      |
| D8   | no temporary files; every partition of the journal has its directory                  |
| D9   | only their owner can read the files (checked on a real file system, not a simulated)  |

It reads only, takes no lock and needs none on a stopped directory. On a directory in use it reports
what is being written at that moment. After a clean stop every rule is strict; after a crash, a
fault that the next start repairs is a warning. Nothing here raises because of the files' content.

See docs/crash-safety.md.
"""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final

from protocol.records.layout import NO_OFFSET
from storage.audit.findings import Finding, LogSummary, Severity
from storage.audit.partition import PartitionAudit
from storage.directory.claim import Survey, survey
from storage.directory.metadata import FIRST_WORKER, TopicMetadata
from storage.directory.metadata_journal import JOURNAL_FILE, damage_position, read_topics
from storage.directory.worker_directories import worker_path, worker_paths
from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    known_offsets,
    parse_meta_properties,
    read_offsets,
    read_unclean,
)
from storage.disk.file_names import partition_directory_name
from storage.disk.files import DIRECTORY_MODE, FILE_MODE, TEMPORARY_SUFFIX, Files, RealFiles
from values.dataclasses import dataclass

__all__ = ["AuditReport", "Finding", "Severity", "audit_directory"]

_OTHERS: Final = 0o077
_COMPACTED_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

Progress = Callable[[int, int], None]
"""Called with the number of partitions checked so far and the total."""


@dataclass(slots=True, kw_only=True)
class AuditReport:
    """The results of an audit; `logs` has a summary for each partition."""

    path: str
    stopped_cleanly: bool
    findings: list[Finding] = field(default_factory=list)
    logs: dict[tuple[str, int], LogSummary] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    def add(self, rule: str, path: str, expected: str, found: str, *, repaired: bool) -> None:
        """Add a finding; one that the next start repairs is a warning after a crash."""
        severity = Severity.WARNING if repaired and not self.stopped_cleanly else Severity.ERROR
        self._add(severity, rule, path, expected, found)

    def warn(self, rule: str, path: str, expected: str, found: str) -> None:
        """Add a finding that is harmless after a clean stop too."""
        self._add(Severity.WARNING, rule, path, expected, found)

    def _add(self, severity: Severity, rule: str, path: str, expected: str, found: str) -> None:
        self.findings.append(
            Finding(severity=severity, rule=rule, path=path, expected=expected, found=found)
        )


def audit_directory(
    path: str,
    files: Files,
    *,
    deep: bool = True,
    compacted: Iterable[str] = _COMPACTED_TOPICS,
    progress: Progress | None = None,
) -> AuditReport:
    """Every fault of the data directory at `path`, and the summaries of its logs.

    `deep` decodes every record, which takes most of the time. `compacted` are topics in which
    offsets may be missing, besides those that the journal marks as compacted.

    Raises:
        OSError: a file could not be read at all.
    """
    path = os.path.abspath(path)
    report = AuditReport(path=path, stopped_cleanly=files.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}"))
    topics = _check_journal(report, files)
    gaps = {*compacted, *(name for name, topic in topics.items() if _is_compacted(topic))}
    _audit_worker(report, FIRST_WORKER, topics, gaps, files, deep=deep, progress=progress)
    directories = worker_paths(path, files)
    for worker in sorted({number for topic in topics.values() for number in topic.workers}):
        if worker != FIRST_WORKER and worker not in directories:
            where = worker_path(path, worker)
            report.add("D8", where, "the directory of a worker", "none", repaired=True)
    for worker, directory in directories.items():
        clean = files.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
        own = AuditReport(path=directory, stopped_cleanly=clean)
        _audit_worker(own, worker, topics, gaps, files, deep=deep, progress=progress)
        report.findings += own.findings
        report.logs |= own.logs
        report.stopped_cleanly = report.stopped_cleanly and clean
    if isinstance(files, RealFiles):
        _check_modes(report)
    return report


def _audit_worker(
    report: AuditReport,
    worker: int,
    topics: dict[str, TopicMetadata],
    gaps: set[str],
    files: Files,
    *,
    deep: bool,
    progress: Progress | None,
) -> None:
    """Audit the directory of one worker; the report's path is its own."""
    path, clean = report.path, report.stopped_cleanly
    _check_identity(report, files)
    found = survey(path, files)
    recovery_points = known_offsets(path, RECOVERY_POINT_FILE, files)
    log_starts = known_offsets(path, LOG_START_FILE, files)
    _check_directories(report, found, topics, worker, recovery_points)
    unclean = read_unclean(path, files)
    for number, key in enumerate(sorted(found.partitions), start=1):
        name = partition_directory_name(*key)
        directory = f"{path}/{name}"
        one = PartitionAudit(
            directory,
            files,
            stopped_cleanly=clean and name not in unclean,
            recovery_point=recovery_points.get(key, 0),
            log_start=log_starts.get(key, 0),
            is_compacted=key[0] in gaps,
            is_tiered=key[0] in topics and topics[key[0]].is_tiered,
            deep=deep,
        )
        one.run()
        report.findings += one.findings
        report.logs[key] = one.summary
        if progress is not None:
            progress(number, len(found.partitions))
    _check_checkpoints(report, files)


def _is_compacted(topic: TopicMetadata) -> bool:
    return "compact" in topic.overrides.get("cleanup.policy", "")


def _check_identity(report: AuditReport, files: Files) -> None:
    path = f"{report.path}/{META_PROPERTIES_FILE}"
    try:
        parse_meta_properties(files.read_all(path))
    except FileNotFoundError:
        report.add("D7", path, "the identity of the directory", "no such file", repaired=False)
    except CorruptCheckpoint as error:
        report.add("D7", path, "the identity of the directory", str(error), repaired=False)


def _check_journal(report: AuditReport, files: Files) -> dict[str, TopicMetadata]:
    """The topics in the journal; none in a directory of Apache Kafka."""
    path = f"{report.path}/{JOURNAL_FILE}"
    if not files.exists(path):
        return {}
    content = files.read_all(path)
    position = damage_position(content)
    if position is not None:
        found = f"a bad line at byte {position}"
        report.add("D7", path, "good lines up to a torn tail", found, repaired=False)
    elif not content.endswith(b"\n"):
        report.add("D7", path, "whole lines", "a torn tail", repaired=True)
    return read_topics(content)


def _check_directories(
    report: AuditReport,
    found: Survey,
    topics: dict[str, TopicMetadata],
    worker: int,
    recovery_points: dict[tuple[str, int], int],
) -> None:
    expected = {
        (name, partition): topic.topic_id
        for name, topic in topics.items()
        for partition in topic.of_worker(worker)
    }
    for key in sorted(expected.keys() - found.partitions.keys()):
        path = f"{report.path}/{partition_directory_name(*key)}"
        # A start makes it again unless offsets are known to have been in it.
        is_made = not recovery_points.get(key)
        report.add("D8", path, "the directory of a partition", "none", repaired=is_made)
    for key, topic_id in sorted(found.partitions.items()):
        path = f"{report.path}/{partition_directory_name(*key)}"
        if topics and key not in expected:
            report.add("D8", path, "a partition of the journal", "a stray", repaired=True)
        elif key in expected and topic_id is None:
            # Never synced, because the journal has the id: a start writes the file again.
            path = f"{path}/{PARTITION_METADATA_FILE}"
            report.warn("D8", path, "the topic's id", "none, or a broken one")
        elif key in expected and topic_id != expected[key]:
            report.add("D8", path, "the topic's id", "that of another topic", repaired=True)


def _check_checkpoints(report: AuditReport, files: Files) -> None:
    for name in (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE):
        path = f"{report.path}/{name}"
        if files.exists(path + TEMPORARY_SUFFIX):
            report.add("D8", path + TEMPORARY_SUFFIX, "no temporary file", "one", repaired=True)
        try:
            offsets = read_offsets(report.path, name, files)
        except CorruptCheckpoint as error:
            report.add("D7", path, "a checkpoint", str(error), repaired=False)
            continue
        for key, offset in sorted(offsets.items()):
            log = report.logs.get(key)
            if log is not None and offset > log.log_end_offset:
                expected = f"{key[0]}-{key[1]} up to its end {log.log_end_offset}"
                # Under flush.policy=os the high watermark is ahead of the offsets that survive a
                # crash.
                is_hint = name == HIGH_WATERMARK_FILE
                report.add("D7", path, expected, str(offset), repaired=is_hint)
            if log is not None and name == LOG_START_FILE:
                log.log_start_offset = max(log.log_start_offset, offset)
    for key, log in sorted(report.logs.items()):
        start = log.first_base_offset if log.log_start_offset == NO_OFFSET else log.log_start_offset
        if not log.first_base_offset <= start <= log.log_end_offset:
            path = f"{report.path}/{partition_directory_name(*key)}"
            expected = f"a log start in [{log.first_base_offset}, {log.log_end_offset}]"
            report.add("D1", path, expected, str(start), repaired=False)


def _check_modes(report: AuditReport) -> None:
    for directory, _, names in os.walk(report.path):
        for path in (directory, *(f"{directory}/{name}" for name in names)):
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if mode & _OTHERS:
                allowed = DIRECTORY_MODE if path == directory else FILE_MODE
                report.warn("D9", path, f"mode {allowed:04o}", f"{mode:04o}")
