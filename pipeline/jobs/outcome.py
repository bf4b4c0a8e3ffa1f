"""How a job ends: a code for shells and schedulers, and a report for people and programs.

| code | meaning                                                        |
|------|----------------------------------------------------------------|
| 0    | done                                                           |
| 1    | the broker, the disk or Spark refused                          |
| 2    | the settings are wrong                                         |
| 3    | nothing to do                                                  |
| 4    | data loss or damage was found                                  |
| 5    | another run has taken over                                     |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from pipeline.errors import (
    BadOptions,
    CorruptData,
    DataLoss,
    Fenced,
    JournalConflict,
    NoJava,
    NotShared,
    PipelineError,
)

Progress = Callable[[str], None]
"""Told what a job is about to do, one short sentence at a time."""


class JobCode(IntEnum):
    """What a finished job says to the shell."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING_TO_DO = 3
    DATA_LOSS = 4
    FENCED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended: `report` holds facts for programs, `rows` a table for people."""

    code: JobCode = JobCode.DONE
    sentence: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[Mapping[str, Any], ...] = ()


def silent(_: str) -> None:
    """The progress of a job that nobody watches."""


def code_of(error: PipelineError) -> JobCode:
    """The code for an error that ended a job."""
    table: tuple[tuple[tuple[type[PipelineError], ...], JobCode], ...] = (
        ((BadOptions, NoJava, NotShared), JobCode.USAGE),
        ((DataLoss, CorruptData), JobCode.DATA_LOSS),
        ((Fenced, JournalConflict), JobCode.FENCED),
    )
    return next((code for kinds, code in table if isinstance(error, kinds)), JobCode.FAILED)
