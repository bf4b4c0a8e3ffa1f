"""Files on their way out: renamed at once, unlinked after a delay.

Owns the `.deleted` files of one log. The delay (`file.delete.delay.ms`) is for readers that still
have the file in hand; the rename makes sure that a restart does not load it again. What a crash
leaves behind is unlinked by recovery.

Source: Kafka `LocalLog.deleteSegmentFiles`. Read next: `storage.log.retention`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from storage.disk.files import Files
from storage.disk.steps import Slice, Steps, off_loop, run_steps
from storage.errors import StorageFailed
from storage.segment.segment import Segment

_LOOKED_AT_IN_ONE_SLICE: Final = 256
"""Logs that are asked what is due, most of them for nothing, before others are let in."""


class Graveyard:
    """The renamed files of one log, each with the time at which it may be unlinked."""

    __slots__ = ("_files", "_waiting")

    def __init__(self, files: Files) -> None:
        """Nothing waits yet."""
        self._files = files
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """How many files wait."""
        return len(self._waiting)

    def bury(self, segments: Iterable[Segment], *, due_ms: int) -> None:
        """Rename the files of segments that the log no longer knows. Raises OSError."""
        for segment in segments:
            self._waiting += [(due_ms, path) for path in segment.mark_deleted()]

    def unlink_due(self, now_ms: int) -> int:
        """`unlink_steps` at once."""
        return run_steps(self.unlink_steps(now_ms))

    def unlink_steps(self, now_ms: int) -> Steps[int]:
        """Unlink what has waited long enough, each file in another thread; how many files.

        A gigabyte takes a third of a second. Files may be buried between the steps. Raises OSError,
        the first one, after all were tried; those that failed wait on.
        """
        due = [entry for entry in self._waiting if entry[0] <= now_ms]
        gone: set[tuple[int, str]] = set()
        failures: list[OSError] = []
        for entry in due:
            try:
                yield from off_loop(partial(self._unlink, entry[1]))
                gone.add(entry)
            except OSError as error:
                failures.append(error)
        if gone:
            self._waiting = [entry for entry in self._waiting if entry not in gone]
        if failures:
            raise failures[0]
        return len(due)

    def _unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.unlink(path)


def unlink_all(works: Iterable[Callable[[int], Steps[int]]], now_ms: int) -> Steps[int]:
    """The sum of what all of them unlink; none is held up by another's failure.

    `works` must not change between the steps.

    Raises:
        StorageFailed: the first one, after all were tried.
    """
    unlinked, failures = 0, []
    spent = Slice(_LOOKED_AT_IN_ONE_SLICE)
    for work in works:
        if spent.add(1):
            yield None
        try:
            unlinked += yield from work(now_ms)
        except StorageFailed as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return unlinked
