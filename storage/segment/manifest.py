"""`segment-manifest`: stored facts about the closed segments of one partition.

Owns one small text file per partition. Without opening a segment, it gives two facts that Kafka
reads from unreliable places. One is the largest timestamp, in Kafka from the last entry of an
index, which may be damaged. The other is the age of records without timestamp, in Kafka from the
file's modification time, which a copied directory does not keep. The file is a journal: one line is
appended when a segment is closed or the log's start moves, and each open rewrites it without the
outdated lines.

    tidelog segment manifest 1
    segment base_offset=0 next_offset=1500 size_bytes=1048301 ... 5f1c9e02
    start offset=1500 77aa0b13
    durable offset=1500 0c44d1f2

A `durable` line says that everything below the offset had been synced when the line was written.
Recovery judges damage by it: at or above that offset a torn tail is expected, below it never. A
`cleaned` line says that compaction has compared everything below the offset, a `lost` line that an
operator has given up records from there on (`storage.audit.accept_loss`).

Each line ends with the CRC-32C of the text before it, in hexadecimal. Of several lines about one
segment the last one counts. A line whose checksum is wrong ends the reading, since only a torn tail
can look like that, and nothing is added after it: the file is written as a whole first. Unknown
fields are left out, unknown kinds of line are skipped.

A `remote` line names the object that has a segment's bytes (`storage.segment.remote.object`), an
`erased` line takes it back when the object was deleted from its store. After local retention has
removed the `.log`, the `remote` line is the only record of where the bytes are, so it is synced
before that. A `superseded` line says that compaction has rewritten the segment: the object is no
part of the log any more, and stays named until it was deleted.

The rest is a cache: facts are trusted only while the segment's files still have the sizes in them,
and everything but `appended_ms` can be derived from the log again.

For a closed segment it has the statistics by which both ends of a time range prune. With
`min_timestamp` at or above the end of the range, or `data_max_timestamp` below its start, no record
of the segment is in it. A program that reads the file beside a running broker must check each line,
since compaction rewrites segments. It may trust a line only while `size_bytes` is the size of the
`.log` and `next_offset` the base of the next segment. `storage.log.segment_stats` collects an
unknown minimum.

Differs from Kafka: Kafka has no such file, and ignores this one.
"""

from collections.abc import Container, Iterable
from typing import Final

from protocol.records.checksums import crc32c
from protocol.records.layout import NO_OFFSET
from storage.disk.file_names import MANIFEST_NAME
from storage.disk.files import File, Files
from storage.segment.facts import (
    FACTS_FIELDS,
    OBJECT_FIELDS,
    REMOTE,
    SEGMENT,
    RemoteObject,
    SegmentFacts,
    facts_line,
    object_line,
    read_lines,
)

HEADING: Final = "tidelog segment manifest 1"
OUTDATED_MAX: Final = 1024
"""Outdated lines that a file collects before it is rewritten in the middle of a run."""

OUTDATED_AT_START_MAX: Final = 64
"""The same when a directory is opened."""

_ERASED: Final = "erased"
_SUPERSEDED: Final = "superseded"
_OFFSETS: Final = {
    "start": "log_start_offset",
    "durable": "durable_offset",
    "cleaned": "cleaned_offset",
    "lost": "lost_offset",
}
"""Kinds of lines with one offset, in the order of a rewritten file, and their attributes."""


_Value = SegmentFacts | RemoteObject | dict[str, int]
_LATER_FIELDS: Final = frozenset({"min_timestamp", "data_max_timestamp"})
"""Fields that are absent from lines of earlier releases."""
_ALL_FIELDS: Final = frozenset(FACTS_FIELDS)
_FIRST_FIELDS: Final = _ALL_FIELDS - _LATER_FIELDS
_OBJECT_FIELDS: Final = frozenset(OBJECT_FIELDS)


