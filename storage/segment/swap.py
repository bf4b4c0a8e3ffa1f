"""Replacing segments by a rewritten one, so that a crash leaves the old ones or the new one.

Owns the order of renames. The rewritten files are written as `.cleaned` and synced before this
begins. A sync of the directory follows every line before the next one, and the last one before the
next rewrite begins: a start could not decide to which of two rewrites a `.swap` file belongs.

    step        names change                                   a start that finds this
    ----------  ---------------------------------------------  -----------------------------------
    (written)   new files exist as `.cleaned`                  removes them: nothing has happened
    announced   all of them `.cleaned` -> `.swap`, log last    some `.cleaned`: removes them all
                                                               none: finishes the swap
    replaced    old files -> `.deleted`                        finishes the swap
    named       new log `.swap` -> final                       renames the rest
    done        new indexes `.swap` -> final

"Announced" is the moment that decides. The old files go only once it is durable. The new log takes
its name only after the old files are renamed, or a start might see both. Its indexes come last, or
a start would take them for those of the old segment. `storage.recovery.temporary_files` completes
an interrupted swap.

In memory the log uses the new segment from "replaced" on; its files keep working under all names. A
caller that changes the segments meanwhile calls `finish` first, which does the rest at once.

Source: Kafka `LocalLog.replaceSegments`.
"""

from collections.abc import Callable
from typing import Final

from storage.disk.file_names import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, SWAP_SUFFIX
from storage.disk.files import Files
from storage.segment.segment import Segment

_ALL_KINDS: Final = (*INDEX_SUFFIXES, LOG_SUFFIX)


class SwapFailed(OSError):
    """A swap was begun and cannot be finished: only a restart can repair the names."""

    def __init__(self, error: OSError) -> None:
        """The swap ended with `error`."""
        super().__init__(error.errno, error.strerror, error.filename)


class Swap:
    """One rewritten segment on its way into a log. Belongs to the log's thread.

    Drive it with `advance`, and sync the directory after each call, until `is_done`.
    """

    __slots__ = ("_failure", "_files", "_steps", "new")

    def __init__(self, files: Files, new: Segment, replace: Callable[[], None]) -> None:
        """`replace` takes the old segments out of the log, renames their files and adds `new`."""
        assert new.stage == CLEANED_SUFFIX, f"{new.log.path} is no output of a rewrite"
        self.new = new
        self._files = files
        self._failure: SwapFailed | None = None
        self._steps: list[Callable[[], None]] = [
            lambda: new.move_to("", INDEX_SUFFIXES),
            lambda: new.move_to("", (LOG_SUFFIX,)),
            replace,
            lambda: new.move_to(SWAP_SUFFIX, _ALL_KINDS),
        ]

    @property
    def is_done(self) -> bool:
        """Whether the segment has its final names."""
        return not self._steps

    def advance(self) -> None:
        """Do the next line of the table. Raises SwapFailed, from then on always."""
        if self._failure is not None:
            raise self._failure
        try:
            self._steps[-1]()
        except OSError as error:
            self._failure = SwapFailed(error)
            raise self._failure from error
        self._steps.pop()

    def finish(self) -> None:
        """Do all remaining lines at once, durably. Raises SwapFailed."""
        try:
            while not self.is_done:
                self._files.sync_directory(self.new.directory)
                self.advance()
            self._files.sync_directory(self.new.directory)
        except SwapFailed:
            raise
        except OSError as error:
            raise SwapFailed(error) from error
