"""The data directory of a standby: a copy of what a bucket has, until it is promoted.

Owns the directory from its first restore to its promotion. A file, `standby`, names the bucket;
while it is there, nothing in the directory counts: each start makes the directory from the bucket
once more, and an ordinary start refuses it.

| step                                                     | a crash before it                    |
|----------------------------------------------------------|--------------------------------------|
| `standby` is written                                     | the directory was empty, and is      |
| the directory is restored, logs follow the bucket        | the next start restores it again     |
| the bucket is taken over, by the owner's entry           | likewise                             |
| the last entries are applied, epochs and metadata stored | the next start restores it, as owner |
| logs are closed, then `standby` is removed               | likewise                             |

So the take-over has one moment, the entry in the bucket, and what follows can be repeated. Refuses
to know when to follow and when to take over (`storage.bucket.follower`, `broker.jobs.standby`).
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import ClassVar, Final

from config import BrokerConfig
from storage.bucket.emptied import check_followed
from storage.bucket.journal import BucketJournal, check_owner, in_any_case, read_state
from storage.bucket.map import BucketState
from storage.bucket.restore import (
    MappedLog,
    RunAll,
    metadata_in,
    restore,
    run_in_order,
    without_missing_key_stores,
    write_log,
    write_metadata,
)
from storage.directory.claim import LOCK_FILE, STANDBY_FILE, lock_directory
from storage.directory.data_dir import RunAll as RunTickets
from storage.directory.data_dir import Topic
from storage.directory.following import Document, FollowedMetadata, FollowingDataDir
from storage.directory.metadata import FIRST_WORKER, KIND_PRODUCER_IDS, Json
from storage.directory.offset_checkpoints import Hints
from storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    RandomBytes,
    format_uuid,
    parse_uuid,
    random_uuid,
)
from storage.disk.file_names import LOST_AND_FOUND
from storage.disk.files import Files
from storage.disk.steps import Steps, off_loop, run_steps
from storage.errors import (
    DataDirNotWritable,
    FollowsBucket,
    ForeignDataDir,
    HalfWrittenDataDir,
    PolicyViolation,
    StorageFailed,
    StoreFailed,
)
from storage.log.log import Log
from storage.remote.object_store import ObjectStore
from values.dataclasses import dataclass

STANDBY_VERSION: Final = 1

_KEPT: Final = frozenset({LOCK_FILE, LOST_AND_FOUND, STANDBY_FILE})


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyMark:
    """The content of `standby`: the bucket, and the identity of the directory."""

    url: str
    cluster_id: str
    directory_id: bytes


def read_mark(path: str, files: Files) -> StandbyMark | None:
    """What the directory copies; None when it is no standby's.

    Raises HalfWrittenDataDir, OSError.
    """
    try:
        content = files.read_all(f"{path}/{STANDBY_FILE}")
    except FileNotFoundError:
        return None
    try:
        document = json.loads(content)
        if document["version"] == STANDBY_VERSION:
            return StandbyMark(
                url=document["url"],
                cluster_id=document["cluster_id"],
                directory_id=parse_uuid(document["directory_id"]),
            )
        found = f"version {document['version']}, expected {STANDBY_VERSION}"
    except (ValueError, KeyError, TypeError) as error:
        found = repr(error)
    raise HalfWrittenDataDir(
        "the file that names the bucket of a standby cannot be read",
        path=f"{path}/{STANDBY_FILE}",
        found=found,
        cure="remove the directory, all of it is in the bucket, and start on a new one",
    )


def is_ordinary(path: str, files: Files) -> bool:
    """Whether the directory has an identity and is no standby's: its broker serves it as its own.

    A standby that was promoted leaves such a directory.
    """
    return files.exists(f"{path}/{META_PROPERTIES_FILE}") and not files.exists(
        f"{path}/{STANDBY_FILE}"
    )


def make_mark(
    path: str, files: Files, *, url: str, cluster_id: str, random_bytes: RandomBytes = os.urandom
) -> StandbyMark:
    """The mark of a standby's directory, which is written if the directory is empty.

    The caller has locked it. Raises ForeignDataDir, HalfWrittenDataDir, OSError.
    """
    mark = read_mark(path, files)
    if mark is not None and mark.cluster_id == cluster_id:
        return mark
    strangers = [name for name in files.list_directory(path) if name not in _KEPT]
    if strangers or mark is not None:
        raise ForeignDataDir(
            "a standby needs a data directory of its own",
            path=path,
            found=f"the standby of cluster {mark.cluster_id}" if mark else strangers[0],
            cure="name a new directory",
        )
    mark = StandbyMark(url=url, cluster_id=cluster_id, directory_id=random_uuid(random_bytes))
    document = {
        "version": STANDBY_VERSION,
        "url": mark.url,
        "cluster_id": mark.cluster_id,
        "directory_id": format_uuid(mark.directory_id),
    }
    files.replace_atomically(f"{path}/{STANDBY_FILE}", json.dumps(document).encode() + b"\n")
    return mark


def restore_again(
    path: str,
    mark: StandbyMark,
    state: BucketState,
    store: ObjectStore,
    files: Files,
    *,
    run_all: RunAll,
    is_owner: bool,
) -> None:
    """Empty the directory of the mark, then make it from the bucket; with `is_owner` for good.

    The caller has locked it, and taken the bucket over if `is_owner`. Raises StoreFailed, OSError.
    """
    for name in files.list_directory(path):
        if name in _KEPT:
            continue
        if files.is_directory(f"{path}/{name}"):
            files.remove_tree(f"{path}/{name}")
        else:
            files.unlink(f"{path}/{name}")
    restore(
        state,
        store,
        path,
        files,
        cluster_id=mark.cluster_id,
        directory_id=mark.directory_id,
        run_all=run_all,
        is_owner=is_owner,
    )
    if is_owner:
        remove_mark(path, files)


def remove_mark(path: str, files: Files) -> None:
    """Make it an ordinary directory. Raises OSError."""
    files.unlink(f"{path}/{STANDBY_FILE}")
    files.sync_directory(path)


def prepare_standby(
    path: str, store: ObjectStore, *, url: str, cluster_id: str, files: Files, run_all: RunAll
) -> tuple[StandbyMark, BucketState] | None:
    """Make the directory of a standby from the bucket; blocks for the network.

    None when it owns the bucket already: a promotion that a crash has ended is complete now, and
    the directory is an ordinary one.

    Raises:
        DataDirError: this process must not or cannot use the directory.
        StoreFailed: the bucket cannot be read, has no journal, or lacks entries of it.
    """
    lock = lock_directory(path, files)
    try:
        mark = make_mark(path, files, url=url, cluster_id=cluster_id)
        state = read_journal(store)
        is_owner = state.owner_id == format_uuid(mark.directory_id)
        if is_owner:
            state = take_over(store, mark, partial(check_owner, format_uuid(mark.directory_id)))
        else:
            # What the directory has may be newer than the state before a hole.
            run_steps(check_followed(state, store))
        restore_again(path, mark, state, store, files, run_all=run_all, is_owner=is_owner)
    except (OSError, StorageFailed) as error:
        raise DataDirNotWritable(
            "the directory of a standby cannot be made",
            path=path,
            found=str(error),
            cure="check the disk, the permissions and the free space",
        ) from error
    finally:
        lock.release()
    return None if is_owner else (mark, state)


def read_journal(store: ObjectStore) -> BucketState:
    """The map of a bucket that has one. Raises StoreFailed."""
    state = read_state(store)
    if state.number < 0:
        raise StoreFailed(
            "the bucket has no journal yet; start the broker that writes to it first, with this "
            "release"
        )
    return state


def take_over(
    store: ObjectStore, mark: StandbyMark, check: Callable[[BucketState], None] = in_any_case
) -> BucketState:
    """Make the directory of the mark the owner of the bucket; the map.

    Raises StoreFailed, also for a journal with a hole: the directory may be newer than what a
    restore finds. Raises what `check` raises: see `BucketJournal.take_over`.
    """
    journal = BucketJournal(store, format_uuid(mark.directory_id), Random(os.urandom(16)))
    journal.state = read_journal(store)
    run_steps(check_followed(journal.state, store))
    run_steps(journal.take_over(check))
    return journal.state


class _BucketMetadata(FollowedMetadata):
    """The metadata as the bucket has it, without key stores that only the owner's machine has."""

    def __init__(self, files: Files) -> None:
        """Start empty; `files` are those of this machine."""
        super().__init__("the journal of the bucket")
        self._files = files

    def take_all(self, documents: Iterable[Document]) -> dict[str, list[str]]:
        """See `FollowedMetadata.take_all`."""
        return super().take_all(
            (kind, key, without_missing_key_stores(kind, value, self._files))
            for kind, key, value in documents
        )

    def take(self, kind: str, documents: Mapping[str, Json]) -> None:
        """See `FollowedMetadata.take`."""
        files = self._files
        super().take(
            kind,
            {
                key: without_missing_key_stores(kind, value, files)
                for key, value in documents.items()
            },
        )

    def put_all(
        self, kind: str, documents: Mapping[str, Json], *, erase_former: bool = False
    ) -> None:
        """Refuse: only the owner of the bucket changes the metadata.

        Raises:
            FollowsBucket: a producer wants an id, and will try again.
            PolicyViolation: anything else, which people ask for.
        """
        refusal = FollowsBucket()
        raise refusal if kind == KIND_PRODUCER_IDS else PolicyViolation(str(refusal))