class Manifest:
    """The manifest of one partition directory. One writer.

    A crash loses at most what was appended since the last sync; nothing depends on more.
    """

    __slots__ = (
        "_as_read",
        "_directory",
        "_file",
        "_files",
        "_is_held",
        "_is_suspect",
        "_lines",
        "cleaned_offset",
        "durable_offset",
        "facts",
        "has_durable_name",
        "is_whole",
        "log_start_offset",
        "lost_offset",
        "remote",
        "superseded",
    )

    def __init__(self, directory: str, files: Files) -> None:
        """Read the file if there is one; `facts` and `remote` are by base offset.

        `superseded` has the objects of segments that compaction has rewritten, by nonce. `is_whole`
        says that all lines were read, but for a torn last one. `has_durable_name` says that the
        file's name survives a power cut: a start makes the names that it finds durable, and who
        syncs the directory after the file was made sets it.
        """
        self._files = files
        self._directory = directory
        self._file: File | None = None
        self._is_held = False
        self._is_suspect = False
        self._lines = 0
        # The lines of facts as they were read, while they are current: a start formats none again.
        self._as_read: memoryview | None = None
        self.facts: dict[int, SegmentFacts] = {}
        self.remote: dict[int, RemoteObject] = {}
        self.superseded: dict[int, RemoteObject] = {}
        self.is_whole = True
        self.has_durable_name = files.exists(self._path)
        self.log_start_offset = NO_OFFSET
        self.durable_offset = NO_OFFSET
        self.cleaned_offset = NO_OFFSET
        self.lost_offset = NO_OFFSET
        if self.has_durable_name:
            self._read(files.read_all(self._path))

    @property
    def _path(self) -> str:
        return f"{self._directory}/{MANIFEST_NAME}"

    @property
    def file(self) -> File | None:
        """The file, for syncing; None while nothing was written in this run."""
        return self._file

    def remember(self, facts: SegmentFacts) -> None:
        """Append the facts of a segment. Raises OSError."""
        self.facts[facts.base_offset] = facts
        self._append(_segment_line(facts))

    def remember_start(self, log_start_offset: int) -> None:
        """Append that the log now starts here. Raises OSError."""
        self.log_start_offset = log_start_offset
        self._append(_offset_line("start", log_start_offset))

    def remember_durable(self, durable_offset: int) -> None:
        """Append that everything below this offset is synced. Raises OSError."""
        if durable_offset > self.durable_offset:
            self.durable_offset = durable_offset
            self._append(_offset_line("durable", durable_offset))

    def remember_cleaned(self, cleaned_offset: int) -> None:
        """Append that everything below this offset was compacted. Raises OSError."""
        if cleaned_offset != self.cleaned_offset:
            self.cleaned_offset = cleaned_offset
            self._append(_offset_line("cleaned", cleaned_offset))

    def remember_lost(self, first_offset: int) -> None:
        """Append that records from here on were accepted as lost. Raises OSError."""
        self.lost_offset = first_offset
        self._append(_offset_line("lost", first_offset))

    def remember_remote(self, where: RemoteObject) -> None:
        """Append that an object has the bytes of a segment. Raises OSError."""
        self.remote[where.base_offset] = where
        self._append(_object_line(REMOTE, where))

    def remember_erased(self, where: RemoteObject) -> None:
        """Append that the object is not in its store any more. Raises OSError."""
        if self.superseded.pop(where.nonce, None) is None:
            if self.remote.get(where.base_offset) != where:
                return
            del self.remote[where.base_offset]
        self._append(_line(f"{_ERASED} base_offset={where.base_offset} nonce={where.nonce}"))

    def remote_only(self, here: Container[int]) -> dict[int, RemoteObject]:
        """The objects of segments that are part of the log and have no `.log`, by base offset.

        `here` are the bases of those that have one.
        """
        return {
            base: where
            for base, where in self.remote.items()
            if base not in here and base in self.facts and where.next_offset > self.log_start_offset
        }

    def supersede(self, base_offsets: Iterable[int]) -> bool:
        """Append that the objects of these segments are no part of the log any more.

        Returns whether there was one. Raises OSError.
        """
        gone = [self.remote.pop(base) for base in base_offsets if base in self.remote]
        self.superseded.update((where.nonce, where) for where in gone)
        for where in gone:
            self._append(_object_line(_SUPERSEDED, where))
        return bool(gone)

    def drop(self, base_offsets: Iterable[int]) -> None:
        """Drop segments that are gone; the next `rewrite` updates the file."""
        for base_offset in base_offsets:
            if self.facts.pop(base_offset, None) is not None:
                self._as_read = None

    def hold(self) -> None:
        """Keep new facts in memory only, until `rewrite` or `release`.

        For a directory without a manifest: a part of its first one would be worse than none.
        """
        self._is_held = True

    def release(self) -> None:
        """Write new facts at once from now on; the ones kept in memory are written now, durably."""
        if self._is_held and (self.facts or self.cleaned_offset != NO_OFFSET):
            self.rewrite()
        self._is_held = False

    def forget_lines(self) -> None:
        """Keep the text of the file no longer: the start is over, which might have rewritten it."""
        self._as_read = None

    def distrust(self) -> None:
        """Note that a sync of the file failed, and the medium may lack lines in its middle.

        The file is rewritten as a whole before anything is added to it.
        """
        self.close()
        self._is_suspect = True

    def rewrite(self) -> None:
        """Make the file hold exactly the current facts, durably. Raises OSError."""
        self.close()
        content = b"".join([self._as_read or self._formatted(), self._offset_lines()])
        self._files.replace_atomically(self._path, content)
        self._is_held = self._is_suspect = False
        self._as_read = None
        self.has_durable_name = True
        self._lines = content.count(b"\n") - 1

    def _offset_lines(self) -> bytes:
        offsets = ((kind, getattr(self, name)) for kind, name in _OFFSETS.items())
        lines = (_offset_line(kind, offset) for kind, offset in offsets if offset != NO_OFFSET)
        return "".join(lines).encode()

    def _formatted(self) -> bytes:
        """The heading, and the lines of segments and objects."""
        lines = [_segment_line(self.facts[base]) for base in sorted(self.facts)]
        lines += [_object_line(REMOTE, self.remote[base]) for base in sorted(self.remote)]
        lines += [_object_line(_SUPERSEDED, where) for where in self.superseded.values()]
        return "".join([HEADING + "\n", *lines]).encode()

    def has_outdated(self, lines_max: int) -> bool:
        """Whether more than `lines_max` lines are outdated, apart from four for each segment and
        each object.
        """
        objects = len(self.remote) + len(self.superseded)
        return self._lines > lines_max + 4 * len(self.facts) + 4 * objects

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, line: str) -> None:
        self._as_read = None
        if self._is_held:
            return
        if self._is_suspect or self.has_outdated(OUTDATED_MAX):
            self.rewrite()
        if self._file is None:
            exists = self._files.exists(self._path)
            self._file = self._files.open(self._path) if exists else self._files.create(self._path)
        size = self._file.size
        try:
            # A cut heading would make the whole file unreadable, so it is written with the first
            # line.
            self._file.append((line if size else f"{HEADING}\n{line}").encode())
        except OSError:
            self._is_suspect = True
            self._file.truncate(size)
            self._is_suspect = False
            raise
        self._lines += 1

    def _read(self, content: bytes) -> None:
        heading = f"{HEADING}\n".encode()
        self.is_whole, self._is_suspect = False, True
        if not content.startswith(heading):
            return
        self._lines = read_lines(content, len(heading), self.facts, self.remote, self._take_other)
        # The last line may be torn; then nothing may be added after it.
        ends = content.count(b"\n") - 1
        has_end = content.endswith(b"\n")
        self.is_whole = self._lines >= ends - has_end
        self._is_suspect = self._lines != ends or not has_end
        # Whether each line is current and known, and the offsets are the last ones.
        offsets = self._offset_lines()
        current = len(self.facts) + len(self.remote) + len(self.superseded) + offsets.count(b"\n")
        if not self._is_suspect and self._lines == current and content.endswith(b"\n" + offsets):
            self._as_read = memoryview(content)[: len(content) - len(offsets)]

    def _take_other(self, text: str) -> None:
        """Take a line of another kind, or one of an earlier or later release."""
        kind, value = _read_other(text)
        if isinstance(value, SegmentFacts):
            self.facts[value.base_offset] = value
        elif isinstance(value, RemoteObject):
            if kind == REMOTE:
                self.remote[value.base_offset] = value
            else:
                self.superseded[value.nonce] = value
                if self.remote.get(value.base_offset) == value:
                    del self.remote[value.base_offset]
        elif kind == _ERASED and "base_offset" in value:
            self._take_erased(value["base_offset"], value.get("nonce"))
        elif kind in _OFFSETS and "offset" in value:
            setattr(self, _OFFSETS[kind], value["offset"])

    def _take_erased(self, base_offset: int, nonce: int | None) -> None:
        """Take an object back. Early releases named it by its base offset alone.

        A rewrite just before the line has left out the object, and the segment may have another.
        """
        if nonce is not None and self.superseded.pop(nonce, None) is not None:
            return
        where = self.remote.get(base_offset)
        if where is not None and nonce in (None, where.nonce):
            del self.remote[base_offset]


