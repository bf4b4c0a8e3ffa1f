"""Files on their way out: renamed at once, unlinked after a delay.

Owns the `.deleted` files of one log. The delay (`file.delete.delay.ms`) is for readers that still
have the file in hand; the rename makes sure that a restart does not load it again. What a crash
leaves behind is unlinked by recovery.

Source: Kafka `LocalLog.deleteSegmentFiles`. Read next: `storage.retention`.
"""

from collections.abc import Iterable
from contextlib import suppress

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
        """Unlink what has waited long enough; how many files. Raises OSError, keeping the rest."""
        due = [entry for entry in self._waiting if entry[0] <= now_ms]
        for entry in due:
            with suppress(FileNotFoundError):
                self._files.unlink(entry[1])
            self._waiting.remove(entry)
        return len(due)