class StandbyDataDir(FollowingDataDir):
    """The open directory of a standby; its logs refuse appends of clients."""

    is_standby: ClassVar = True
    _is_promoted = False

    @classmethod
    def open_made(
        cls,
        path: str,
        mark: StandbyMark,
        state: BucketState,
        *,
        files: Files,
        broker_config: BrokerConfig,
        now_ms: int,
    ) -> "StandbyDataDir":
        """Open what `prepare_standby` has made.

        Raises:
            DataDirError: this process must not or cannot use the directory. The lock is released.
        """
        metadata = _BucketMetadata(files)
        metadata.take_all(metadata_in(state))
        return cls.follow(
            path,
            metadata,
            worker=FIRST_WORKER,
            files=files,
            broker_config=replace(broker_config, cluster_id=mark.cluster_id),
            now_ms=now_ms,
        )

    def rebuild(
        self, topic: Topic, partition: int, mapped: MappedLog, store: ObjectStore, now_ms: int
    ) -> Steps[Log]:
        """Make one partition from the bucket once more; returns the log that it replaces.

        Raises StoreFailed, StorageFailed.
        """
        old = topic.partitions[partition]
        assert old is not None
        old.abandon()
        try:
            # Not as a deleted one: its objects are those of the new one.
            yield from off_loop(partial(self._files.remove_tree, old.path))
            path = self._directories.make(topic.name, partition, topic.topic_id)
            yield from off_loop(
                partial(
                    write_log, mapped, path, store, self._files, run_in_order, begins_epoch=False
                )
            )
        except OSError as error:
            raise StorageFailed("follow", old.path, str(error)) from error
        topic.partitions[partition] = self._open_log(topic, partition, Hints(), now_ms, False)
        return old

    def _open_log(
        self, topic: Topic, partition: int, hints: Hints, now_ms: int, is_clean: bool
    ) -> Log:
        log = super()._open_log(topic, partition, hints, now_ms, is_clean)
        if log.offline is None:
            log.refusal = FollowsBucket()
            log.show_end()
        return log

    def check_complete(self) -> None:
        """Accept the logs as those of an owner. Raises StorageFailed."""
        for log in self._logs():
            if log.offline is not None:
                # As the owner it would give its offsets once more, to other records.
                reason = "it is offline, and may lack records of the bucket; start the standby "
                reason += "again, which makes its directory from the bucket, then promote it"
                raise StorageFailed("promote", log.path, reason)

    def promote(self, state: BucketState) -> list[str]:
        """Store what an ordinary directory has: metadata, and an epoch of each log's own.

        The bucket is taken over, and all of `state` applied. `close` completes it. Returns the
        settings that were left out, see `write_metadata`. Raises StorageFailed.
        """
        self.check_complete()
        try:
            for log in self._logs():
                log.leader_epochs.assign(
                    max(log.leader_epochs.latest_epoch, 0) + 1, log.log_end_offset
                )
            left_out = write_metadata(state, self.path, self._files)
        except OSError as error:
            raise StorageFailed("promote", self.path, str(error)) from error
        self._is_promoted = True
        return left_out

    def close(self, now_ms: int, *, run_all: RunTickets | None = None) -> None:
        """See `DataDir.close`; after a promotion it is an ordinary directory.

        Raises:
            StorageFailed: the mark of a standby could not be removed.
        """
        super().close(now_ms, run_all=run_all)
        if self._is_promoted:
            try:
                remove_mark(self.path, self._files)
            except OSError as error:
                raise StorageFailed("promote", self.path, str(error)) from error
