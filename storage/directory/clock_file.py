"""The file `settable-clock`: the mark of a directory for tests, and where its clock stood.

A broker with a settable clock may delete everything as too old, so it starts only on a directory
that was made with one, or has no partitions yet: users and a certificate may have been made before
(`serve --secure`, `user add`). The file is that mark. It also lets a restarted broker continue from
the time at which the clock stood; without it LogAppendTime would fall back to the present.

Read next: `broker.clocks.settable_clock`.
"""

import json
from dataclasses import asdict
from typing import Final

from storage.disk.checkpoints import META_PROPERTIES_FILE
from storage.disk.files import Files
from storage.errors import ForeignDataDir, HalfWrittenDataDir
from values.dataclasses import dataclass

CLOCK_FILE: Final = "settable-clock"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockState:
    """A settable clock showed `wall_ms` at the real time `saved_ms`, and ran at `rate`."""

    wall_ms: int
    saved_ms: int
    rate: float


def read_clock(directory: str, files: Files) -> ClockState | None:
    """The stored state; None for a directory that is new, or has no partitions.

    Raises:
        ForeignDataDir: the directory was made with the system's clock, and has partitions.
        HalfWrittenDataDir: the file is not one that `write_clock` wrote.
    """
    path = f"{directory}/{CLOCK_FILE}"
    if not files.exists(path):
        if files.exists(f"{directory}/{META_PROPERTIES_FILE}") and any(
            files.is_directory(f"{directory}/{name}") for name in files.list_directory(directory)
        ):
            raise ForeignDataDir(
                "this data directory was made with the system's clock",
                path=directory,
                found="a settable clock could delete its records as too old",
                cure="start on an empty directory, or without --clock settable",
            )
        return None
    try:
        fields = json.loads(files.read_all(path))
        return ClockState(
            wall_ms=int(fields["wall_ms"]),
            saved_ms=int(fields["saved_ms"]),
            rate=float(fields["rate"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HalfWrittenDataDir(
            "the state of the settable clock cannot be read",
            path=path,
            found=str(error),
            cure="start on an empty directory",
        ) from error


def write_clock(directory: str, files: Files, state: ClockState) -> None:
    """Replace the file; durable on return."""
    files.replace_atomically(f"{directory}/{CLOCK_FILE}", f"{json.dumps(asdict(state))}\n".encode())
