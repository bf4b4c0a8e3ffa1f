"""One segment: a `.log` file and the indexes that are derived from it.

Owns the files `<base>.log`, `.index`, `.timeindex` and `.txnindex`, those of auxiliary indexes, and
the few numbers about them that are kept in memory. Knows entries (offsets, sizes, timestamps), not
records. `storage.log.log` decides when to roll, delete or sync.

How an append of several batches feeds the indexes, batch by batch:

    if the batch's max timestamp is a new maximum: remember it and the batch's last offset
    if more than `index.interval.bytes` were written since the last entry:
        offset index: (last offset of the batch, position of the batch)
        time index:   (maximum so far, last offset of the batch that set it), if it is a new maximum
    count the batch's bytes

So the first batch of a segment never gets an entry, and both indexes get theirs at the same
batches. The maximum is always ahead of the time index until `seal` adds the closing entry.

The bytes of the log that were synced survive a crash. `storage.segment.scan` derives everything
else from them again.

Source: KIP-33 as shipped, KAFKA-806; Kafka `LogSegment` (4.1 and later).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from protocol.records.entry import Entry
from protocol.records.layout import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from storage.disk.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_path,
)
from storage.disk.files import Bytes, File, Files
from storage.segment.auxiliary_index import AuxiliaryIndex, Coverage
from storage.segment.entry_heads import HeadWalk
from storage.segment.facts import (
    UNKNOWN,
    UNKNOWN_MAXIMUM,
    UNKNOWN_MINIMUM,
    RemoteObject,
    SegmentFacts,
)
from storage.segment.feed import SegmentEnd
from storage.segment.offset_index import OffsetIndex
from storage.segment.remote.log import RemoteLogFile
from storage.segment.remote.object import IndexFiles
from storage.segment.sparse_index import SparseIndex
from storage.segment.time_index import TimeIndex
from storage.segment.txn_index import TxnIndex


class Segment(SegmentEnd):
    """A contiguous part of a log. One writer; sealed segments are only read.

    Attributes:
        base_offset: no offset in the segment is below it.
        next_offset: one above the last offset; `base_offset` while empty.
        max_timestamp: the largest timestamp in ms, or NO_TIMESTAMP.
        max_timestamp_offset: last offset of the first batch that has it.
        min_timestamp: the smallest timestamp of its records in ms, 2^63-1 while there is none, or
            UNKNOWN_MINIMUM.
        data_max_timestamp: a bound for the timestamps of its records, markers left out, in ms;
            NO_TIMESTAMP while there is none, UNKNOWN_MAXIMUM when it was not collected.
        created_ms: when this object was made (not the file), for rolling without timestamps.
        appended_ms: the broker's clock at the last append; NO_TIMESTAMP when never.
        records: number of records, or UNKNOWN.
        bytes_since_index: log bytes since the last index entry; not persisted.
        stage: the suffix of its files' names: empty for a segment in use; see
            `storage.disk.file_names`.
        auxiliary: the auxiliary indexes; set by `storage.log.auxiliary_indexes`.
        remote: the object that has the bytes of the closed segment as well, recorded durably; None
            while there is none.
        is_remote: whether the object alone has them: `log` is then a `RemoteLogFile`.
        indexes_verified: whether this process wrote or checked the index files. If not,
            `storage.segment.scan.ensure_indexes` has to run before they are used.
    """

    offset_index: OffsetIndex
    time_index: TimeIndex
    auxiliary: tuple[AuxiliaryIndex, ...]

    __slots__ = (
        "_facts",
        "created_ms",
        "directory",
        "files",
        "indexes_verified",
        "is_remote",
        "remote",
        "stage",
        "txn_index",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        log: File,
        stage: str = "",
        *,
        is_new: bool = False,
    ) -> None:
        """Use the open log file and the existing index files; all numbers are still unknown.

        With `is_new` there are no index files.
        """
        stem = segment_file_path(directory, base_offset, "")
        offset_path, time_path = (
            stem + OFFSET_INDEX_SUFFIX + stage,
            stem + TIME_INDEX_SUFFIX + stage,
        )
        super().__init__(
            base_offset,
            log,
            OffsetIndex(files, offset_path, base_offset, is_new=is_new),
            TimeIndex(files, time_path, base_offset, is_new=is_new),
        )
        txn_path = stem + TXN_INDEX_SUFFIX + stage
        self.txn_index = TxnIndex(files, txn_path, base_offset, is_new=is_new)
        self.files = files
        self.stage = stage
        self.directory = directory
        self.created_ms = NO_TIMESTAMP
        self._facts: SegmentFacts | None = None
        self.indexes_verified = True
        self.remote: RemoteObject | None = None
        self.is_remote = False

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        stage: str = "",
        is_only: bool = False,
    ) -> "Segment":
        """An empty segment; files left from an older one with that base are removed first.

        `is_only` says that the directory has no file of any segment: looking for each of them is a
        quarter of what a new partition costs.
        """
        for suffix in () if is_only else SEGMENT_SUFFIXES:
            path = segment_file_path(directory, base_offset, suffix) + stage
            if files.exists(path):
                files.unlink(path)
        log = files.create(segment_file_path(directory, base_offset, LOG_SUFFIX) + stage)
        segment = cls(files, directory, base_offset, log, stage, is_new=True)
        segment.created_ms = now_ms
        return segment

    @classmethod
    def open(cls, files: Files, directory: str, base_offset: int, *, now_ms: int) -> "Segment":
        """The segment in an existing file, with no facts about its content."""
        log = files.open(segment_file_path(directory, base_offset, LOG_SUFFIX))
        segment = cls(files, directory, base_offset, log)
        segment.created_ms = now_ms
        return segment

    @classmethod
    def open_remote(
        cls,
        files: Files,
        directory: str,
        where: RemoteObject,
        *,
        now_ms: int,
        has_indexes: bool = True,
    ) -> "Segment":
        """The segment whose log is in an object, with no facts about its content.

        Without `has_indexes` no index file is looked for, as in a directory that was restored.
        """
        path = segment_file_path(directory, where.base_offset, LOG_SUFFIX)
        log = RemoteLogFile(path, where)
        segment = cls(files, directory, where.base_offset, log, is_new=not has_indexes)
        segment.created_ms = now_ms
        log.offset_index = segment.offset_index
        segment.remote, segment.is_remote = where, True
        return segment

    def drop_local(self) -> File:
        """Read the log from its object from now on; returns the local file, which has no use."""
        assert self.remote is not None, f"{self.log.path} is in no store"
        assert not self.is_remote, f"{self.log.path} is not here"
        local = self.log
        self.log = RemoteLogFile(local.path, self.remote, self.offset_index)
        self.is_remote = True
        return local

    def adopt_local(self, local: File) -> None:
        """Read the log from a file that has what its object has."""
        assert self.is_remote, f"{self.log.path} is here"
        assert local.size == self.size, f"{local.path} has {local.size} bytes, not {self.size}"
        self.log.close()
        self.log = local
        self.is_remote = False

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return segment_file_path(self.directory, self.base_offset, suffix) + self.stage

    @property
    def size(self) -> int:
        """Bytes in the log file."""
        return self.log.size

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever appended, or all of it was cut away."""
        return self.log.size == 0

    @property
    def newest_record_ms(self) -> int:
        """No record is newer; where that was not collected, the newest marker's time counts too."""
        known = self.data_max_timestamp != UNKNOWN_MAXIMUM
        return self.data_max_timestamp if known else self.max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The time that retention uses: the maximum, or the append time if there is none.

        Differs from Kafka: it uses the file's modification time, which a copy does not keep.
        """
        return self.max_timestamp if self.max_timestamp >= 0 else self.appended_ms

    @property
    def first_timestamp(self) -> int:
        """Max timestamp of the first batch, or NO_TIMESTAMP; read from the file when unknown."""
        if self._first_timestamp is None:
            if self.is_empty:
                return NO_TIMESTAMP
            self._first_timestamp = self.walk().head(0).max_timestamp
        return self._first_timestamp

    def open_for_ms(self, now_ms: int) -> int:
        """How long this object has existed; counted from now on when the clock was set back."""
        self.created_ms = min(self.created_ms, now_ms)
        return now_ms - self.created_ms

    def fits(self, last_offset: int) -> bool:
        """Whether an offset can be stored relative to the base in 31 bits."""
        return last_offset - self.base_offset <= INT32_MAX

    def append(
        self,
        data: Bytes,
        batches: Iterable[Entry],
        *,
        now_ms: int,
        index_interval: int,
        min_timestamp: int = UNKNOWN_MINIMUM,
        data_max_timestamp: int = UNKNOWN_MAXIMUM,
    ) -> None:
        """Write the batches and index them; `next_offset` moves to the end of the last one.

        `min_timestamp` is the smallest of all their records, `data_max_timestamp` the largest
        without markers, if the caller has checked the records. Raises OSError from the one write;
        the file may have grown then, and nothing else has changed.
        """
        start = self.log.size
        self.log.append(data)
        assert self.log.size == start + len(data), "the log file did not grow by the append"
        if start == 0:
            self._forget_first()
            self.min_timestamp = INT64_MAX
            self.data_max_timestamp = NO_TIMESTAMP
        end_before = self.next_offset
        for batch in batches:
            timestamp = batch.max_timestamp if batch.records_count else NO_TIMESTAMP
            if start == 0 and self._first_timestamp is None:
                self._first_timestamp = timestamp
            self.feed(
                start + batch.position,
                batch.size,
                batch.last_offset,
                timestamp,
                batch.records_count,
                index_interval,
                batch,
                min_timestamp,
            )
        assert end_before <= self.next_offset, "appended offsets go backwards"
        assert self.next_offset - 1 - self.base_offset <= INT32_MAX, (
            "an appended offset does not fit"
        )
        if min_timestamp < self.min_timestamp:
            self.min_timestamp = min_timestamp
        if data_max_timestamp > self.data_max_timestamp:
            self.data_max_timestamp = data_max_timestamp
        self.appended_ms = now_ms

    def walk(self, end: int | None = None) -> HeadWalk:
        """A walk over the heads of the entries up to position `end`."""
        return HeadWalk(self.log, self.log.size if end is None else end)

    def find_entry(self, offset: int) -> Entry | None:
        """The first entry that ends at `offset` or later; None when all end below it."""
        assert self.indexes_verified, f"search in {self.log.path} by unverified indexes"
        start = self.offset_index.floor(offset).position
        return self.walk().find(start, offset=offset)

    def find_index_damage(self) -> str | None:
        """The fault of the offset or time index, in words, or None.

        With stored facts about the segment, the checksums of the indexes decide. Without them, the
        indexes' order decides, and whether they fit the log.
        """
        if self._facts is not None:
            for index, crc in (
                (self.offset_index, self._facts.offset_index_crc),
                (self.time_index, self._facts.time_index_crc),
            ):
                if index.checksum() != crc:
                    return f"{index.path} is not what was written (checksum)"
            if self.is_remote and _size(self.txn_index.file) != self._facts.txn_index_bytes:
                return f"{self.txn_index.path} is not what was written (size)"
            return self.txn_index.find_damage() if self.is_remote else None
        for index in (self.offset_index, self.time_index):
            if not index.exists and not self.is_empty:
                return f"{index.path} is missing"
            damage = index.find_disorder()
            if damage is not None:
                return f"{index.path}: {damage}"
        offset, position = self.offset_index.last()
        if self.offset_index.count and not (offset < self.next_offset and position < self.size):
            return f"{self.offset_index.path} points past the log, at ({offset}, {position})"
        timestamp, offset = self.time_index.last()
        if timestamp != self.max_timestamp or offset >= self.next_offset:
            return f"{self.time_index.path} ends with ({timestamp}, {offset})"
        return None

    def seal(self, *, now_ms: int) -> SegmentFacts:
        """Add the closing time entry and write the indexes out; returns the facts to store.

        Afterwards the segment may still be appended to, as after a clean stop. Raises OSError.
        """
        assert (
            self.base_offset
            <= self.max_timestamp_offset
            <= max(self.base_offset, self.next_offset - 1)
        ), f"the maximum of {self.log.path} is at {self.max_timestamp_offset}, outside of it"
        self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write_out()
        self.time_index.write_out()
        for index in self.auxiliary:
            index.seal(self.coverage(), self.max_timestamp_offset)
        self._facts = SegmentFacts(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size_bytes=self.size,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            first_timestamp=self.first_timestamp,
            appended_ms=self.appended_ms if self.appended_ms >= 0 else now_ms,
            records=self.records,
            offset_index_bytes=_size(self.offset_index.file),
            time_index_bytes=_size(self.time_index.file),
            txn_index_bytes=_size(self.txn_index.file),
            offset_index_crc=self.offset_index.checksum(),
            time_index_crc=self.time_index.checksum(),
            min_timestamp=self.min_timestamp,
            data_max_timestamp=self.data_max_timestamp,
        )
        return self._facts

    def write_out(self) -> None:
        """Write the index entries that are in memory only. Raises OSError; they stay there then."""
        self.offset_index.write_out()
        self.time_index.write_out()
        for index in self.auxiliary:
            index.write_out()

    def coverage(self) -> Coverage:
        """What an auxiliary index covers when no entry is missing in it."""
        return Coverage(self.size, self.next_offset, self.max_timestamp)

    def remember_measured(
        self, records: int, min_timestamp: int, data_max_timestamp: int
    ) -> SegmentFacts:
        """Take over the statistics of `storage.log.segment_stats`; the facts including them."""
        assert self._facts is not None, f"{self.log.path} was measured before it was closed"
        self.records, self.min_timestamp = records, min_timestamp
        self.data_max_timestamp = data_max_timestamp
        self._facts = replace(
            self._facts,
            records=records,
            min_timestamp=min_timestamp,
            data_max_timestamp=data_max_timestamp,
        )
        return self._facts

    def index_files(self) -> IndexFiles:
        """The content of the index files. Raises OSError."""
        return IndexFiles(
            *(
                b"" if file is None else file.pread(file.size, 0)
                for file in (self.offset_index.file, self.time_index.file, self.txn_index.file)
            )
        )

    def put_index_files(self, content: IndexFiles) -> None:
        """Replace the index files, whose content came from the segment's object. Raises OSError."""
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        for index in self._indexes():
            index.close()
        for suffix, data in zip(suffixes, content, strict=True):
            path = self.path(suffix)
            if data:
                self.files.replace_atomically(path, data)
            elif self.files.exists(path):
                self.files.unlink(path)
        self.offset_index = OffsetIndex(self.files, self.path(suffixes[0]), self.base_offset)
        self.time_index = TimeIndex(self.files, self.path(suffixes[1]), self.base_offset)
        self.txn_index = TxnIndex(self.files, self.path(suffixes[2]), self.base_offset)
        if isinstance(self.log, RemoteLogFile):
            self.log.offset_index = self.offset_index

    @property
    def facts(self) -> SegmentFacts:
        """The facts of the last `seal` or `adopt`."""
        assert self._facts is not None, f"{self.log.path} was not closed"
        return self._facts

    def matches(self, facts: SegmentFacts) -> bool:
        """Whether the files still have the sizes in `facts`."""
        return (
            facts.size_bytes == self.size
            and facts.offset_index_bytes == _size(self.offset_index.file)
            and facts.time_index_bytes == _size(self.time_index.file)
            and facts.txn_index_bytes == _size(self.txn_index.file)
        )

    @property
    def matches_manifest(self) -> bool:
        """Whether the segment has not changed since the last `seal` or `adopt`."""
        return self._facts is not None and self.matches(self._facts)

    def adopt(self, facts: SegmentFacts) -> None:
        """Take over the stored facts about the segment; the indexes are yet to be verified."""
        assert facts.base_offset == self.base_offset, f"facts about {facts.base_offset}"
        assert facts.size_bytes == self.size, f"facts about {facts.size_bytes} bytes"
        assert 0 <= facts.next_offset - self.base_offset <= INT32_MAX + 1, (
            f"end {facts.next_offset}"
        )
        self.next_offset = facts.next_offset
        self.max_timestamp = facts.max_timestamp
        self.max_timestamp_offset = facts.max_timestamp_offset
        self.min_timestamp = facts.min_timestamp
        self.data_max_timestamp = facts.data_max_timestamp
        self.appended_ms = facts.appended_ms
        self.records = facts.records
        self._forget_first()
        if not self.is_empty:
            self._first_timestamp = facts.first_timestamp
        self._facts = facts
        self.indexes_verified = False

    def adopt_indexes(self, *, appended_ms: int) -> None:
        """Trust indexes that are in order, because no facts are stored; the log's end is read.

        The last entry of each is looked up in the log, and all heads from that of the time index on
        are read. `find_index_damage` then knows which entries an index lacks or has in excess.

        Raises OSError, or CorruptLog when an index points to a position without whole entries.
        """
        self.appended_ms = appended_ms
        self.records = UNKNOWN
        walk = self.walk()
        offset, position = self.offset_index.last()
        if self.offset_index.count and walk.head(position).last_offset != offset:
            raise walk.corrupt(position, f"the entry that ends at offset {offset}", "another")
        timestamp, at_offset = self.time_index.last()
        start, self.max_timestamp, self.max_timestamp_offset = 0, NO_TIMESTAMP, self.base_offset
        if self.time_index.count:
            head = walk.find(self.offset_index.floor(at_offset).position, offset=at_offset)
            if head is None or head.max_timestamp != timestamp:
                raise walk.corrupt(
                    self.size if head is None else head.position,
                    f"timestamp {timestamp} at offset {at_offset}, as {self.time_index.path} ends",
                    "none" if head is None else str(head.max_timestamp),
                )
            start, self.max_timestamp, self.max_timestamp_offset = (
                head.position,
                timestamp,
                at_offset,
            )
        self.next_offset = self.base_offset
        for head in walk.heads(start):
            if head.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = head.max_timestamp, head.last_offset
            self.next_offset = head.last_offset + 1

    def all_files(self) -> Iterator[File]:
        """The files that exist, log first."""
        if not self.is_remote:
            yield self.log
        for index in self._indexes():
            if index.file is not None:
                yield index.file

    def release(self) -> None:
        """Release memory that only appends need: the segment is closed for good."""
        for index in self.auxiliary:
            index.release()

    def close(self) -> None:
        """Close all descriptors; index entries not written out are gone."""
        self.log.close()
        for index in self._indexes():
            index.close()

    def move_to(self, stage: str, kinds: Iterable[str]) -> None:
        """Rename the files of these kinds to another stage; they stay open. Raises OSError."""
        indexes = {index.SUFFIX: index for index in self._indexes()}
        for kind in kinds:
            target = segment_file_path(self.directory, self.base_offset, kind) + stage
            if kind == LOG_SUFFIX:
                self.files.rename_open(self.log, target)
            elif kind in indexes:
                indexes[kind].move_to(target)
        self.stage = stage

    def _indexes(self) -> tuple[SparseIndex | TxnIndex | AuxiliaryIndex, ...]:
        return (self.offset_index, self.time_index, self.txn_index, *self.auxiliary)

    def discard(self) -> None:
        """Close and unlink the files of a segment that no log has used. Raises OSError."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            if self.files.exists(self.path(suffix)):
                self.files.unlink(self.path(suffix))

    def mark_deleted(self) -> list[str]:
        """Rename the files to their `.deleted` names, which are returned, for a later unlink."""
        self.close()
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self.files.exists(path):
                self.files.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed


def _size(file: File | None) -> int:
    return 0 if file is None else file.size
