"""How far all logs were on disk at one moment, and the queue of such moments.

Owns what a round of shipping (`storage.bucket.shipping`) aims at. While more is appended than the
store takes, a round that covered all there is would take longer than the one before it, and so on
without a bound. So the ends of all logs are noted every now and then, also while a round is under
way, and each round ships up to the oldest ends that are noted, or to later ones if there is little
to ship: a short step that a restore can use.

The ends are of one moment for all logs. A log that was created later is not among them: the bucket
has what is needed of it with later ends.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from storage.disk.steps import Steps
from storage.log.log import Log
from storage.log.reader import LogPosition
from storage.segment.segment import Segment

ENDS_MAX: Final = 128 * 1024
"""Ends of logs that are kept for all moments: about 20 MB.

At two moments a second, those of 100 logs for ten minutes. Of more, every second moment goes, and
the rounds become longer.
"""


class End(NamedTuple):
    """Where the durable records of a log ended, and the segment that this was in."""

    position: LogPosition
    segment: Segment

    def is_rewritten(self, log: Log) -> bool:
        """Whether the position is now inside another segment, which has replaced this one."""
        offset = self.position.offset
        segment = log.segments.floor(self.position.base_offset)
        return segment is not self.segment and segment.base_offset < offset < segment.next_offset


class Ends:
    """The ends of all logs at one moment.

    Attributes:
        number: larger than that of each earlier moment.
    """

    __slots__ = ("_ends", "number")

    def __init__(self, number: int, logs: Iterable[Log]) -> None:
        """Note them now."""
        self.number = number
        ends = ((log, synced_end(log)) for log in logs)
        self._ends = {log: End(end, log.segments.floor(end.base_offset)) for log, end in ends}

    def __len__(self) -> int:
        """How many logs there were."""
        return len(self._ends)

    def of(self, log: Log) -> End | None:
        """The end of the log; None when it was created later."""
        return self._ends.get(log)

    def has_others(self, logs: set[Log]) -> bool:
        """Whether there were logs besides these."""
        return not self._ends.keys() <= logs


class EndsQueue:
    """Moments that no round has reached, oldest first."""

    __slots__ = ("_last", "_queue", "_reached")

    def __init__(self) -> None:
        """Begin with none."""
        self._queue: list[Ends] = []
        self._last = self._reached = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._queue)

    def newest_within(self, room: int, size_of: Callable[[Ends], int]) -> Steps[Ends | None]:
        """The newest moment up to which at most `room` bytes wait, else the oldest, if any.

        Most of the time of a small round is spent on the answers of the store, whatever is in it: a
        round for each moment may take longer than the time between two.
        """
        queue = list(self._queue)
        first, last = 0, len(queue) - 1
        number = last
        while first < last:
            if size_of(queue[number]) <= room:
                first = number
            else:
                last = number - 1
            number = (first + last + 1) // 2
            yield None
        return queue[first] if queue else None

    def keep_only(self, logs: set[Log]) -> None:
        """Drop the moments at which there were other logs: later ones take their place."""
        self._queue = [one for one in self._queue if not one.has_others(logs)]

    def now(self, logs: Iterable[Log]) -> Ends:
        """This moment, which is not appended."""
        self._last += 1
        return Ends(self._last, logs)

    def note(self, logs: Iterable[Log]) -> Ends:
        """Append this moment, which stays when others make room for it."""
        ends = self.now(logs)
        self._queue.append(ends)
        if len(self._queue) * len(ends) > ENDS_MAX:
            del self._queue[:-1:2]
        return ends

    def reach(self, ends: Ends) -> None:
        """Drop the moment and those before it."""
        self._reached = ends.number
        self._queue = [one for one in self._queue if one.number > ends.number]

    def is_reached(self, ends: Ends) -> bool:
        """Whether a round has reached the moment, or a later one."""
        return ends.number <= self._reached

    def clear(self) -> None:
        """Drop all: later ones take their place."""
        self._queue.clear()


def synced_end(log: Log) -> LogPosition:
    """The end of what is on disk, which a sync may just have moved, before it is visible."""
    ticket = log.unsynced.ticket
    if ticket is not None and ticket.is_done and ticket.error is None:
        return ticket.end
    return log.durable_position


def objects_up_to(log: Log, offset: int) -> int:
    """How many of the oldest segments have an object and end at `offset` or below."""
    segments = log.segments
    count = segments.uploaded
    while count and segments[count - 1].next_offset > offset:
        count -= 1
    return count
