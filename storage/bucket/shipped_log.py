"""One log as the bucket's map has it: what of its segments was shipped, and from which local files.

`storage.bucket.shipping` keeps one for each log, and compares it with the log itself.
"""

from dataclasses import field

from storage.bucket.map import Piece
from storage.log.log import Log
from storage.segment.facts import RemoteObject, SegmentFacts
from storage.segment.segment import Segment
from values.dataclasses import dataclass


@dataclass(slots=True)
class ShippedLog:
    """One log as the map has it.

    Attributes:
        pieces: by base offset and position.
        segments: the manifest's lines, by base offset.
        sources: the local segments that the pieces were read from, by base offset.
        seen: the facts of the log when they were compared last.
        known: objects and facts, by base offset, of which the map has the lines.
    """

    pieces: dict[int, dict[int, Piece]] = field(default_factory=dict)
    segments: dict[int, str] = field(default_factory=dict)
    sources: dict[int, Segment] = field(default_factory=dict)
    seen: tuple[object, ...] = ()
    known: dict[int, tuple[RemoteObject, SegmentFacts]] = field(default_factory=dict)

    def shipped(self, segment: Segment) -> int:
        """How many bytes of the segment's log the bucket has."""
        base = segment.base_offset
        if self.sources.get(base) is not segment or not self.pieces.get(base):
            return 0
        position, piece = max(self.pieces[base].items())
        return position + piece.size

    def knows(self, where: RemoteObject, stored: SegmentFacts) -> bool:
        """Whether the map is known to have the lines of a segment."""
        known = self.known.get(where.base_offset)
        return known is not None and known[0] is where and known[1] is stored

    def has_object(self, segment: Segment) -> bool:
        """Whether the map names an object that has the segment's first offset."""
        return segment.base_offset in self.segments

    def named(self, log: Log) -> int:
        """How many of the oldest segments have an object here that the map names, too."""
        segments = log.segments
        count = segments.uploaded
        while count and not self.has_object(segments[count - 1]):
            count -= 1
        return count

    def is_rewritten(self, segment: Segment) -> bool:
        """Whether the map has the segment as it was before a round of compaction."""
        base = segment.base_offset
        if base in self.pieces:
            return self.sources.get(base) is not segment
        return base in self.segments and segment.remote is None
