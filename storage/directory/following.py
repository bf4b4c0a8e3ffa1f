"""The data directory of a worker that follows the metadata of the first one.

Owns the difference to `DataDir`: the metadata comes from another process, change by change, and is
never written here. The partitions, their checkpoints, the lock and the clean-stop marker are as in
any data directory. Refuses to know how the changes arrive.

| change of a topic's document       | done here                                              |
|------------------------------------|--------------------------------------------------------|
| new                                | the directories of our partitions are made             |
| more partitions                    | likewise                                               |
| fewer partitions: growth is undone | the last ones are deleted                              |
| other settings                     | logs reconfigured                                      |
| marked as deleted                  | directories renamed, removed later                     |
| gone, or another id, without mark  | directories are kept as `-stray`: no deletion was seen |
"""

import os
from collections.abc import Iterable, Mapping
from typing import ClassVar, Self, TypeAlias

from config import BrokerConfig, ConfigErrors, topic_config
from storage.directory.claim import claim_directory, released_on_failure
from storage.directory.data_dir import DataDir, Topic
from storage.directory.metadata import (
    KIND_BROKER_OVERRIDES,
    KIND_TOPIC,
    Json,
    Metadata,
    TopicMetadata,
)
from storage.disk.checkpoints import RandomBytes
from storage.disk.files import Files
from storage.disk.steps import Steps
from storage.errors import ForeignDataDir, StorageFailed

Document: TypeAlias = tuple[str, str, Json]
"""Kind, key and value."""


