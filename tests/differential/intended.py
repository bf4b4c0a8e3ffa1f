"""The differences that are meant to be, each with its reason; docs/compatibility.md explains them.

A row names the releases, a pattern for the topic, the case and the aspect. A difference that no row
matches fails the test, and so does a row that nothing matches any more.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.differential.run import Difference


class Intended(NamedTuple):
    """A family of differences; the patterns have to match whole names."""

    reason: str
    case: str
    aspect: str = ".*"
    topic: str = ".*"
    versions: str = ".*"

    def covers(self, difference: Difference) -> bool:
        """Whether the difference is one of this family."""
        pairs = (
            (self.case, difference.case),
            (self.aspect, difference.aspect),
            (self.topic, difference.topic),
            (self.versions, difference.version),
        )
        return all(re.fullmatch(pattern, text) for pattern, text in pairs)


INTENDED: Final[tuple[Intended, ...]] = ()


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """Those that no row covers."""
    return [d for d in differences if not any(row.covers(d) for row in INTENDED)]
