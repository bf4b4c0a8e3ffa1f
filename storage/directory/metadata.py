"""The broker's metadata as a map: (kind, key) to a JSON document, and what the documents mean.

Owns the form of the documents of topics, overrides and producer ids, and keeps those of other kinds
as they are. Two classes keep the map up to date: `storage.directory.metadata_journal` writes it to
a file, `storage.directory.following` copies the map of another process. Refuses to know both.
"""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from storage.disk.checkpoints import CorruptCheckpoint, format_uuid, parse_uuid
from storage.errors import HalfWrittenDataDir
from values.dataclasses import dataclass

KIND_TOPIC: Final = "topic"
KIND_BROKER_OVERRIDES: Final = "broker-overrides"
KIND_PRODUCER_IDS: Final = "producer-ids"
KIND_GROUP_OVERRIDES: Final = "group-overrides"

KIND_JOURNAL: Final = "journal"
"""The kind of the document with the format; it describes the file and is no metadata."""

ONLY_KEY: Final = ""
"""The key of a document that is the only one of its kind."""

FIRST_WORKER: Final = 1
"""The worker that owns the metadata, and every partition that is assigned to no other one."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """The facts about a topic apart from its records. `topic_id` is 16 bytes.

    `workers` is the worker of each partition; empty when the first one has them all.
    """

    name: str
    topic_id: bytes
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    workers: tuple[int, ...] = ()

    def worker_of(self, partition: int) -> int:
        """The worker that keeps the partition."""
        return self.workers[partition] if self.workers else FIRST_WORKER

    @property
    def is_tiered(self) -> bool:
        """Whether closed segments may be in an object store only."""
        return self.overrides.get("remote.storage.enable") == "true"

    def of_worker(self, worker: int) -> list[int]:
        """The partitions that the worker keeps."""
        return [number for number in range(self.partitions) if self.worker_of(number) == worker]


class Metadata(ABC):
    """The map in memory.

    Attributes:
        path: where it comes from, for messages.
        refusal: why nothing may change any more, or None.
    """

    def __init__(self, path: str) -> None:
        """Start empty."""
        self.path = path
        self.refusal: str | None = None
        self.bytes_cut = 0
        self._documents: dict[tuple[str, str], Json] = {}

    @abstractmethod
    def put_all(
        self, kind: str, documents: Mapping[str, Json], *, erase_former: bool = False
    ) -> None:
        """Set documents of one kind, all or none, durably; None removes one.

        Raises:
            StorageFailed: they could not be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is open; every change was durable already."""

    # --- contents -------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicMetadata]:
        """The topics by name, in the order in which they were created."""
        return dict(self._parsed_topics(deleted=False))

    def deleted_topics(self) -> list[TopicMetadata]:
        """The deleted topics whose directories may still have to be renamed."""
        return [topic for _, topic in self._parsed_topics(deleted=True)]

    def is_topic_deleted(self, name: str) -> bool:
        """Whether a topic is one of `deleted_topics`; costs one look-up."""
        return is_deleted(self._documents.get((KIND_TOPIC, name)))

    @property
    def broker_overrides(self) -> dict[str, str]:
        """The dynamic settings of the broker."""
        document = self._documents.get((KIND_BROKER_OVERRIDES, ONLY_KEY), {})
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
        document = self._documents.get((KIND_PRODUCER_IDS, ONLY_KEY), 0)
        if not isinstance(document, int) or document < 0:
            raise self._unexpected(KIND_PRODUCER_IDS, document)
        return document

    # --- changes, durable on return -------------------------------------------------------------

    def put_topic(self, topic: TopicMetadata) -> None:
        """Create or change a topic."""
        assert topic.partitions > 0, f"{topic.name} without partitions"
        self.put(KIND_TOPIC, topic.name, format_topic(topic))

    def mark_deleted(self, topic: TopicMetadata) -> None:
        """Delete a topic: it is gone from here on, though its directories may still exist."""
        self.put(KIND_TOPIC, topic.name, {**format_topic(topic), "deleted": True})

    def remove_topic(self, name: str) -> None:
        """Drop a deleted topic, whose directories have been renamed."""
        self.put(KIND_TOPIC, name, None)

    def set_broker_overrides(
        self, overrides: Mapping[str, str], *, erase_former: bool = False
    ) -> None:
        """Replace all dynamic settings of the broker."""
        documents: dict[str, Json] = {ONLY_KEY: dict(overrides)}
        self.put_all(KIND_BROKER_OVERRIDES, documents, erase_former=erase_former)

    def set_group_overrides(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace all own settings of a group; they stay when the group itself is removed."""
        self.put(KIND_GROUP_OVERRIDES, group_id, dict(overrides) or None)

    def allocate_producer_ids(self, count: int) -> range:
        """Reserve producer ids that are unassigned; none is reserved twice, even after a crash."""
        assert count > 0
        first = self.next_producer_id
        self.put(KIND_PRODUCER_IDS, ONLY_KEY, first + count)
        assert self.next_producer_id == first + count, "the ids that follow would be given twice"
        return range(first, first + count)

    def everything(self) -> dict[tuple[str, str], Json]:
        """A copy of the map, without the document that describes the file."""
        return {key: value for key, value in self._documents.items() if key[0] != KIND_JOURNAL}

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

    # --- internals ------------------------------------------------------------------------------

    def _parsed_topics(self, *, deleted: bool) -> Iterator[tuple[str, TopicMetadata]]:
        for (kind, key), document in self._documents.items():
            if kind == KIND_TOPIC and is_deleted(document) is deleted:
                topic = parse_topic(key, document)
                if topic is None:
                    raise self._unexpected(key, document)
                yield key, topic

    def _unexpected(self, key: str, document: Json) -> HalfWrittenDataDir:
        return HalfWrittenDataDir(
            f"the metadata journal says something impossible of {key!r}",
            path=self.path,
            found=json.dumps(document),
            cure="restore the file from a copy",
        )


