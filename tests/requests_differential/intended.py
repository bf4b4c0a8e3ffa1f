"""The differences that are meant to be, each with its reason; docs/compatibility.md lists them.

A row names APIs and versions, and what was sent, where in the answer and both values, each by a
pattern that has to match the whole. A difference that no row matches fails the test, and so does a
row that matches nothing any more.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey
from tests.requests_differential.run import Difference


class Intended(NamedTuple):
    """A family of differences; the patterns have to match whole texts."""

    reason: str
    apis: tuple[ApiKey, ...]
    sent: str = ".*"
    at: str = ".*"
    ours: str = ".*"
    theirs: str = ".*"
    versions: range = range(100)

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is one of this family."""
        pairs = (
            (self.at, difference.at),
            (self.ours, difference.ours),
            (self.theirs, difference.theirs),
            (self.sent, difference.sent),
        )
        if difference.api not in self.apis or difference.version not in self.versions:
            return False
        return all(re.fullmatch(pattern, text, re.S) for pattern, text in pairs)


INTENDED: Final[tuple[Intended, ...]] = ()


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Those that no row covers."""
    return [d for d in differences if not any(row.covers(d) for row in INTENDED)]
