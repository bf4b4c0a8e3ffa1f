"""How a job ends: a code for shells and schedulers, and a report for people and programs.

| code | meaning                                                        |
|------|----------------------------------------------------------------|
| 0    | done                                                           |
| 1    | the broker, the disk or Spark refused, or is not installed     |
| 2    | the settings are wrong                                         |
| 3    | no broker answered                                             |
| 4    | a topic, partition or group that was named does not exist      |
| 6    | data loss or damage was found                                  |
| 7    | nothing to do                                                  |
| 8    | another run has taken over                                     |

The numbers have the same meaning for every command: `cli.exit_codes` has the same table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from client.errors import AddressUnusable, BrokerRefused, BrokerUnreachable
from pipeline.errors import (
    BadOptions,
    CorruptData,
    DataLoss,
    Fenced,
    JournalConflict,
    NotShared,
)
from protocol.error_codes import ErrorCode

_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})

Progress = Callable[[str], None]
"""Receives a job's next step, one short sentence at a time."""


class JobCode(IntEnum):
    """The exit code of a finished job."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    DAMAGED = 6
    NOTHING_TO_DO = 7
    FENCED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended: `report` holds facts for programs, `rows` a table for people."""

    code: JobCode = JobCode.DONE
    sentence: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()


def planned(
    rows: Iterable[Mapping[str, Any]], sentence: str, nothing: str, **figures: int
) -> Outcome:
    """The end of a dry run: a row for each partition, or `nothing` where there are none."""
    rows = tuple(rows)
    return Outcome(
        code=JobCode.DONE if rows else JobCode.NOTHING_TO_DO,
        sentence=sentence if rows else nothing,
        report={**figures, "partitions": rows},
        rows=rows,
    )


def silent(_: str) -> None:
    """The progress of a job without an observer."""


def code_of(error: Exception) -> JobCode:
    """The code for an error that ended a job."""
    table: tuple[tuple[tuple[type[Exception], ...], JobCode], ...] = (
        ((BadOptions, NotShared), JobCode.USAGE),
        ((AddressUnusable, BrokerUnreachable), JobCode.UNREACHABLE),
        ((DataLoss, CorruptData), JobCode.DAMAGED),
        ((Fenced, JournalConflict), JobCode.FENCED),
    )
    if isinstance(error, BrokerRefused) and error.code in _MISSING:
        return JobCode.NOT_FOUND
    return next((code for kinds, code in table if isinstance(error, kinds)), JobCode.FAILED)
