"""The metadata journal: the broker's facts that are not in any log.

Owns one append-only file, `metadata.journal` in the root of a data directory. It has the topics
(id, number of partitions, configuration overrides), the broker's dynamic overrides, groups' own
settings and the next free producer id. It is a map from (kind, key) to a JSON document; a change is
one line, and a null document is a tombstone. Refuses to know the meaning of documents of other
kinds: it keeps them.

    e2a22601 {"kind":"journal","key":"format","value":{"version":1}}
    0739c208 {"kind":"topic","key":"flights","value":{"id":"...","partitions":4,"overrides":{}}}
    3120ef7a {"kind":"topic","key":"flights","value":null}

Eight hexadecimal digits are the CRC-32C of the document, which has no newline in it. The first
line names the format. A change is durable when its method returns, at the cost of one append and
one sync, whatever the number of topics.

The state found at open, and the action:

| found                                         | meaning                     | done               |
|-----------------------------------------------|-----------------------------|--------------------|
| no file                                       | a new directory             | written atomically |
| good lines, then bytes that hold no good line | a crash during the last     | the rest is cut    |
| a bad line with a good one after it           | damage to durable bytes     | refused to start   |
| a bad first line, or an empty file            | not written by this program | refused to start   |
| anything else                                 | history, maybe un-synced    | rewritten clean    |

The tail may be cut because a change whose line is torn was never reported as done.

Source: our own; Kafka keeps this in ZooKeeper or in its metadata log. docs/adr/0007 has the
reasons.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from protocol.records.checksums import crc32c
from storage.directory.metadata import (
    KIND_JOURNAL,
    KIND_TOPIC,
    ONLY_KEY,
    Json,
    Metadata,
    TopicMetadata,
    format_topic,
    is_deleted,
    parse_topic,
)
from storage.disk.files import Files, sync_file
from storage.errors import DiskFull, ForeignDataDir, HalfWrittenDataDir, StorageFailed

JOURNAL_FILE: Final = "metadata.journal"
JOURNAL_VERSION: Final = 1
WORKERS_VERSION: Final = 2
"""The format once a partition is assigned to another worker than the first.