def _read_other(text: str) -> tuple[str, _Value]:
    kind, *words = text.replace("=", " ").split(" ")
    return kind, _value_of(kind, dict(zip(words[::2], map(int, words[1::2]), strict=True)))


def _value_of(kind: str, numbers: dict[str, int]) -> _Value:
    """What a line with these numbers says; the numbers themselves for other kinds.

    Fields that a newer release added are left out.
    """
    if kind == SEGMENT and numbers.keys() >= _FIRST_FIELDS:
        return SegmentFacts(**{name: numbers[name] for name in numbers.keys() & _ALL_FIELDS})
    if kind in (REMOTE, _SUPERSEDED) and numbers.keys() >= _OBJECT_FIELDS:
        return RemoteObject(**{name: numbers[name] for name in _OBJECT_FIELDS})
    return numbers


def remote_lines(facts: SegmentFacts, where: RemoteObject) -> str:
    """The lines about a segment in a store, for a machine that has nothing else."""
    return _segment_line(facts) + _object_line(REMOTE, where)


def parse_remote_lines(text: str) -> tuple[SegmentFacts, RemoteObject]:
    """The facts and the object of such lines."""
    facts: dict[int, SegmentFacts] = {}
    remote: dict[int, RemoteObject] = {}

    def take_other(line: str) -> None:
        _, value = _read_other(line)
        if isinstance(value, SegmentFacts):
            facts[value.base_offset] = value
        elif isinstance(value, RemoteObject):
            remote[value.base_offset] = value

    read_lines(text.encode(), 0, facts, remote, take_other)
    assert len(facts) == len(remote) == 1, f"{text!r} is not about one segment and its object"
    return facts.popitem()[1], remote.popitem()[1]


def format_manifest(
    lines: Iterable[str], log_start_offset: int, cleaned_offset: int = NO_OFFSET
) -> bytes:
    """A manifest with such lines, the log's start, and the end of what is compacted."""
    offsets = [_offset_line("start", log_start_offset)]
    if cleaned_offset != NO_OFFSET:
        offsets.append(_offset_line("cleaned", cleaned_offset))
    return "".join([HEADING, "\n", *lines, *offsets]).encode()


def _segment_line(facts: SegmentFacts) -> str:
    return _line(facts_line(facts))


def _object_line(kind: str, where: RemoteObject) -> str:
    return _line(object_line(kind, where))


def _offset_line(kind: str, offset: int) -> str:
    return _line(f"{kind} offset={offset}")


def _line(body: str) -> str:
    return f"{body} {crc32c(body.encode()):08x}\n"
