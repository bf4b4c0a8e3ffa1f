"""The choice of a record's partition.

Records with a key follow the key: murmur2 of its bytes, as the Java client computes it, so
that producers in different languages agree and a key's records stay in order. Records without
a key stick to one partition until a batch's worth of bytes went there and then move on, which
fills batches instead of spreading thin ones (KIP-480, KIP-794).

Source: org.apache.kafka.common.utils.Utils.murmur2, BuiltInPartitioner.
"""

import random
from collections.abc import Sequence

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK_32 = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of `data`, unsigned, with Kafka's seed."""
    length = len(data)
    state = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * MULTIPLIER & MASK_32
        word ^= word >> 24
        word = word * MULTIPLIER & MASK_32
        state = (state * MULTIPLIER & MASK_32) ^ word
    if whole < length:
        state ^= int.from_bytes(data[whole:], "little")
        state = state * MULTIPLIER & MASK_32
    state ^= state >> 13
    state = state * MULTIPLIER & MASK_32
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition of 0 to `partitions_count` - 1 that every Kafka client gives this key."""
    return (murmur2(key) & POSITIVE) % partitions_count


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