A program without workers would create such partitions again, empty, so it must refuse the file.
"""

_KIND_CHANGES: Final = "changes"
"""A line with several changes, [kind, key, value] each; all of them take effect, or none."""

_KEY_FORMAT: Final = "format"

_CRC_DIGITS: Final = 8
_SUPERSEDED_LINES_MAX: Final = 10_000
"""Superseded lines after which an open journal is rewritten."""

OnChange = Callable[[str, Mapping[str, Json]], object]
"""Called with the kind and the documents of each change, once it is durable."""


class MetadataJournal(Metadata):
    """The open journal: a map in memory, and its file.

    `DataDir` opens and closes it, one thread changes it. The map changes only after the line is
    durable. After a failed sync every change is refused until the next start, because the content
    of the medium is unknown from then on.
    """

    def __init__(
        self,
        directory: str,
        files: Files,
        *,
        adopted: Iterable[TopicMetadata] = (),
        adopted_documents: Iterable[tuple[str, str, Json]] = (),
    ) -> None:
        """Load the journal of `directory`, cutting a torn tail, or begin a new one.

        A new journal begins with the topics in `adopted` and with the documents given by kind and
        key. After a crash the file has all of them, or there is no file.

        Raises:
            HalfWrittenDataDir: the file is damaged before its end.
            ForeignDataDir: its format is newer than this program.
            OSError: it could not be read or written.
        """
        super().__init__(f"{directory}/{JOURNAL_FILE}")
        self._files = files
        self._failed: str | None = None
        self._lines = 0
        self.on_change: OnChange = _nothing
        self.is_new = not files.exists(self.path)
        if self.is_new:
            self._documents[KIND_JOURNAL, _KEY_FORMAT] = {"version": JOURNAL_VERSION}
            for topic in adopted:
                self._documents[KIND_TOPIC, topic.name] = dict(format_topic(topic))
            for kind, key, document in adopted_documents:
                self._documents[kind, key] = document
            self._rewrite()
        else:
            self._load()
        self._file = files.open(self.path)

    def put_all(
        self, kind: str, documents: Mapping[str, Json], *, erase_former: bool = False
    ) -> None:
        """Set documents of one kind with one write and one sync; None removes one.

        They are one line, so after a crash all have their former or all have their new values.
        `erase_former` rewrites the file, so that no former value is left in it: for secrets.

        Raises:
            DiskFull: nothing has changed, a retry may succeed.
            StorageFailed: the journal is unusable until the broker starts again.
        """
        if self.refusal is not None:
            raise StorageFailed("change", self.path, self.refusal)
        if (
            kind == KIND_TOPIC
            and self.version == JOURNAL_VERSION
            and any(isinstance(value, dict) and "workers" in value for value in documents.values())
        ):
            self.put(KIND_JOURNAL, _KEY_FORMAT, {"version": WORKERS_VERSION})
        if self._failed is not None:
            raise StorageFailed("change", self.path, f"an earlier write failed: {self._failed}")
        changes: list[Json] = [[kind, key, value] for key, value in documents.items()]
        if len(documents) == 1:
            ((key, value),) = documents.items()
            line = _format_line(kind, key, value)
        else:
            line = _format_line(_KIND_CHANGES, ONLY_KEY, changes)
        good_size = self._file.size
        try:
            self._file.append(line)
        except OSError as error:
            self._undo(good_size, error)
            raise DiskFull("append", self.path, str(error)) from error
        try:
            sync_file(self._file)
        except OSError as error:
            self._failed = str(error)
            raise StorageFailed("sync", self.path, str(error)) from error
        assert self._file.size == good_size + len(line)
        for key, document in documents.items():
            self._take(kind, key, document)
        self.on_change(kind, documents)
        superseded = self._lines - len(self._documents)
        if superseded > _SUPERSEDED_LINES_MAX or (erase_former and superseded):
            self._compact()

    @property
    def version(self) -> Json:
        """The version of the format, None in a file that names none."""
        document = self._documents.get((KIND_JOURNAL, _KEY_FORMAT))
        return document.get("version") if isinstance(document, dict) else None

    def forget_workers(self) -> None:
        """Return to the format without workers; no partition may be assigned to another one."""
        if self.version == WORKERS_VERSION:
            self.put(KIND_JOURNAL, _KEY_FORMAT, {"version": JOURNAL_VERSION})

    def close(self) -> None:
        """Close the file; every change was durable already."""
        self._file.close()

    # --- internals ------------------------------------------------------------------------------

    def _undo(self, good_size: int, error: OSError) -> None:
        try:
            self._file.truncate(good_size)
        except OSError:
            self._failed = str(error)
            raise StorageFailed("append", self.path, str(error)) from error

    def _take(self, kind: str, key: str, document: Json) -> None:
        if kind == _KIND_CHANGES:
            for change in document if isinstance(document, list) else ():
                match change:
                    case [str(changed_kind), str(changed_key), value]:
                        self._take(changed_kind, changed_key, value)
                    case _:
                        raise self._unexpected(key, document)
            return
        self._lines += 1
        if document is None:
            self._documents.pop((kind, key), None)
        else:
            self._documents[kind, key] = document

    def _load(self) -> None:
        content = self._files.read_all(self.path)
        good_size = 0
        for size, parsed in _parse_lines(content):
            if parsed is None:
                break
            good_size += size
            self._take(*parsed)
        self._check_format(content)
        self._check_rest(content, good_size)
        self.bytes_cut = len(content) - good_size
        # Parsed here, so that a document of an unexpected shape prevents the start.
        assert self.next_producer_id >= 0
        assert self.topics() is not None
        assert self.broker_overrides is not None
        assert self.group_overrides() is not None
        # Always, not only when lines are dropped: the last lines may be in the page cache only,
        # left by a process that was killed before its sync. From here on they count.
        self._rewrite()

    def _check_format(self, content: bytes) -> None:
        version = self.version
        if version is None:
            raise HalfWrittenDataDir(
                "the metadata journal does not begin with its format",
                path=self.path,
                found=f"{len(content)} bytes",
                cure="restore the file from a copy; the logs are untouched",
            )
        if version not in (JOURNAL_VERSION, WORKERS_VERSION):
            raise ForeignDataDir(
                "the metadata journal has a format that this program does not know",
                path=self.path,
                found=f"version {version}, expected {JOURNAL_VERSION} or {WORKERS_VERSION}",
                cure="start the newer program that wrote it",
            )

    def _check_rest(self, content: bytes, good_size: int) -> None:
        """Check that the rest is a torn tail: a good line in it would mean damage before it."""
        position = good_size
        for size, parsed in _parse_lines(content[good_size:]):
            if parsed is not None:
                raise HalfWrittenDataDir(
                    "the metadata journal is damaged in its middle",
                    path=self.path,
                    found=f"a bad line at byte {good_size}, a good one after it at byte {position}",
                    cure="restore the file from a copy, or cut it there to lose what follows",
                )
            position += size

    def _compact(self) -> None:
        self._file.close()
        try:
            self._rewrite()
            self._file = self._files.open(self.path)
        except OSError as error:
            self._failed = str(error)
            raise StorageFailed("rewrite", self.path, str(error)) from error

    def _rewrite(self) -> None:
        self._files.replace_atomically(
            self.path,
            b"".join(
                _format_line(kind, key, document)
                for (kind, key), document in self._documents.items()
            ),
        )
        self._lines = len(self._documents)


def _nothing(kind: str, documents: Mapping[str, Json]) -> None:
    """No other process follows the journal."""


def damage_position(content: bytes) -> int | None:
    """The damage in a journal's content for which loading refuses it, or None.

    A torn tail is no damage. For audits, which must not load the journal, since loading rewrites.
    """
    position = 0
    bad_position: int | None = None
    has_format = False
    for size, parsed in _parse_lines(content):
        if parsed is None and bad_position is None:
            bad_position = position
        elif parsed is not None and bad_position is not None:
            return bad_position
        elif parsed is not None and parsed[:2] == (KIND_JOURNAL, _KEY_FORMAT):
            has_format = True
        position += size
    return None if has_format else 0


def read_topics(content: bytes) -> dict[str, TopicMetadata]:
    """The topics in a journal's content, as far as it is sound; changes nothing."""
    return {
        name: topic
        for name, document in read_documents(content, KIND_TOPIC).items()
        if not is_deleted(document) and (topic := parse_topic(name, document)) is not None
    }