class FollowedMetadata(Metadata):
    """A copy of the first worker's metadata."""

    def __init__(self, path: str = "the metadata of worker 1") -> None:
        """Start empty."""
        super().__init__(path)

    def take_all(self, documents: Iterable[Document]) -> dict[str, list[str]]:
        """Replace the whole copy; returns the keys that differ now, by kind."""
        before = self._documents
        self._documents = {(kind, key): value for kind, key, value in documents}
        changed: dict[str, list[str]] = {}
        for kind, key in before.keys() | self._documents.keys():
            if before.get((kind, key)) != self._documents.get((kind, key)):
                changed.setdefault(kind, []).append(key)
        return changed

    def take(self, kind: str, documents: Mapping[str, Json]) -> None:
        """Apply one change."""
        for key, value in documents.items():
            if value is None:
                self._documents.pop((kind, key), None)
            else:
                self._documents[kind, key] = value

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic of that name, unless it is deleted."""
        return self.topics().get(name) if (KIND_TOPIC, name) in self._documents else None

    def put_all(
        self, kind: str, documents: Mapping[str, Json], *, erase_former: bool = False
    ) -> None:
        """Refuse: only the first worker changes the metadata.

        Raises:
            StorageFailed: always.
        """
        raise StorageFailed("change", self.path, "only worker 1 changes it")

    def close(self) -> None:
        """There is nothing to close."""


class FollowingDataDir(DataDir):
    """The open directory of a worker that follows."""

    metadata: FollowedMetadata
    is_standby: ClassVar = False

    @classmethod
    def follow(
        cls,
        path: str,
        metadata: FollowedMetadata,
        *,
        worker: int,
        files: Files,
        broker_config: BrokerConfig,
        now_ms: int,
        random_bytes: RandomBytes = os.urandom,
    ) -> Self:
        """Open the directory with our logs, recovered where the last stop was not clean.

        Raises:
            DataDirError: this process must not or cannot use the directory. The lock is released.
        """
        claim = claim_directory(
            path,
            files=files,
            config=broker_config,
            random_bytes=random_bytes,
            is_standby=cls.is_standby,
        )
        with released_on_failure(claim, "the directory that follows"):
            if claim.meta.cluster_id != broker_config.cluster_id:
                raise ForeignDataDir(
                    "the directory that follows belongs to another cluster",
                    path=path,
                    found=f"{claim.meta.cluster_id}, expected {broker_config.cluster_id}",
                    cure="move it away; it is no part of this data directory",
                )
            self = cls(
                claim,
                metadata,
                files=files,
                broker_config=broker_config,
                random_bytes=random_bytes,
                worker=worker,
            )
            self._load(now_ms, lambda loaded, total: None)
        return self

    def follow_change(self, kind: str, keys: Iterable[str], now_ms: int) -> Steps[None]:
        """Do what the changed documents of one kind ask for.

        Raises:
            StorageFailed: directories could not be made or renamed; those of other topics were.
        """
        if kind == KIND_BROKER_OVERRIDES:
            self.reload(self.broker_config)
        elif kind == KIND_TOPIC:
            deleted = {topic.name: topic for topic in self.metadata.deleted_topics()}
            failure: StorageFailed | None = None
            for name in keys:
                try:
                    yield from self._follow_topic(name, deleted.get(name), now_ms)
                except StorageFailed as error:
                    failure = error
            if failure is not None:
                raise failure

    def _follow_topic(self, name: str, mark: TopicMetadata | None, now_ms: int) -> Steps[None]:
        """Do what the changed document of a topic asks for; `mark` if it is marked as deleted."""
        topic = self.topics.get(name)
        metadata = self.metadata.topic(name)
        if topic is not None and (metadata is None or metadata.topic_id != topic.topic_id):
            is_marked = self.is_standby or (mark is not None and mark.topic_id == topic.topic_id)
            self._remove(topic, now_ms, is_marked=is_marked)
            topic = None
        if metadata is not None and topic is None:
            yield from self._make(metadata, now_ms)
        elif metadata is not None and topic is not None:
            yield from self._change(topic, metadata, now_ms)

    def _make(self, metadata: TopicMetadata, now_ms: int) -> Steps[None]:
        topic = self._topic(metadata)
        mine = metadata.of_worker(self.worker)
        self._checkpoints.remove_entries(metadata.name, mine, self._logs())
        topic.partitions = yield from self._make_partitions(topic, metadata, now_ms)
        self.topics[topic.name] = topic

    def _change(self, topic: Topic, metadata: TopicMetadata, now_ms: int) -> Steps[None]:
        before = len(topic.partitions)
        if metadata.partitions > before:
            added = range(before, metadata.partitions)
            self._checkpoints.remove_entries(topic.name, added, self._logs())
            topic.partitions += yield from self._make_partitions(topic, metadata, now_ms)
        elif metadata.partitions < before:
            for log in topic.partitions[metadata.partitions :]:
                if log is not None:
                    log.abandon()
            del topic.partitions[metadata.partitions :]
            dropped = range(metadata.partitions, before)
            self._rename_deleted(topic.name, dropped, now_ms, delay_ms=0)
        topic.workers = metadata.workers
        if topic.overrides != metadata.overrides:
            topic.overrides = dict(metadata.overrides)
            try:
                config = topic_config(topic.overrides, self.broker_config, is_stored=True)
            except ConfigErrors:  # the first worker has checked them
                return
            self._reconfigure(topic, config)

    def _remove(self, topic: Topic, now_ms: int, *, is_marked: bool) -> None:
        del self.topics[topic.name]
        for log in topic.logs:
            log.abandon()
        if is_marked:
            delay_ms = topic.config.file_delete_delay_ms
            self._rename_deleted(
                topic.name, range(len(topic.partitions)), now_ms, delay_ms=delay_ms
            )
            return
        for log in topic.logs:
            self._directories.set_aside(topic.name, log.partition)
        self._directories.sync()

    def _rename_deleted(
        self, name: str, partitions: Iterable[int], now_ms: int, *, delay_ms: int
    ) -> None:
        try:
            self._directories.delete(name, partitions, now_ms, delay_ms=delay_ms)
            self._directories.sync()
        except OSError as error:
            raise StorageFailed("delete", f"{self.path}/{name}", str(error)) from error
