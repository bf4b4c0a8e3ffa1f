"""What the bucket's journal lacks: metadata, facts of segments, and the records of unsealed tails.

Owns the comparison of a data directory with the bucket's map (`storage.bucket.map`), and the
entries that make them equal. `Shipper.ship` writes

* the documents of the metadata journal: topics, settings, users, rules, producer ids;
* of each log with `remote.storage.enable` and of each internal topic its start, leader epochs and
  the producer snapshot from which its tail is read;
* the manifest's lines of segments that have an object;
* all records that are on disk here and in no object: the *tail*, in pieces.

A round of shipping takes effect as a whole. It takes all logs up to where they ended at one moment
(`storage.bucket.ends`), and names only objects that end there or below. What does not fit into one
entry goes into earlier ones that have records and no changes; the last entry names all pieces. So a
committed offset is not ahead of the records that its group has seen, and no transaction is there
without its coordinator's state. Records of a round that has failed are not read again from the
disk, and not sent again, as long as their segments are the same.

A piece is a range of bytes of one `.log`. A piece a second would soon be too many to restore, so
many small ones at a tail's end are written once more, as one: each record about once per factor of
four up to `MERGED_BYTES`. The object of a closed segment replaces its pieces in one entry.

Compaction rewrites segments. Of a log with objects, the map keeps what it has of them, until their
new objects replace it, the oldest first. So the map has rewritten segments up to some offset, from
there on earlier ones, and no deleted key comes back with a restore. Nothing that is not in the map
is compacted (`storage.log.compaction`), so the newest value of each key is there in between. An
internal log has no objects: one round swaps the pieces of all that was rewritten.

One generator at a time. More than a few bytes of a log are read in another thread.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from protocol.records.layout import NO_OFFSET
from storage.bucket.differences import (
    bases_of_merged,
    compare_objects,
    durable_bytes,
    facts_of,
    is_same,
    may_be_rewritten,
    newest_object,
    older,
    pieces_to_merge,
    unsealed,
)
from storage.bucket.emptied import check_entries, check_journal, check_objects
from storage.bucket.ends import Ends, EndsQueue, objects_up_to, synced_end
from storage.bucket.journal import ENTRY_BYTES, BucketJournal, check_owner
from storage.bucket.map import CLUSTER, META, Key, Piece, log_key, parse_key, parse_piece
from storage.bucket.shipped_log import ShippedLog
from storage.directory.data_dir import DataDir
from storage.directory.metadata import KIND_TOPIC, Json, is_deleted
from storage.disk.reading import read_summed
from storage.disk.steps import SLICE_BYTES, Steps
from storage.errors import StoreFailed, storage_failure
from storage.log.log import Log
from storage.log.reader import LogPosition
from storage.segment.facts import RemoteObject
from storage.segment.manifest import parse_remote_lines, remote_lines
from storage.segment.segment import Segment
from values.dataclasses import dataclass

_KEYS_AT_ONCE: Final = 500
"""Keys of the map that are looked at before other work has a turn."""

_ENTRIES_AT_ONCE: Final = 4
"""Entries of a round with several moments: at most one of them is not full."""

_TRIES: Final = 4

_Part = tuple[bytes, int]


class _Place(NamedTuple):
    """Where the records of a piece are in an entry, and the segment that they are from."""

    at: int
    size: int
    crc: int
    segment: Segment


@dataclass(slots=True)
class _Draft:
    """A round while it grows.

    `records` are those of the next entry, in which `pieces` have their places; `placed` are in
    entries that are written. `seen` are the facts that were compared for it, `sources` where the
    pieces of rewritten logs are from, `ends` how far the logs are in the bucket with it. With
    `is_renewal` an entry is written also if nothing has changed.
    """

    changes: dict[str, Json] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    records_bytes: int = 0
    pieces: dict[str, _Place] = field(default_factory=dict)
    placed: dict[str, Json] = field(default_factory=dict)
    seen: dict[_Part, tuple[object, ...]] = field(default_factory=dict)
    sources: list[tuple[ShippedLog, dict[int, Segment]]] = field(default_factory=list)
    ends: dict[Log, int] = field(default_factory=dict)
    is_renewal: bool = False

    def numbered(self, number: int) -> dict[str, Json]:
        """All changes of the round, whose last entry has this number."""
        last: dict[str, Json] = {
            key: [number, place.at, place.size, place.crc] for key, place in self.pieces.items()
        }
        return {**self.changes, **self.placed, **last}


class _Again(Exception):
    """The map or the logs have moved: compare again."""


class Shipper:
    """A data directory beside the map of its bucket."""

    def __init__(
        self, data_dir: DataDir, journal: BucketJournal, is_internal: Callable[[str], bool]
    ) -> None:
        """Compare later; `is_internal` says which topics are the broker's own."""
        self._data_dir = data_dir
        self._journal = journal
        self._is_internal = is_internal
        self._logs: dict[_Part, ShippedLog] = {}
        self._meta: dict[tuple[str, str], Json] = {}
        self._meta_keys: set[str] = set()
        self._draft = _Draft()
        self._written: dict[str, tuple[Segment, Piece]] = {}
        """Pieces in entries of a round that has not taken effect."""

        self._drafted: set[RemoteObject] = set()
        self._ends: WeakKeyDictionary[Log, int] = WeakKeyDictionary()
        self._noted = EndsQueue()

    # --- beginning ------------------------------------------------------------------------------

    def begin(self) -> Steps[int]:
        """Read the bucket and take it over for this directory; returns the epoch.

        Raises:
            Fenced: it belongs to another directory.
            DirectoryOlder: the bucket has what this directory lacks.
            BucketEmptied: it lacks what was put there.
            StoreFailed: call it again.
        """
        journal = self._journal
        check = partial(check_owner, journal.owner_id)
        state = yield from journal.read(check)
        yield from check_entries(state, journal.store)
        number = state.number
        if number < 0 or self._logs:  # What an earlier call has seen there may be gone.
            self._logs.clear()
            self._ends.clear()
            self._noted.clear()
            self._written.clear()
            logs = [log for _, log in self._shipped_logs()]
            yield from check_objects(journal, filter(None, map(newest_object, logs)))
        yield from self._index()
        yield from self._adopt()
        epoch = yield from journal.take_over(check)
        if journal.state.number != number + 1:
            # The last entry of an earlier run has come late.
            yield from self._index()
            yield from self._adopt()
        return epoch

    def _index(self) -> Steps[None]:
        """Sort the map by logs."""
        logs: dict[_Part, ShippedLog] = {}
        for kind in ("log", "segment", "tail"):
            for number, (key, value) in enumerate(self._journal.state.keys(kind)):
                self._take(logs, key, value)
                if number % _KEYS_AT_ONCE == _KEYS_AT_ONCE - 1:
                    yield None
        for part, found in self._logs.items():
            if found.sources:
                # Also of a log that the map lacks: its first entry may turn up later.
                logs.setdefault(part, ShippedLog()).sources = found.sources
        self._logs, self._meta = logs, {}
        self._meta_keys = {key for key in self._journal.state.documents if key.startswith(META)}

    @staticmethod
    def _take(logs: dict[_Part, ShippedLog], key: Key, value: Json) -> None:
        log = logs.setdefault((key.topic_id, key.partition), ShippedLog())
        if key.kind == "segment":
            if value is None:
                log.segments.pop(key.base_offset, None)
                log.known.pop(key.base_offset, None)
            else:
                log.segments[key.base_offset] = str(value)
        elif key.kind == "tail":
            pieces = log.pieces.setdefault(key.base_offset, {})
            if value is None:
                pieces.pop(key.position, None)
                if not pieces:
                    del log.pieces[key.base_offset]
            else:
                pieces[key.position] = parse_piece(value)

    def _adopt(self) -> Steps[None]:
        """See which local segments the pieces were read from. Raises DirectoryOlder.

        A log that is offline is no witness: it says itself what it lacks, nothing of it is shipped
        until a start finds it whole, and the bucket keeps what it has of it.
        """
        for part, log in self._shipped_logs():
            if log.offline is not None:
                continue
            found = self._in_bucket(part)
            merged = bases_of_merged(log, found)
            for base, pieces in list(found.pieces.items()):
                segment = log.segments.floor(base)
                is_here = segment.base_offset == base and not segment.is_remote
                is_here = is_here and base not in merged
                if is_here and (yield from is_same(segment, *max(pieces.items()))):
                    found.sources[base] = segment
                elif not (
                    (may_be_rewritten(log) and base < log.segments.active.base_offset)
                    or (segment.base_offset == base and segment.remote is not None)
                    or base < log.segments.first.base_offset
                ):
                    raise older(log, base)
                yield None
            for base in found.segments:
                if base >= max(log.log_end_offset, 1):
                    raise older(log, base)

    # --- what is due ----------------------------------------------------------------------------

    def _shipped_logs(self) -> list[tuple[_Part, Log]]:
        """The logs whose records the bucket has, those of internal topics last."""
        users: list[tuple[_Part, Log]] = []
        internal: list[tuple[_Part, Log]] = []
        for topic in self._data_dir.topics.values():
            if self._is_internal(topic.name):
                internal += [((topic.topic_id, log.partition), log) for log in topic.logs]
            elif topic.config.remote_storage_enable:
                users += [((topic.topic_id, log.partition), log) for log in topic.logs]
        return users + internal

    def _in_bucket(self, part: _Part) -> ShippedLog:
        return self._logs.setdefault(part, ShippedLog())

    def waiting(self) -> Iterator[tuple[Log, int]]:
        """Each log with records that are on disk here only, and their bytes.

        Not those that are offline: nothing can be read of them.
        """
        for part, log in self._shipped_logs():
            size = self._lacking(part, log, synced_end(log))
            if size:
                yield log, size

    def _lacking_up_to(self, ends: Ends) -> int:
        """Bytes of records that are on disk here only, up to noted ends."""
        noted = ((part, log, ends.of(log)) for part, log in self._shipped_logs())
        return sum(
            self._lacking(part, log, end.position, is_noted=True)
            for part, log, end in noted
            if end is not None
        )

    def _lacking(self, part: _Part, log: Log, end: LogPosition, *, is_noted: bool = False) -> int:
        if self._ends.get(log) == end.offset or log.offline is not None:
            # Most of many partitions are idle, and the job asks often.
            return 0
        found = self._logs.get(part) or ShippedLog()
        if self._journal.state.number < 0:
            # The bucket has not been read, or has nothing: what an object has does not wait.
            objects = log.segments.uploaded
        else:
            objects = objects_up_to(log, end.offset) if is_noted else found.named(log)
        return sum(
            max(0, durable_bytes(log, segment, end) - found.shipped(segment))
            for segment in unsealed(log, found, objects)
        )

    def has_changes(self) -> bool:
        """Whether anything but records waits."""
        if not self._journal.is_settled or any(True for _ in self._metadata_changes()):
            return True
        logs = self._shipped_logs()
        return len(self._logs) > len(logs) or any(
            facts_of(log, log.segments.uploaded) != self._in_bucket(part).seen
            for part, log in logs
            if log.offline is None
        )

    def shipped_end(self, log: Log) -> int:
        """The bucket has all records of the log below this offset, as far as this run knows."""
        return self._ends.get(log, 0)

    def names(self, where: RemoteObject) -> bool:
        """Whether the bucket may name the object, now or soon: then it must not be deleted yet."""
        if where in self._drafted:
            return True
        topic_id = where.topic_id.to_bytes(16, "big")
        key = str(Key("segment", topic_id, where.partition, where.base_offset))
        lines = self._journal.state.documents.get(key)
        return lines is not None and parse_remote_lines(str(lines))[1] == where

    # --- shipping -------------------------------------------------------------------------------

    def note_ends(self) -> Ends:
        """Note where all logs end now, for a later round; also while one is under way."""
        return self._noted.note(self._logs_to_note())

    def _logs_to_note(self) -> Iterator[Log]:
        return (log for _, log in self._shipped_logs())

    def is_shipped(self, ends: Ends) -> bool:
        """Whether a round has reached the ends, or later ones."""
        return self._noted.is_reached(ends)

    @property
    def has_noted(self) -> bool:
        """Whether ends were noted that no round has reached."""
        return len(self._noted) > 0

    def _next_ends(self) -> Steps[Ends]:
        """The noted ends of the next round; those of now if there are none.

        None is taken from before the deletion of a topic: there may be another one with its name,
        and offsets of groups that were for the first.
        """
        self._noted.keep_only(set(self._logs_to_note()))
        most = _ENTRIES_AT_ONCE * ENTRY_BYTES
        ends = yield from self._noted.newest_within(most, self._lacking_up_to)
        return self._noted.now(self._logs_to_note()) if ends is None else ends

    def ship(self, *, renews: bool = False) -> Steps[int]:
        """Write what the bucket lacks up to noted ends; returns the number of entries.

        Without noted ones up to the ends of now: then it has everything. With `renews` at least one
        entry is written, for the lease. Raises:
            Fenced: another broker has taken over.
            StoreFailed: the next call continues.
            StorageFailed: a local file could not be read.
        """
        first = self._journal.state.number
        for _ in range(_TRIES):
            self._draft = _Draft(is_renewal=renews)
            self._forget_drafted()
            ends = yield from self._next_ends()
            try:
                yield from self._ship(ends)
                self._forget_drafted()
                self._written.clear()
                self._noted.reach(ends)
                break
            except (_Again, StoreFailed) as error:
                # Found out by the next append: what of it was written.
                yield from self._index()
                if isinstance(error, StoreFailed):
                    raise
                # Segments may have been replaced that the noted ends are in.
                self._noted.clear()
        else:
            raise StoreFailed(f"the journal or the logs changed in each of {_TRIES} tries")
        return self._journal.state.number - first

    def check(self) -> Steps[None]:
        """Look for a take-over, and for an emptied bucket. Raises Fenced, StoreFailed."""
        number = self._journal.state.number
        yield from check_journal(self._journal)
        if self._journal.state.number != number:
            # An entry whose answer was lost turned up.
            yield from self._index()

    def _forget_drafted(self) -> None:
        """Forget the objects in drafts, unless an entry may still turn up that names them."""
        if self._journal.is_settled:
            self._drafted.clear()

    def _ship(self, ends: Ends) -> Steps[None]:
        self._draft.changes.update(self._metadata_changes())
        logs = self._shipped_logs()
        if ends.has_others({log for _, log in logs}):
            # A topic was deleted while they were chosen.
            raise _Again
        self._drop_logs(self._logs.keys() - {part for part, _ in logs})
        for part, log in logs:
            end = ends.of(log)
            if log.is_closed:
                # Its topic was deleted, and offsets of groups may be for records that it had.
                raise _Again
            if log.offline_reason is None and end is not None:
                if end.is_rewritten(log):
                    raise _Again
                try:
                    yield from self._ship_log(part, log, end.position)
                except OSError as error:
                    raise storage_failure("ship", log.path, error) from error
            yield None
        yield from self._finish()

    def _write_records(self) -> Steps[None]:
        """Write an entry that makes room for more records of this round, and changes nothing.

        A restore between it and the last entry finds the bucket as it was before the round.
        """
        draft = self._draft
        number = yield from self._journal.append(lambda _: {}, draft.records)
        if number is None:
            raise _Again
        for text, (at, size, crc, segment) in draft.pieces.items():
            self._written[text] = segment, Piece(number, at, size, crc)
            draft.placed[text] = [number, at, size, crc]
        draft.records, draft.records_bytes, draft.pieces = [], 0, {}

    def _finish(self) -> Steps[None]:
        """Write the last entry, if there is anything to change, or one may still turn up."""
        draft, self._draft = self._draft, _Draft()
        has_changes = draft.changes or draft.pieces or draft.placed
        if has_changes or draft.is_renewal or not self._journal.is_settled:
            number = yield from self._journal.append(draft.numbered, draft.records)
            if number is None:
                raise _Again
            for text, value in draft.numbered(number).items():
                if text.startswith(META):
                    (self._meta_keys.discard if value is None else self._meta_keys.add)(text)
                key = parse_key(text)
                if key is not None:
                    self._take(self._logs, key, value)
        for part, seen in draft.seen.items():
            self._in_bucket(part).seen = seen
        for found, sources in draft.sources:
            found.sources = sources
        self._ends.update(draft.ends)

    def _metadata_changes(self) -> Iterator[tuple[str, Json]]:
        documents = self._journal.state.documents
        node: Json = {"node_id": self._data_dir.node_id}
        if documents.get(CLUSTER) != node:
            yield CLUSTER, node
        everything = self._data_dir.metadata.everything()
        for name, document in everything.items():
            # An unchanged document is the same object as at the last look.
            if name in self._meta and self._meta[name] is document:
                continue
            key = f"{META}{name[0]}/{name[1]}"
            wanted = None if name[0] == KIND_TOPIC and is_deleted(document) else document
            if documents.get(key) == wanted:
                self._meta[name] = document
            else:
                yield key, wanted
        for name in self._meta.keys() - everything.keys():
            del self._meta[name]
        if len(everything) < len(self._meta_keys):
            known = {f"{META}{kind}/{key}" for kind, key in everything}
            yield from dict.fromkeys(self._meta_keys - known).items()

    def _drop_logs(self, gone: set[_Part]) -> None:
        """Take everything of deleted topics out of the map."""
        if not gone:
            return
        for kind in ("log", "segment", "tail"):
            for key, _ in self._journal.state.keys(kind):
                if (key.topic_id, key.partition) in gone:
                    self._draft.changes[str(key)] = None
        for part in gone:
            del self._logs[part]

    def _ship_log(self, part: _Part, log: Log, end: LogPosition) -> Steps[None]:
        found = self._in_bucket(part)
        if facts_of(log, objects_up_to(log, end.offset)) != found.seen:
            yield from compare_objects(log, found)
            if log.is_closed:
                # Its topic was deleted.
                raise _Again
        objects = objects_up_to(log, end.offset)
        if any(log.segments[number].is_remote for number in range(objects, log.segments.uploaded)):
            # It reaches over the end, and its records are in the store only.
            raise _Again
        facts = facts_of(log, objects)
        if facts != found.seen:
            self._draft.changes.update(self._log_changes(part, log, found, objects))
            self._draft.seen[part] = facts
        local = unsealed(log, found, objects)
        here = {segment.base_offset: segment for segment in local}
        if log.config.remote_storage_enable:
            end_of_objects = log.segments[objects].base_offset
            outdated = {base for base in found.pieces if base < end_of_objects}
        else:
            # After a start, pieces of a segment that has gone since have no source.
            outdated = {
                base
                for base in found.pieces
                if base not in here or found.sources.get(base) is not here[base]
            }
        old = {
            str(Key("tail", *part, base, position))
            for base in outdated
            for position in found.pieces[base]
        }
        is_swapped = bool(old) and not log.config.remote_storage_enable and log.config.is_compacted
        self._draft.changes.update(dict.fromkeys(old))
        for segment in local:
            limit = durable_bytes(log, segment, end)
            yield from self._ship_segment(part, log, segment, limit, is_swapped)
        if is_swapped:
            self._draft.sources.append((found, here))
        assert end.offset <= log.log_end_offset, f"{log.path}: ships {end.offset}"
        self._draft.ends[log] = end.offset

    def _ship_segment(
        self, part: _Part, log: Log, segment: Segment, limit: int, is_swapped: bool
    ) -> Steps[None]:
        """Put the records up to `limit` that the bucket lacks into entries.

        `is_swapped` says that the map keeps its pieces of the log as they are until this round
        takes effect. One that was uploaded meanwhile is shipped as it was: uploads that end all the
        time must not hold up a round. Raises _Again when its file was replaced or deleted.
        """
        found = self._in_bucket(part)
        position = found.shipped(segment)
        if position >= limit:
            return
        merged = pieces_to_merge(found.pieces.get(segment.base_offset, {}), limit - position)
        if merged and not is_swapped:
            for start in merged:
                self._draft.changes[str(Key("tail", *part, segment.base_offset, start))] = None
            position = min([position, *merged])
        while position < limit:
            key = str(Key("tail", *part, segment.base_offset, position))
            self._draft.changes.pop(key, None)
            written = self._written_piece(key, segment, limit - position)
            if written is not None:
                self._draft.placed[key] = list(written)
                position += written.size
            else:
                position = yield from self._put_piece(key, log, segment, position, limit)
            if not is_swapped:
                found.sources[segment.base_offset] = segment

    def _written_piece(self, key: str, segment: Segment, size_max: int) -> Piece | None:
        """The piece that an entry has, of a round that has failed."""
        source, piece = self._written.get(key, (None, None))
        if source is not segment or piece is None or piece.size > size_max:
            return None
        # A checkpoint deletes older entries that the map does not name.
        return piece if piece.entry > self._journal.collected else None

    def _put_piece(
        self, key: str, log: Log, segment: Segment, start: int, limit: int
    ) -> Steps[int]:
        """Add the records from `start` on that have room in an entry; returns their end."""
        room = ENTRY_BYTES - self._draft.records_bytes
        if room < min(limit - start, SLICE_BYTES):
            yield from self._write_records()
            room = ENTRY_BYTES
        draft = self._draft
        at, position, end, crc = draft.records_bytes, start, min(limit, start + room), 0
        assert start < end, f"{segment.log.path}: nothing to ship at byte {start}"
        file = segment.log
        while position < end:
            is_there = log.segments.floor(segment.base_offset) is segment
            if segment.is_remote or not is_there:
                # Without this log, offsets of its groups would be ahead of its records.
                raise _Again
            size = min(SLICE_BYTES, end - position)
            data, crc = yield from read_summed(file, size, position, crc)
            draft.records.append(data)
            draft.records_bytes += len(data)
            position += len(data)
        draft.pieces[key] = _Place(at, end - start, crc, segment)
        return end

    def _log_changes(
        self, part: _Part, log: Log, found: ShippedLog, objects: int
    ) -> Iterator[tuple[str, Json]]:
        """The facts of a log that differ from the map, which names its `objects` oldest objects."""
        segments = log.segments
        first = segments[objects].base_offset
        former = self._journal.state.documents.get(log_key(*part))
        facts: dict[str, Json] = {
            "start": log.log_start_offset,
            "epochs": [list(entry) for entry in log.leader_epochs.entries],
        }
        if isinstance(former, dict) and max(found.segments, default=-1) >= first:
            # What was rewritten waits for its objects, and the map's are followed by its tail.
            facts["snapshot"] = former["snapshot"]
        else:
            snapshot = log.producers.snapshots.read(first)
            facts["snapshot"] = (
                None if snapshot is None else [first, base64.b64encode(snapshot).decode()]
            )
        if log.manifest.cleaned_offset != NO_OFFSET:
            # What the map has from there on is older, so its keys were not compared.
            facts["cleaned"] = min(log.cleaned_offset, first)
        if former != facts:
            yield log_key(*part), facts
        prefix = [segments[number] for number in range(objects)]
        for segment in prefix:
            where, stored = segment.remote, log.manifest.facts.get(segment.base_offset)
            if where is not None and stored is not None and not found.knows(where, stored):
                lines = remote_lines(stored, where)
                if found.segments.get(segment.base_offset) != lines:
                    self._drafted.add(where)
                    yield str(Key("segment", *part, segment.base_offset)), lines
        for base in found.segments.keys() - {segment.base_offset for segment in prefix}:
            if base < first:
                yield str(Key("segment", *part, base)), None