def read_documents(content: bytes, kind: str) -> dict[str, Json]:
    """The documents of one kind in a journal's content, as far as it is sound; changes nothing."""
    found: dict[str, Json] = {}
    for _, parsed in _parse_lines(content):
        if parsed is None:
            break
        line_kind, key, document = parsed
        changes: object = [[line_kind, key, document]]
        if line_kind == _KIND_CHANGES:
            changes = document
        for change in changes if isinstance(changes, list) else ():
            match change:
                case [changed_kind, str(changed_key), value] if changed_kind == kind:
                    found[changed_key] = value
    return {key: value for key, value in found.items() if value is not None}


def _format_line(kind: str, key: str, document: Json) -> bytes:
    text = json.dumps({"kind": kind, "key": key, "value": document}, separators=(",", ":")).encode()
    return b"%08x %b\n" % (crc32c(text), text)


def _parse_lines(content: bytes) -> Iterator[tuple[int, tuple[str, str, Json] | None]]:
    """The size and document of each line; the document is None for a bad or unfinished one."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        yield end - start, _parse_line(content[start:end])
        start = end


def _parse_line(line: bytes) -> tuple[str, str, Json] | None:
    text = line[_CRC_DIGITS + 1 : -1]
    if line[-1:] != b"\n" or line[: _CRC_DIGITS + 1] != b"%08x " % crc32c(text):
        return None
    try:
        document = json.loads(text)
    except ValueError:
        # The checksum of nothing is zero: a line of zeros and a space comes this far.
        return None
    match document:
        case {"kind": str(kind), "key": str(key), "value": value}:
            return kind, key, value
    return None
