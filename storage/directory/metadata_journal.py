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

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.records.checksums import crc32c
from storage.disk.checkpoints import CorruptCheckpoint, format_uuid, parse_uuid
from storage.disk.files import Files, sync_file
from storage.errors import DiskFull, ForeignDataDir, HalfWrittenDataDir, StorageFailed

JOURNAL_FILE: Final = "metadata.journal"
JOURNAL_VERSION: Final = 1

KIND_TOPIC: Final = "topic"
KIND_BROKER_OVERRIDES: Final = "broker-overrides"
KIND_PRODUCER_IDS: Final = "producer-ids"
KIND_GROUP_OVERRIDES: Final = "group-overrides"

_KIND_JOURNAL: Final = "journal"
_KIND_CHANGES: Final = "changes"
"""A line with several changes, [kind, key, value] each; all of them take effect, or none."""

_KEY_FORMAT: Final = "format"
_ONLY_KEY: Final = ""

_CRC_DIGITS: Final = 8
_SUPERSEDED_LINES_MAX: Final = 10_000
"""Superseded lines after which an open journal is rewritten."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """The facts about a topic apart from its records. `topic_id` is 16 bytes."""

    name: str
    topic_id: bytes
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)


class MetadataJournal:
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
        adopted_documents: Iterable[tuple[str, Json]] = (),
    ) -> None:
        """Load the journal of `directory`, cutting a torn tail, or begin a new one.

        A new journal begins with the topics in `adopted` and with the documents of the kinds that
        have only one. After a crash the file has all of them, or there is no file.

        Raises:
            HalfWrittenDataDir: the file is damaged before its end.
            ForeignDataDir: its format is newer than this program.
            OSError: it could not be read or written.
        """
        self.path = f"{directory}/{JOURNAL_FILE}"
        self._files = files
        self._failed: str | None = None
        self._documents: dict[tuple[str, str], Json] = {}
        self._lines = 0
        self.bytes_cut = 0
        self.is_new = not files.exists(self.path)
        if self.is_new:
            self._documents[_KIND_JOURNAL, _KEY_FORMAT] = {"version": JOURNAL_VERSION}
            for topic in adopted:
                self._documents[KIND_TOPIC, topic.name] = dict(_format_topic(topic))
            for kind, document in adopted_documents:
                self._documents[kind, _ONLY_KEY] = document
            self._rewrite()
        else:
            self._load()
        self._file = files.open(self.path)

    # --- contents -------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicMetadata]:
        """The topics by name, in the order in which they were created."""
        return {name: topic for name, topic, is_deleted in self._all_topics() if not is_deleted}

    def deleted_topics(self) -> list[TopicMetadata]:
        """The deleted topics whose directories may still have to be renamed."""
        return [topic for _, topic, is_deleted in self._all_topics() if is_deleted]

    @property
    def broker_overrides(self) -> dict[str, str]:
        """The dynamic settings of the broker."""
        document = self._documents.get((KIND_BROKER_OVERRIDES, _ONLY_KEY), {})
        strings = _parse_strings(document)
        if strings is None:
            raise self._unexpected(KIND_BROKER_OVERRIDES, document)
        return strings

    def group_overrides(self) -> dict[str, dict[str, str]]:
        """The groups' own settings, by group id; groups without any are left out."""
        found: dict[str, dict[str, str]] = {}
        for (kind, group_id), document in self._documents.items():
            if kind == KIND_GROUP_OVERRIDES:
                strings = _parse_strings(document)
                if strings is None:
                    raise self._unexpected(group_id, document)
                found[group_id] = strings
        return found

    @property
    def next_producer_id(self) -> int:
        """The first producer id that was never assigned."""
        document = self._documents.get((KIND_PRODUCER_IDS, _ONLY_KEY), 0)
        if not isinstance(document, int) or document < 0:
            raise self._unexpected(KIND_PRODUCER_IDS, document)
        return document

    # --- changes, durable on return -------------------------------------------------------------

    def put_topic(self, topic: TopicMetadata) -> None:
        """Create or change a topic."""
        assert topic.partitions > 0, f"{topic.name} without partitions"
        self.put(KIND_TOPIC, topic.name, _format_topic(topic))

    def mark_deleted(self, topic: TopicMetadata) -> None:
        """Delete a topic: it is gone from here on, though its directories may still exist."""
        self.put(KIND_TOPIC, topic.name, {**_format_topic(topic), "deleted": True})

    def remove_topic(self, name: str) -> None:
        """Drop a deleted topic, whose directories have been renamed."""
        self.put(KIND_TOPIC, name, None)

    def set_broker_overrides(self, overrides: Mapping[str, str]) -> None:
        """Replace all dynamic settings of the broker."""
        self.put(KIND_BROKER_OVERRIDES, _ONLY_KEY, dict(overrides))

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace all own settings of a group; they stay when the group itself is removed."""
        self.put(KIND_GROUP_OVERRIDES, group_id, dict(overrides) or None)

    def allocate_producer_ids(self, count: int) -> range:
        """Reserve producer ids that are unassigned; none is reserved twice, even after a crash."""
        assert count > 0
        first = self.next_producer_id
        self.put(KIND_PRODUCER_IDS, _ONLY_KEY, first + count)
        return range(first, first + count)

    def documents(self, kind: str) -> dict[str, Json]:
        """The documents of one kind, by key."""
        return {key: value for (known, key), value in self._documents.items() if known == kind}

    def put(self, kind: str, key: str, document: Json) -> None:
        """Set one document, or remove it with None.

        Raises:
            DiskFull: nothing has changed, a retry may succeed.
            StorageFailed: the journal is unusable until the broker starts again.
        """
        self.put_all(kind, {key: document})

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
        if self._failed is not None:
            raise StorageFailed("change", self.path, f"an earlier write failed: {self._failed}")
        changes: list[Json] = [[kind, key, value] for key, value in documents.items()]
        if len(documents) == 1:
            ((key, value),) = documents.items()
            line = _format_line(kind, key, value)
        else:
            line = _format_line(_KIND_CHANGES, _ONLY_KEY, changes)
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
        superseded = self._lines - len(self._documents)
        if superseded > _SUPERSEDED_LINES_MAX or (erase_former and superseded):
            self._compact()

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
        document = self._documents.get((_KIND_JOURNAL, _KEY_FORMAT))
        version = document.get("version") if isinstance(document, dict) else None
        if version is None:
            raise HalfWrittenDataDir(
                "the metadata journal does not begin with its format",
                path=self.path,
                found=f"{len(content)} bytes",
                cure="restore the file from a copy; the logs are untouched",
            )
        if version != JOURNAL_VERSION:
            raise ForeignDataDir(
                "the metadata journal has a format that this program does not know",
                path=self.path,
                found=f"version {version}, expected {JOURNAL_VERSION}",
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

    def _all_topics(self) -> Iterator[tuple[str, TopicMetadata, bool]]:
        for (kind, key), document in self._documents.items():
            if kind == KIND_TOPIC:
                topic = _parse_topic(key, document)
                if topic is None:
                    raise self._unexpected(key, document)
                yield key, topic, _is_deleted(document)

    def _unexpected(self, key: str, document: Json) -> HalfWrittenDataDir:
        return HalfWrittenDataDir(
            f"the metadata journal says something impossible of {key!r}",
            path=self.path,
            found=json.dumps(document),
            cure="restore the file from a copy",
        )


def damage_position(content: bytes) -> int | None:
    """The damage in a journal's content for which loading refuses it, or None.

    A torn tail is no damage. For audits, which must not load the journal, since loading rewrites.
    """
    position = 0
    bad_position: int | None = None
    for size, parsed in _parse_lines(content):
        if parsed is None and bad_position is None:
            bad_position = position
        elif parsed is not None and bad_position is not None:
            return bad_position
        position += size
    is_headless = bad_position == 0 or not content
    return 0 if is_headless else None


def read_topics(content: bytes) -> dict[str, TopicMetadata]:
    """The topics in a journal's content, as far as it is sound; changes nothing."""
    topics: dict[str, TopicMetadata] = {}
    for _, parsed in _parse_lines(content):
        if parsed is None:
            break
        kind, name, document = parsed
        if kind == KIND_TOPIC:
            topics.pop(name, None)
            topic = _parse_topic(name, document)
            if topic is not None and not _is_deleted(document):
                topics[name] = topic
    return topics


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


def _is_deleted(document: Json) -> bool:
    return isinstance(document, dict) and document.get("deleted") is True


def _parse_topic(name: str, document: Json) -> TopicMetadata | None:
    match document:
        case {"id": str(topic_id), "partitions": int(partitions), "overrides": overrides}:
            strings = _parse_strings(overrides)
            if strings is not None:
                with contextlib.suppress(CorruptCheckpoint):
                    return TopicMetadata(
                        name=name,
                        topic_id=parse_uuid(topic_id),
                        partitions=partitions,
                        overrides=strings,
                    )
    return None


def _parse_strings(document: Json) -> dict[str, str] | None:
    if not isinstance(document, dict):
        return None
    strings = {name: text for name, text in document.items() if isinstance(text, str)}
    return strings if len(strings) == len(document) else None


def _format_topic(topic: TopicMetadata) -> dict[str, Json]:
    return {
        "id": format_uuid(topic.topic_id),
        "partitions": topic.partitions,
        "overrides": dict(topic.overrides),
    }


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
