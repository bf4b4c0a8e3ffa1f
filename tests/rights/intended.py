"""The differences between the refusals of both brokers that are meant to be."""

from collections.abc import Iterable

from protocol.api_keys import ApiKey
from tests.requests_differential.intended import Intended
from tests.rights.run import Unlike

BY_CHANCE = Intended(
    "the ids of new producers are each broker's own",
    (ApiKey.INIT_PRODUCER_ID,),
    at="producer_id",
    ours="new producer|own producer.*",
    theirs="new producer|own producer.*",
)
"""Seen only if a broker gives the id next to that of the case: in some runs, not in all."""

INTENDED: tuple[Intended, ...] = (
    BY_CHANCE,
    Intended(
        "records outside of a transaction, by a producer that belongs to a transactional id, need "
        "WRITE on that id",
        (ApiKey.PRODUCE,),
        sent=".*sequenced.*",
    ),
    Intended(
        "a fetch with an isolation level that does not exist is refused as a whole, in Kafka topic "
        "by topic if the client may not read",
        (ApiKey.FETCH,),
        sent=r".*isolation_level=.*",
    ),
    Intended(
        "a type, an operation or a permission that is 0 is refused like others to a client without "
        "the right on the cluster; Kafka closes the connection",
        (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
        sent=r".*=0",
        at="answer",
        ours="answered CLUSTER_AUTHORIZATION_FAILED",
        theirs="connection closed",
    ),
    Intended(
        "a client that asks for all users without the right on the cluster is refused; Kafka does "
        "not answer",
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,),
        sent="users=null",
        at="answer",
        ours="answered CLUSTER_AUTHORIZATION_FAILED",
        theirs="no answer",
    ),
)


def unintended(found: Iterable[Unlike]) -> list[Unlike]:
    """What no row covers."""
    return [row for row in found if not any(known.covers(row.difference) for known in INTENDED)]
