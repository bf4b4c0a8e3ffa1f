"""The features and APIs of this broker, as ApiVersions reports them.

| feature               | level       | what clients do with it                                    |
|-----------------------|-------------|------------------------------------------------------------|
| `group.version`       | 1           | the consumer protocol of groups is served (KIP-848)        |
| `metadata.version`    | 25, 4.0-IV3 | user interfaces show it as the version of the cluster      |
| `share.version`       | 1           | share groups are served (KIP-932)                          |
| `transaction.version` | 2           | producers send no AddPartitionsToTxn and take a new epoch  |
|                       |             | for each transaction (KIP-890)                             |

A level is listed only when the broker implements it: the last one changes the requests of
producers. The cluster has no other release to agree with, so the levels are fixed.

A broker of several workers has no share groups: their state lies in worker 1, and their records
with all of them. It takes no metrics of clients either: a client pushes to any of them.

Differs from Kafka: the levels cannot be changed; Kafka can lower and raise them.

Source: KIP-584, KIP-1022; Kafka `MetadataVersion`, `GroupVersion`, `TransactionVersion`.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType

from broker.telemetry import otlp
from protocol.api_keys import SUPPORTED, ApiKey, VersionRange

GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"

FINALIZED: Mapping[str, int] = MappingProxyType(
    {GROUP_VERSION: 1, METADATA_VERSION: 25, SHARE_VERSION: 1, TRANSACTION_VERSION: 2}
)
"""Feature to level. Lowest supported, highest supported and finalized level are the same."""

SHARE_APIS = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs of share groups."""

TELEMETRY_APIS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""The APIs by which clients push their metrics: served where the extra `telemetry` is installed."""


@functools.cache
def served_apis(workers: int) -> Mapping[ApiKey, VersionRange]:
    """The APIs of a broker of so many workers, in key order."""
    missing: frozenset[ApiKey] = frozenset()
    if workers > 1:
        missing |= SHARE_APIS | TELEMETRY_APIS
    if not otlp.is_installed():
        missing |= TELEMETRY_APIS
    return {key: versions for key, versions in SUPPORTED.items() if key not in missing}


def finalized(workers: int) -> Mapping[str, int]:
    """Feature to level, of a broker of so many workers."""
    if workers == 1:
        return FINALIZED
    return {name: level for name, level in FINALIZED.items() if name != SHARE_VERSION}
