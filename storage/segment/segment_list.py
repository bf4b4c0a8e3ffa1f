"""The segments of one log in order, found by offset or by time without reading each.

Owns the order: bases strictly rise, the last segment is the active one. For the closed segments it
also keeps the *prefix maxima* of their timestamps: entry i is the largest timestamp in segments 0
to i. These never fall, so "the oldest segment that has a timestamp of T or later" is a binary
search however much the segments' times overlap.

    max timestamp   10  40  20  70  50
    prefix maximum  10  40  40  70  70      T = 41: the first prefix maximum >= 41 is segment 3

The active segment's maximum moves with every append and is therefore read directly.

Source: Kafka `LogSegments` for the order; Kafka searches by time linearly.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from storage.segment.segment import Segment


class SegmentList:
    """The ordered segments of a log, never empty. One writer, which also reads.

    Attributes:
        active: the segment that is appended to, the last one.
        replacements: how often closed segments were replaced by rewritten ones.
    """

    __slots__ = ("_bases", "_prefix_maxima", "_segments", "_uploaded", "active", "replacements")

    def __init__(self, segments: list[Segment]) -> None:
        """Take the segments, in order of their bases; the last one is active."""
        assert segments, "a log has an active segment at least"
        self._segments = segments
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self._prefix_maxima: list[int] = []
        self._uploaded = 0
        self.replacements = 0
        self._recount()

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def first_local(self) -> Segment:
        """The oldest segment from which on all logs are on this machine.

        After a crash an older one may be here as well, whose removal was not durable.
        """
        first = self.active
        for segment in reversed(self._segments):
            if segment.is_remote:
                break
            first = segment
        return first

    @property
    def uploaded(self) -> int:
        """How many of the oldest segments, one after the other, have an object in a store."""
        while self._segments[self._uploaded].remote is not None and (
            self._uploaded < len(self._segments) - 1
        ):
            self._uploaded += 1
        return self._uploaded

    @property
    def remote_end(self) -> int | None:
        """Exclusive end of what an object store has without a gap; None when it has nothing."""
        count = self.uploaded
        return self._segments[count - 1].next_offset if count else None

    def __len__(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        """The segments, oldest first, as they are at this moment."""
        return iter(tuple(self._segments))

    def __getitem__(self, index: int) -> Segment:
        """Segment number `index`, the oldest being 0."""
        return self._segments[index]

    def index_of(self, offset: int) -> int:
        """Number of the segment whose range holds `offset`: the last base not above it.

        0 for an offset below all segments.
        """
        return max(0, bisect_right(self._bases, offset) - 1)

    def floor(self, offset: int) -> Segment:
        """The segment whose range holds `offset`; the first one for an offset below all."""
        return self._segments[self.index_of(offset)]

    def after(self, segment: Segment) -> Segment | None:
        """The next newer segment, or None for the active one."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def first_reaching(self, timestamp: int, start: int = 0) -> int | None:
        """Number of the oldest segment from `start` on with a timestamp of `timestamp` or later.

        None when there is none. A binary search when `start` is 0 or no older segment reaches the
        timestamp; otherwise the segments from `start` on are checked one by one.
        """
        index = bisect_left(self._prefix_maxima, timestamp)
        if index < start:
            index = start
            while index < len(self._prefix_maxima):
                if self._segments[index].max_timestamp >= timestamp:
                    break
                index += 1
        if index < len(self._prefix_maxima):
            return index
        return index if self.active.max_timestamp >= timestamp else None

    def steps_to(self, timestamp: int) -> list[tuple[int, int]]:
        """The steps of `first_reaching`, for explanations.

        Each is the base offset of a segment that the binary search looked at, and the largest
        timestamp up to its end.
        """
        steps: list[tuple[int, int]] = []

        def maximum(index: int) -> int:
            steps.append((self._bases[index], self._prefix_maxima[index]))
            return self._prefix_maxima[index]

        index = bisect_left(range(len(self._prefix_maxima)), timestamp, key=maximum)
        if index == len(self._prefix_maxima):
            steps.append((self.active.base_offset, self.max_timestamp))
        return steps

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all segments, or NO_TIMESTAMP."""
        active = self.active.max_timestamp
        return max(active, self._prefix_maxima[-1]) if self._prefix_maxima else active

    def add(self, segment: Segment) -> None:
        """Append a new active segment; the one before it is closed and its maximum final."""
        closed = self.active
        assert segment.base_offset > closed.base_offset, "bases of segments must rise"
        assert segment.base_offset >= closed.next_offset, "a segment begins within another"
        last = self._prefix_maxima[-1] if self._prefix_maxima else closed.max_timestamp
        self._prefix_maxima.append(max(last, closed.max_timestamp))
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments; the active one has to stay."""
        assert 0 <= count < len(self._segments), f"cannot remove {count} of {len(self)} segments"
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        assert self._segments[-1] is self.active, "the active segment has to stay"
        self._recount()
        return removed

    def holds(self, segments: list[Segment]) -> bool:
        """Whether exactly these segments, in this order and adjacent, are closed segments here."""
        index = bisect_left(self._bases, segments[0].base_offset)
        end = index + len(segments)
        if end >= len(self._segments):
            return False
        pairs = zip(self._segments[index:end], segments, strict=True)
        return all(here is there for here, there in pairs)

    def replace_closed(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace adjacent closed segments by rewritten ones."""
        assert self.holds(old), "not adjacent closed segments of this log"
        assert new[0].base_offset == old[0].base_offset, "a rewritten segment begins where it did"
        index = self._bases.index(old[0].base_offset)
        self._segments[index : index + len(old)] = new
        self._bases = [segment.base_offset for segment in self._segments]
        assert self._bases == sorted(set(self._bases)), "bases of segments must rise"
        assert self._segments[-1] is self.active, "the active segment has to stay"
        self.replacements += 1
        self._recount()

    def _recount(self) -> None:
        self._uploaded = 0
        maxima: list[int] = []
        for segment in self._segments[:-1]:
            timestamp = segment.max_timestamp
            maxima.append(max(maxima[-1], timestamp) if maxima else timestamp)
        self._prefix_maxima = maxima
