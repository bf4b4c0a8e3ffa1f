"""A standby's logs beside the map of its bucket: what the owner has shipped is appended here.

Owns the comparison of the open logs with the map, and the order in which they follow it. The bytes
of a segment come from pieces of the tail, or from the object that has replaced them; both have the
positions of the owner's file, so the next byte to fetch is the size of the file here. A segment
ends where the map has the base offset of the next one, or its object. An object that fits the
segment here is noted in its manifest, so that local retention and a promotion find it.

Where the bytes do not continue a log (the owner has compacted it, or has deleted what this standby
had not fetched yet), the partition is made from the bucket once more. So it is when the object of a
segment was replaced: the one that is named here will be deleted. Of a compacted log with objects,
only the tail is fetched then.

One generator at a time. Slices run in the owner's thread, requests in others.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from storage.bucket.journal import catch_up, follow
from storage.bucket.map import META, BucketState, Key, Piece, parse_key
from storage.bucket.replica import NotNext, append_followed, follow_epochs
from storage.bucket.restore import MappedLog, logs_in, parse_metadata_key, read_piece
from storage.bucket.standby_directory import StandbyDataDir
from storage.directory.data_dir import Topic
from storage.directory.metadata import Json
from storage.disk.steps import SLICE_BYTES, Steps, off_loop
from storage.errors import ObjectDamaged
from storage.log.log import Log
from storage.remote.object_store import ObjectStore
from storage.remote.upload import record_object
from storage.segment.facts import RemoteObject
from storage.segment.manifest import parse_remote_lines
from values.dataclasses import dataclass

FETCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of an object that are fetched at once."""

_JOIN_BYTES: Final = 64 * 1024
"""Bytes here that are compared with those of an object before its next ones are appended."""

Part = tuple[bytes, int]


