"""The differences between the refusals of both brokers that are meant to be."""

from collections.abc import Iterable

from protocol.api_keys import ApiKey
from tests.requests_differential.intended import Intended
from tests.rights.run import Unlike

INTENDED: tuple[Intended, ...] = (
    Intended(
        "a new producer id may be one that stands beside the scene's own",
        (ApiKey.INIT_PRODUCER_ID,),
        at="producer_id",
        ours="new producer|own producer.*",
        theirs="new producer|own producer.*",
    ),
)


def unintended(found: Iterable[Unlike]) -> list[Unlike]:
    """What no row covers."""
    return [row for row in found if not any(known.covers(row.difference) for known in INTENDED)]
