"""Files on their way out: renamed at once, unlinked after a delay.

Owns the `.deleted` files of one log. The delay (`file.delete.delay.ms`) is for readers that still
have the file in hand; the rename makes sure that a restart does not load it again. What a crash
leaves behind is unlinked by recovery.

Source: Kafka `LocalLog.deleteSegmentFiles`. Read next: `storage.retention`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from storage.errors import StorageFailed
from storage.files import Files
from storage.segment import Segment


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
        """Unlink what has waited long enough; how many files.

        Raises OSError, the first one, after all were tried; those that failed wait on.
        """
        due = [entry for entry in self._waiting if entry[0] <= now_ms]
        failed: dict[tuple[int, str], OSError] = {}
        for entry in due:
            try:
                with suppress(FileNotFoundError):
                    self._files.unlink(entry[1])
            except OSError as error:
                failed[entry] = error
        self._waiting = [e for e in self._waiting if e[0] > now_ms or e in failed]
        for failure in failed.values():
            raise failure
        return len(due)


def unlink_all(works: Iterable[Callable[[int], int]], now_ms: int) -> int:
    """The sum of what all of them unlink; none is held up by another's failure.

    Raises:
        StorageFailed: the first one, after all were tried.
    """
    unlinked, failures = 0, []
    for work in works:
        try:
            unlinked += work(now_ms)
        except StorageFailed as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return unlinked