@dataclass(slots=True, kw_only=True)
class Followed:
    """What has changed in the bucket.

    Attributes:
        metadata: documents by kind and key; None for those that are gone.
        parts: the logs, by topic id and partition.
    """

    metadata: dict[str, dict[str, Json]]
    parts: dict[Part, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What a log has got: bytes, or with `replaced` another log in its place."""

    log: Log
    size_bytes: int
    replaced: Log | None = None


class BucketFollower:
    """The map as a standby has read it, and the logs that follow it.

    Attributes:
        state: the map; a `read` changes it.
    """

    def __init__(
        self,
        store: ObjectStore,
        state: BucketState,
        data_dir: StandbyDataDir,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin with the map from which `data_dir` was made."""
        self.state = state
        self._store = store
        self._data_dir = data_dir
        self._now_ms = now_ms
        self._logs = logs_in(state)
        self._changed: dict[str, Json] = {}
        """What a read that failed halfway has found."""

        self._unbuilt: set[Part] = set()
        """Logs that have to be made from the bucket once more."""

    def read(self, *, is_thorough: bool) -> Steps[Followed]:
        """Read the entries since the last call.

        With `is_thorough` also if they were deleted meanwhile. Raises StoreFailed: what was read is
        in the result of the next call.
        """
        read = catch_up if is_thorough else follow
        yield from off_loop(partial(read, self._store, self.state, self._changed))
        changed, self._changed = self._changed, {}
        found = Followed(metadata={}, parts={})
        rewritten: list[Key] = []
        for text, value in changed.items():
            if text.startswith(META):
                kind, name = parse_metadata_key(text)
                found.metadata.setdefault(kind, {})[name] = value
            elif (key := parse_key(text)) is not None:
                part = key.topic_id, key.partition
                mapped = self._logs.setdefault(part, MappedLog())
                if key.kind == "segment" and self._is_rewritten(mapped, key, value):
                    rewritten.append(key)
                mapped.take(key, value)
                found.parts[part] = None
        for key in rewritten:
            part = key.topic_id, key.partition
            if key.base_offset >= self._logs[part].facts.get("start", 0):
                self._unbuilt.add(part)
        for part in found.parts:
            if not self._logs[part].facts:
                # Its topic was deleted.
                del self._logs[part]
                self._unbuilt.discard(part)
        return found

    def _is_rewritten(self, mapped: MappedLog, key: Key, value: Json) -> bool:
        """Whether an entry replaces what the log has here of the segment."""
        topic = self._topic((key.topic_id, key.partition))
        former = mapped.segments.get(key.base_offset)
        if former is None:
            # The object is that of the segment after a round, and here it is as before.
            return topic is not None and topic.config.is_compacted
        return former != value

    def catch_up(self, part: Part) -> Steps[Grown | None]:
        """Append what a log lacks; None when there is no such log, or it is offline.

        Raises StoreFailed, StorageFailed: another call continues.
        """
        topic = self._topic(part)
        mapped = self._logs.get(part)
        log = None if topic is None else topic.partitions[part[1]]
        if topic is None or log is None or not mapped:
            return None
        if log.offline is not None and part not in self._unbuilt:
            return None
        before = log.log_end_offset
        try:
            if part in self._unbuilt:
                raise NotNext(f"{log.path}: objects were replaced, or a failure has left it empty")
            size_bytes = yield from self._append(log, mapped)
        except NotNext:
            self._unbuilt.add(part)
            old = yield from self._data_dir.rebuild(
                topic, log.partition, mapped, self._store, self._now_ms()
            )
            self._unbuilt.discard(part)
            fresh = topic.partitions[log.partition]
            assert fresh is not None
            return Grown(log=fresh, size_bytes=0, replaced=old)
        if mapped.facts["start"] > log.log_start_offset:
            log.advance_log_start(mapped.facts["start"])
        assert log.log_end_offset >= before
        return Grown(log=log, size_bytes=size_bytes)

    def _topic(self, part: Part) -> Topic | None:
        for topic in self._data_dir.topics.values():
            if topic.topic_id == part[0] and part[1] < len(topic.partitions):
                return topic
        return None

    def _append(self, log: Log, mapped: MappedLog) -> Steps[int]:
        """Append what `log` lacks; returns the bytes. Raises NotNext."""
        size_bytes = 0
        bases = mapped.bases
        for base, following in pairwise([*bases, None]):
            assert base is not None
            if following is None or following > log.log_end_offset:
                follow_epochs(log, mapped.facts["epochs"])
                size_bytes += yield from self._append_segment(log, mapped, base)
                if following is not None and following != log.log_end_offset:
                    raise NotNext(f"{log.path}: segment {following} after {log.log_end_offset}")
        follow_epochs(log, mapped.facts["epochs"])
        if mapped.facts["start"] > log.log_end_offset:
            raise NotNext(f"{log.path}: the start {mapped.facts['start']} is above its end")
        yield from self._note_objects(log, mapped)
        return size_bytes

    def _append_segment(self, log: Log, mapped: MappedLog, base: int) -> Steps[int]:
        """Append what the segment `base` has after the end of the log; returns the bytes."""
        if base == log.log_end_offset and base != log.segments.active.base_offset:
            log.roll(self._now_ms())
        segment = log.segments.active
        if segment.base_offset != base:
            raise NotNext(f"{log.path}: segment {base}, here {segment.base_offset} is the last one")
        begin = segment.size
        lines = mapped.segments.get(base)
        if lines is None:
            yield from self._append_pieces(log, sorted(mapped.pieces[base].items()))
        else:
            yield from self._append_object(log, parse_remote_lines(lines)[1])
        return segment.size - begin

    def _append_object(self, log: Log, where: RemoteObject) -> Steps[None]:
        segment, rest = log.segments.active, b""
        if segment.size > where.log_bytes:
            raise NotNext(f"{log.path}: segment {where.base_offset} is shorter in the bucket")
        known = segment.log.pread(
            min(segment.size, _JOIN_BYTES), max(0, segment.size - _JOIN_BYTES)
        )
        while (start := segment.size + len(rest)) < where.log_bytes:
            end = min(where.log_bytes, start + FETCH_BYTES)
            begin = start - len(known)
            data = yield from off_loop(partial(self._store.get, where.key, begin, end))
            if not data.startswith(known):
                # The owner had compacted the segment before it uploaded it.
                raise NotNext(f"{log.path}: other bytes before {start}")
            data, known = data[len(known) :], b""
            rest = yield from self._take(log, rest + data)
        if rest:
            raise ObjectDamaged(f"{where.key} ends inside a batch")

    def _append_pieces(self, log: Log, pieces: list[tuple[int, Piece]]) -> Steps[None]:
        """Append what the pieces have after the end of the file, up to the last whole batch."""
        segment, rest = log.segments.active, b""
        for position, piece in pieces:
            end = segment.size + len(rest)
            if position + piece.size <= end:
                continue
            if position > end:
                raise NotNext(f"{log.path}: byte {position} after {end}")
            data = yield from off_loop(partial(read_piece, self._store, piece))
            for at in range(position, segment.size, SLICE_BYTES):
                size = min(SLICE_BYTES, segment.size - at)
                if segment.log.pread(size, at) != data[at - position : at - position + size]:
                    # The owner has compacted the segment.
                    raise NotNext(f"{log.path}: other bytes from {position} on")
                yield None
            rest = yield from self._take(log, rest + data[end - position :])

    def _take(self, log: Log, data: bytes) -> Steps[bytes]:
        """Append the whole batches of `data`, in slices; returns the rest."""
        at, size = 0, SLICE_BYTES
        view = memoryview(data)
        while at < len(data):
            taken = append_followed(log, view[at : at + size], self._now_ms())
            if taken == 0 and at + size >= len(data):
                break
            at, size = at + taken, SLICE_BYTES if taken else 2 * size
            yield None
        return data[at:]

    def _note_objects(self, log: Log, mapped: MappedLog) -> Steps[None]:
        """Record the objects of segments that are the same here."""
        active = log.segments.active
        if active.base_offset in mapped.segments and not active.is_empty:
            log.roll(self._now_ms())
        segments = log.segments
        closed = [segments[number] for number in range(segments.uploaded, len(segments) - 1)]
        for segment in closed:
            lines = mapped.segments.get(segment.base_offset)
            if segment.remote is not None or lines is None:
                continue
            where = parse_remote_lines(lines)[1]
            if (segment.size, segment.next_offset) == (where.log_bytes, where.next_offset):
                yield from record_object(log, segment, where)
