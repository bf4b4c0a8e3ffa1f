"""Producer ids: unique for the life of the data directory, cheap to allocate.

Ids are reserved durably in blocks, so that one fsync serves a thousand producers. A restart loses
the rest of a block, which is negligible among 2**63 ids.

Source: Kafka's `ProducerIdManager`; KIP-98, KIP-730.
"""

from __future__ import annotations

from typing import Final

from broker.topics.registry import TopicRegistry

BLOCK_SIZE: Final = 1000


class ProducerIds:
    """The source of new producer ids. Loop thread only."""

    def __init__(self, topics: TopicRegistry) -> None:
        """Take blocks from the data directory of `topics`."""
        self._topics = topics
        self._block = iter(range(0))

    def allocate(self) -> int:
        """An id that was never used before.

        Raises:
            StorageError: the next block could not be made durable.
        """
        producer_id = next(self._block, None)
        if producer_id is None:
            self._block = iter(self._topics.allocate_producer_ids(BLOCK_SIZE))
            producer_id = next(self._block)
        return producer_id
