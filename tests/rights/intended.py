"""The differences between the refusals of both brokers that are meant to be."""

from collections.abc import Iterable

from tests.requests_differential.intended import Intended
from tests.rights.run import Unlike

INTENDED: tuple[Intended, ...] = ()


def unintended(found: Iterable[Unlike]) -> list[Unlike]:
    """What no row covers."""
    return [row for row in found if not any(known.covers(row.difference) for known in INTENDED)]
