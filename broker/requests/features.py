"""The features and APIs of this broker, as ApiVersions reports them.

| feature               | level       | what clients do with it                                    |
|-----------------------|-------------|------------------------------------------------------------|
| `group.version`       | 1           | the consumer protocol of groups is served (KIP-848)        |
| `metadata.version`    | 25, 4.0-IV3 | user interfaces show it as the version of the cluster      |
| `share.version`       | 1           | share groups are served (KIP-932)                          |
| `streams.version`     | 1           | groups of Kafka Streams are served (KIP-1071)              |
| `transaction.version` | 2           | producers send no AddPartitionsToTxn and take a new epoch  |
|                       |             | for each transaction (KIP-890)                             |

A level is listed only when the broker implements it: the last one changes the requests of
producers. The cluster has no other release to agree with, so the levels are fixed.

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
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"

FINALIZED: Mapping[str, int] = MappingProxyType(
    {
        GROUP_VERSION: 1,
        METADATA_VERSION: 25,
        SHARE_VERSION: 1,
        STREAMS_VERSION: 1,
        TRANSACTION_VERSION: 2,
    }
)
"""Feature to level. Lowest supported, highest supported and finalized level are the same."""

TELEMETRY_APIS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""The APIs by which clients push their metrics: served where the extra `telemetry` is installed."""


@functools.cache
def served_apis() -> Mapping[ApiKey, VersionRange]:
    """The APIs of this broker, in key order."""
    missing = frozenset() if otlp.is_installed() else TELEMETRY_APIS
    return {key: versions for key, versions in SUPPORTED.items() if key not in missing}
