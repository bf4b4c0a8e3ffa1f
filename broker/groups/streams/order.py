"""The order in which Kafka takes names and equal loads: that of Java's collections.

The assignor gives a task to the first of equally loaded processes, and of equally loaded members.
Which one is first follows from the tables and heaps that Kafka keeps them in.

Source: `HashMap`, `PriorityQueue` and `String.hashCode` of Java.
"""

import struct
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

DEFAULT_CAPACITY: Final = 16

_T = TypeVar("_T")


def hash_order(names: Iterable[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """Different names in the order of a table that was made for `capacity` (at least 1) of them.

    The table has a power of two of places and doubles when more than three quarters of them would
    be taken. Names of the same place keep the order in which they are given.
    """
    given = list(names)
    places = 1 << (capacity - 1).bit_length()
    while len(given) * 4 > places * 3:
        places *= 2
    return sorted(given, key=lambda name: _spread(name) & (places - 1))


def _spread(name: str) -> int:
    """The hash of a string, its upper half mixed into its lower one."""
    encoded = name.encode("utf-16-le")
    value = 0
    for unit in struct.unpack(f"<{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)


class LoadQueue(Generic[_T]):
    """The least loaded comes first, and equals as from a binary heap that compares loads alone.

    A new one moves up past larger ones only. When the first one leaves, the last one takes its
    place and moves down, past the smaller of the two below it and, of equals, past the left one, as
    long as that is smaller than itself. `heapq` moves down past the right one.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, _T]] = []

    def __bool__(self) -> bool:
        """Whether one is left."""
        return bool(self._heap)

    def push(self, load: float, item: _T) -> None:
        """Add one."""
        heap = self._heap
        heap.append((load, item))
        place = len(heap) - 1
        while place:
            above = (place - 1) // 2
            if heap[above][0] <= load:
                break
            heap[place] = heap[above]
            place = above
        heap[place] = (load, item)

    def pop(self) -> _T:
        """Remove the first one; the queue must not be empty."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last[1]
        first = heap[0][1]
        place, end = 0, len(heap)
        while (below := 2 * place + 1) < end:
            if below + 1 < end and heap[below][0] > heap[below + 1][0]:
                below += 1
            if last[0] <= heap[below][0]:
                break
            heap[place] = heap[below]
            place = below
        heap[place] = last
        return first
