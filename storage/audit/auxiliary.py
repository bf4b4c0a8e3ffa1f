"""The checks of auxiliary indexes, by the suffix of their files, for `fsck` and `dump-segment`.

Owns the contract between them and the modules that check one kind each. These share no code with
the engine's (`storage.segment.auxiliary_index`), because the same mistake in both would not show.
Read next: `storage.audit.partition`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from storage.audit.density import read_density
from storage.audit.findings import IndexProblem, JudgedEntry, SegmentSummary
from storage.disk.file_names import DENSITY_SUFFIX


class AuditedIndex(Protocol):
    """The parsed content of a file."""

    def describe(self) -> tuple[dict[str, Any], str]:
        """What it says about itself, for programs and for people."""

    def judge(self, base_offset: int, maxima: Iterable[tuple[int, int]]) -> Iterator[JudgedEntry]:
        """The entries, each with its fault.

        `maxima` are (last offset of a batch, largest timestamp up to there) of the log, in order;
        batches that raise nothing may be left out.
        """

    def find_problems(self, segment: SegmentSummary) -> Iterator[IndexProblem]:
        """The faults of the file of a segment whose log was read."""


AUXILIARY_READERS: Final[Mapping[str, Callable[[bytes], AuditedIndex | IndexProblem]]] = {
    DENSITY_SUFFIX: read_density,
}
"""Suffix to the function that parses a file; the result is a fault when it cannot be read."""
