"""The log of a partition that cannot be read at all: every operation reports why.

Owns the stand-in for such a log among the partitions of its topic. With it the topic keeps its
partition numbers, and the other partitions are served. Its files are `EmptyFiles`, so it never
touches the partition's directory. Also owns the decision when to use it: an error of one
directory concerns one partition, an error of the machine stops the start.
"""

import errno
from collections.abc import Callable
from random import Random
from traceback import extract_tb
from typing import Final

from config import TopicConfig
from protocol.records.layout import NO_TIMESTAMP
from storage.errors import DataDirError, LogQuarantined, QuarantineKind, StorageError
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log import Log
from storage.log.producers import LogProducers
from storage.log.values import RecoveryReport
from storage.recovery.empty_files import EmptyFiles
from storage.segment.manifest import Manifest
from storage.segment.segment import Segment

_OF_THE_MACHINE: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)
"""Errors that every other directory would meet as well."""


def open_or_stand_in(
    open_partition: Callable[[], Log],
    *,
    path: str,
    topic: str,
    partition: int,
    config: TopicConfig,
    log_start_offset: int,
) -> Log:
    """The result of `open_partition`, or a log that reports why the directory cannot be opened.

    Raises errors that do not concern this one partition: `DataDirError`, a full disk, no more
    descriptors.
    """
    try:
        return open_partition()
    except DataDirError:
        raise
    except Exception as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in _OF_THE_MACHINE:
            raise
        what = f"{type(error).__name__}: {error}"
        if not isinstance(error, (OSError, StorageError)):
            # A bug: the report of it needs its place in the code.
            place = extract_tb(error.__traceback__)[-1]
            what += f", at {place.filename}:{place.lineno}"
        found = LogQuarantined(
            path,
            good_until=log_start_offset,
            reason=f"{path} cannot be opened ({what})",
            kind=QuarantineKind.UNREADABLE,
        )
        return unusable_log(found, RecoveryReport(notes=[found.reason]), topic, partition, config)


def missing_log(path: str, topic: str, partition: int, config: TopicConfig, end: int) -> Log:
    """The log of a directory that is gone and that had offsets up to `end`, exclusive."""
    found = LogQuarantined(
        path,
        good_until=0,
        reason=f"{path} is missing; offsets up to {end - 1} were durable in it",
        kind=QuarantineKind.LOST,
        durable_end=end,
    )
    return unusable_log(found, RecoveryReport(notes=[found.reason]), topic, partition, config)


def unusable_log(
    quarantine: LogQuarantined,
    report: RecoveryReport,
    topic: str,
    partition: int,
    config: TopicConfig,
    *,
    leader_epoch: int = 0,
) -> Log:
    """A log that begins and ends at `quarantine.good_until` and is offline from the beginning."""
    files, path = EmptyFiles(), quarantine.path
    return Log(
        files=files,
        path=path,
        topic=topic,
        partition=partition,
        config=config,
        segments=[Segment.create(files, path, quarantine.good_until, now_ms=NO_TIMESTAMP)],
        producers=LogProducers.empty(path, files),
        leader_epochs=LeaderEpochs(directory=path, files=files),
        leader_epoch=leader_epoch,
        manifest=Manifest(path, files),
        random=Random(0),
        log_start_offset=quarantine.good_until,
        end_position=0,
        last_stamp_ms=NO_TIMESTAMP,
        is_new=False,
        report=report,
        quarantine=quarantine,
    )
