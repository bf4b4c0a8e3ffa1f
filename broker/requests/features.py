"""The feature levels of this release: ApiVersions reports them, UpdateFeatures cannot change them.

| feature               | level       | what clients do with it                                    |
|-----------------------|-------------|------------------------------------------------------------|
| `group.version`       | 1           | the consumer protocol of groups is served (KIP-848)        |
| `metadata.version`    | 25, 4.0-IV3 | user interfaces show it as the version of the cluster      |
| `share.version`       | 1           | share groups are served (KIP-932)                          |
| `transaction.version` | 2           | producers send no AddPartitionsToTxn and take a new epoch  |
|                       |             | for each transaction (KIP-890)                             |

A level is listed only when the broker implements it: the last one changes the requests of
producers. The cluster has no other release to agree with, so the levels are fixed.

Differs from Kafka: the levels cannot be changed; Kafka can lower and raise them.

Source: KIP-584, KIP-1022; Kafka `MetadataVersion`, `GroupVersion`, `TransactionVersion`.
"""

from collections.abc import Mapping
from types import MappingProxyType

GROUP_VERSION = "group.version"
METADATA_VERSION = "metadata.version"
SHARE_VERSION = "share.version"
TRANSACTION_VERSION = "transaction.version"

FINALIZED: Mapping[str, int] = MappingProxyType(
    {GROUP_VERSION: 1, METADATA_VERSION: 25, SHARE_VERSION: 1, TRANSACTION_VERSION: 2}
)
"""Feature to level. Lowest supported, highest supported and finalized level are the same."""
