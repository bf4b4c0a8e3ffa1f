"""The choice of a record's partition.

Records with a key follow the key: murmur2 of its bytes, as the Java client computes it, so
that producers in different languages agree and a key's records stay in order. Records without
a key stick to one partition until a batch's worth of bytes went there and then move on, which
fills batches instead of spreading thin ones (KIP-480, KIP-794).

Source: Kafka `Utils.murmur2`, `BuiltInPartitioner`.
"""

import random
from collections.abc import Sequence

from protocol.records.encode_loops import murmur2

POSITIVE = 0x7FFFFFFF


def partition_for_key(key: bytes | bytearray | memoryview, partitions_count: int) -> int:
    """The partition of 0 to `partitions_count` - 1 that every Kafka client gives this key."""
    return (murmur2(bytes(key)) & POSITIVE) % partitions_count


class StickyPartitioner:
    """Chooses for one topic's records without a key.

    Not shared between producers. `stick_bytes` is how much goes to one partition before the
    next is drawn from those available.
    """

    def __init__(self, *, stick_bytes: int, rng: random.Random | None = None) -> None:
        """Start with no partition chosen; `rng` makes the draws repeatable in tests."""
        self._stick_bytes = stick_bytes
        self._rng = rng or random.Random()
        self._current = -1
        self._sent_bytes = 0

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """The partition for a record of `size_bytes`; `available` must not be empty."""
        assert available
        if self._sent_bytes >= self._stick_bytes or self._current not in available:
            others = [partition for partition in available if partition != self._current]
            self._current = self._rng.choice(others or list(available))
            self._sent_bytes = 0
        self._sent_bytes += size_bytes
        return self._current