def is_deleted(document: Json) -> bool:
    """Whether the document of a topic says that it is deleted."""
    return isinstance(document, dict) and document.get("deleted") is True


def parse_topic(name: str, document: Json) -> TopicMetadata | None:
    """The topic of a document, or None if the document makes no sense."""
    match document:
        case {"id": str(topic_id), "partitions": int(partitions), "overrides": overrides}:
            strings = _parse_strings(overrides)
            assert isinstance(document, dict)
            workers = _parse_workers(document.get("workers"), partitions)
            if strings is not None and workers is not None:
                with contextlib.suppress(CorruptCheckpoint):
                    return TopicMetadata(
                        name=name,
                        topic_id=parse_uuid(topic_id),
                        partitions=partitions,
                        overrides=strings,
                        workers=workers,
                    )
    return None


def _parse_strings(document: Json) -> dict[str, str] | None:
    if not isinstance(document, dict):
        return None
    strings = {name: text for name, text in document.items() if isinstance(text, str)}
    return strings if len(strings) == len(document) else None


def format_topic(topic: TopicMetadata) -> dict[str, Json]:
    """The document of a topic."""
    document: dict[str, Json] = {
        "id": format_uuid(topic.topic_id),
        "partitions": topic.partitions,
        "overrides": dict(topic.overrides),
    }
    if any(worker != FIRST_WORKER for worker in topic.workers):
        document["workers"] = list(topic.workers)
    return document


def _parse_workers(document: Json, partitions: int) -> tuple[int, ...] | None:
    """The worker of each partition, empty without the field; None if it makes no sense."""
    if document is None:
        return ()
    if not isinstance(document, list) or len(document) != partitions:
        return None
    workers = tuple(number for number in document if isinstance(number, int) and number > 0)
    return workers if len(workers) == partitions else None
