"""Pending deletes: files that are renamed at once and unlinked after a delay.

Owns the `.deleted` files of one log. The delay (`file.delete.delay.ms`) is for readers that still
use the file. The rename makes sure that a restart does not load it again. Recovery unlinks the
files that a crash leaves.

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
"""Logs checked for due files, most of them in vain, before the thread serves requests."""


class Graveyard:
    """The renamed files of one log, each with the time at which it may be unlinked."""

    __slots__ = ("_files", "_waiting")

    def __init__(self, files: Files) -> None:
        """Start without pending files."""
        self._files = files
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Number of pending files."""
        return len(self._waiting)

    def bury(self, segments: Iterable[Segment], *, due_ms: int) -> None:
        """Rename the files of segments that are no longer part of the log. Raises OSError."""
        for segment in segments:
            self._waiting += [(due_ms, path) for path in segment.mark_deleted()]

    def unlink_due(self, now_ms: int) -> int:
        """Run `unlink_steps` to its end."""
        return run_steps(self.unlink_steps(now_ms))

    def unlink_steps(self, now_ms: int) -> Steps[int]:
        """Unlink the files that are due, each in another thread; returns their number.

        Unlinking a gigabyte takes a third of a second. The log may add files between the steps.
        Raises OSError, the first one, after all were tried; the files that failed stay pending.
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
    """The number of files that all `works` unlink; a failure of one does not stop the others.

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
