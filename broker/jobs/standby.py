"""A standby: this broker reads what its bucket has, and takes the bucket over when it is promoted.

    open_standby   at the start: the data directory is made from the bucket
    run            every half second: what the owner has shipped since is appended and visible
    promote        become the owner; the broker then starts again, as an ordinary one

Consumers read here as from any broker, lookups by time included, and see what the bucket has.
Groups have the offsets that were committed at the owner; members of groups here are known in memory
only, and their commits are refused. So are all writes: Produce with NOT_LEADER_OR_FOLLOWER, which
producers retry until the promotion, changes of topics and settings with POLICY_VIOLATION, which is
shown at once. Nothing is compacted, uploaded, or deleted from the bucket.

A promotion is one entry of the bucket's journal, under the next epoch. The former owner can write
no entry after it (`storage.bucket.journal`). Then the last entries before it are applied, and the
broker stops and starts on the directory, which is an ordinary one from then on. It is asked for by
`tidelog promote`, or with `remote.lease.ms` begins by itself when the lease of the owner has ended
(`storage.bucket.lease`), if no entry comes before its own.

`storage.bucket.follower` reads and appends. Loop thread only.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.clocks.clock import Clock
from broker.errors import StartError
from broker.groups.internal_topic import CoordinatorServices
from broker.jobs.pause import Pause
from broker.metrics import RemoteMetrics
from broker.threads import Pool
from broker.topics.registry import CONSUMER_OFFSETS
from config import BrokerConfig
from storage.bucket.clusters import clusters_in
from storage.bucket.emptied import check_followed
from storage.bucket.follower import BucketFollower, Grown, Part
from storage.bucket.journal import BucketJournal, check_owner, in_any_case, read_state
from storage.bucket.lease import LeaseWatch, check_last
from storage.bucket.map import BucketState
from storage.bucket.restore import run_in_order
from storage.bucket.standby_directory import (
    StandbyDataDir,
    StandbyMark,
    is_ordinary,
    prepare_standby,
)
from storage.directory.metadata import KIND_BROKER_OVERRIDES, KIND_TOPIC, Json
from storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    ZERO_UUID,
    format_uuid,
    parse_meta_properties,
)
from storage.disk.files import Files
from storage.errors import ObjectDamaged, ObjectMissing, StorageError, StoreFailed
from storage.remote.engine import BadStoreUrl, open_store
from storage.remote.object_store import ObjectStore

if TYPE_CHECKING:
    from broker.fetch.waiters import FetchWaiters
    from broker.groups.coordinator import GroupCoordinator
    from broker.security.service import Security

logger = logging.getLogger("tidelog.broker.jobs.standby")

INTERVAL_MS: Final = 500

THOROUGH_MS: Final = 5_000
"""How often checkpoints are listed: only a standby that is far behind needs them."""

_TRIES: Final = 4
_PAUSE_MS: Final = 500
_PAUSE_MAX_MS: Final = 10_000


class Opened(NamedTuple):
    """What a standby is made of."""

    data_dir: StandbyDataDir
    store: ObjectStore
    state: BucketState


async def open_standby(
    config: BrokerConfig, files: Files, now_ms: int, threads: Pool
) -> Opened | None:
    """Make the data directory from the bucket; None when it owns the bucket already.

    Raises:
        StartError: the bucket cannot be read, or belongs to another directory than this one.
        DataDirError: this process must not or cannot use the directory.
    """
    url, path = config.remote_storage_url, _path(config)
    if not url:
        raise StartError(
            "remote.standby.enable=true, and there is no bucket to follow",
            "give it as remote.storage.url, or start with --standby URL",
        )
    try:
        if is_ordinary(path, files):
            await threads.run(partial(_check_owner, path, url, files))
            return None
        made = await threads.run(partial(_prepare, config, path, files))
    except (StoreFailed, BadStoreUrl) as error:
        raise StartError(
            f"the bucket of this standby cannot be used: {error}",
            "look at remote.storage.url and at the store, and start again",
        ) from error
    if made is None:
        return None
    mark, state, store = made
    data_dir = StandbyDataDir.open_made(
        path, mark, state, files=files, broker_config=config, now_ms=now_ms
    )
    return Opened(data_dir, store, state)


def _path(config: BrokerConfig) -> str:
    return os.path.abspath(config.data_dir)


def _prepare(
    config: BrokerConfig, path: str, files: Files
) -> tuple[StandbyMark, BucketState, ObjectStore] | None:
    url = config.remote_storage_url
    cluster_id = config.cluster_id or _only_cluster(url)
    store = open_store(url, cluster_id)
    made = prepare_standby(
        path, store, url=url, cluster_id=cluster_id, files=files, run_all=run_in_order
    )
    return None if made is None else (*made, store)


def _only_cluster(url: str) -> str:
    """The cluster in the bucket. Raises StartError, StoreFailed."""
    found = clusters_in(url)
    if len(found) == 1:
        return found[0]
    raise StartError(
        f"the bucket has {len(found)} clusters: {', '.join(found) or 'none'}",
        "set cluster.id to one of them" if found else "start the broker that writes to it first",
    )


def _check_owner(path: str, url: str, files: Files) -> None:
    """Refuse to be the standby on a directory with records of its own.

    One that was promoted owns the bucket, and is served. Raises StartError.
    """
    meta = parse_meta_properties(files.read_all(f"{path}/{META_PROPERTIES_FILE}"))
    try:
        owner_id = read_state(open_store(url, meta.cluster_id)).owner_id
    except StoreFailed as error:
        # Its broker finds out at the first entry that it wants to write.
        logger.warning("the owner of the bucket is not known: %s", error)
        return
    if owner_id != format_uuid(meta.directory_id or ZERO_UUID):
        raise StartError(
            f"{path} has records of its own, and the bucket belongs to data directory "
            f"{owner_id or 'none'}",
            "name a new directory for the standby, which gets all from the bucket",
        )


class Standby:
    """The broker's part of following, and its promotion.

    Attributes:
        promoted: set when the directory is ready to be opened as an ordinary one.
    """

    def __init__(
        self,
        opened: Opened,
        services: CoordinatorServices,
        groups: "GroupCoordinator",
        security: "Security",
        *,
        fetch_waiters: "FetchWaiters",
        live: Clock,
        metrics: RemoteMetrics,
        threads: Pool,
    ) -> None:
        """Follow from what was opened on; `live` is never settable."""
        self.promoted = asyncio.Event()
        self._data_dir = opened.data_dir
        self._store = opened.store
        self._follower = BucketFollower(
            opened.store, opened.state, opened.data_dir, services.clock.wall_ms
        )
        self._topics = services.topics
        self._groups = groups
        self._security = security
        self._group_commit = services.group_commit
        self._fetch_waiters = fetch_waiters
        self._live = live
        self._metrics = metrics
        self._threads = threads
        self._random = services.random
        self._lock = asyncio.Lock()
        self._lease_ms = services.config.remote_lease_ms
        self._watch = LeaseWatch()
        self._metadata: dict[str, dict[str, Json]] = {}
        self._parts: dict[Part, None] = {}
        self._pause = Pause(live, first_ms=_PAUSE_MS, max_ms=_PAUSE_MAX_MS)
        self._thorough_ms = self._followed_ms = live.monotonic_ms()
        for log in self._topics.logs():
            if log.topic == CONSUMER_OFFSETS:
                groups.follow(log.partition)

    async def run(self) -> None:
        """Follow what the bucket has got, unless the store has just failed.

        With a lease this broker takes over if the owner's has ended.
        """
        if self.promoted.is_set() or not self._pause.is_over:
            return
        try:
            async with self._lock:
                if self.promoted.is_set():
                    return  # the directory is complete, and about to be closed
                await self._advance()
                if self._lease_ms:
                    await self._take_over_if_due()
            self._pause.succeeded()
        except StorageError as error:
            self._watch.interrupted()
            pause_ms = self._pause.failed()
            self._metrics.errors["follow"] += 1
            logger.warning(
                "the bucket is not followed, the next try is in %d ms: %s", pause_ms, error
            )

    async def _advance(self) -> None:
        """Read the new entries, and apply them with what an earlier call has left."""
        now_ms = self._live.monotonic_ms()
        is_thorough = now_ms - self._thorough_ms >= THOROUGH_MS
        found = await self._threads.drive(self._follower.read(is_thorough=is_thorough))
        self._watch.seen(self._follower.state, self._live.monotonic_ms())
        if is_thorough:
            self._thorough_ms = now_ms
        for kind, documents in found.metadata.items():
            self._metadata.setdefault(kind, {}).update(documents)
        self._parts |= found.parts
        for kind, documents in list(self._metadata.items()):
            self._data_dir.metadata.take(kind, documents)
            if kind in (KIND_TOPIC, KIND_BROKER_OVERRIDES):
                await self._topics.follow(kind, list(documents))
            else:
                self._security.follow(kind, documents)
            del self._metadata[kind]
        damaged: ObjectDamaged | None = None
        for part in list(self._parts):
            try:
                grown = await self._threads.drive(self._follower.catch_up(part))
            except ObjectDamaged as error:
                # It holds up its own log, not those of others.
                damaged = error
                continue
            del self._parts[part]
            if grown is not None:
                self._show(grown)
        if damaged is not None:
            raise damaged
        self._followed_ms = now_ms

    def _show(self, grown: Grown) -> None:
        log, replaced = grown.log, grown.replaced
        if replaced is not None:
            self._group_commit.log_closed(replaced)
            self._fetch_waiters.log_changed(replaced)
        self._fetch_waiters.data_visible(log, grown.size_bytes)
        if log.has_unsynced_files:
            self._group_commit.mark_dirty(log)
        if log.topic == CONSUMER_OFFSETS:
            self._groups.follow(log.partition)

    def reading(self) -> dict[str, object]:
        """What is followed, and how far."""
        state = self._follower.state
        return {
            "owner": state.owner_id,
            "epoch": state.epoch,
            "entry": state.number,
            "read_ms_ago": self._live.monotonic_ms() - self._followed_ms,
            "lease_ms": self._follower.state.lease_ms,
            "lease_left_ms": self._watch.left_ms(self._follower.state, self._live.monotonic_ms()),
            "promotes_itself": self._lease_ms > 0,
            "promoted": self.promoted.is_set(),
        }

    async def _advance_to_the_end(self) -> None:
        """`_advance`, also where the owner has replaced and deleted what was read a moment ago."""
        for tries_left in reversed(range(_TRIES)):
            # With a look at the checkpoints: the next entries may have come and gone.
            self._thorough_ms = -THOROUGH_MS
            try:
                await self._advance()
                return
            except ObjectMissing:
                if not tries_left:
                    raise

    async def _take_over_if_due(self) -> None:
        """Take over from an owner whose lease has ended, or complete what an error has ended."""
        state = self._follower.state
        if state.owner_id == self._data_dir.directory_id:
            await self._take_over(partial(check_owner, state.owner_id))
        elif self._watch.has_ended(state, self._live.monotonic_ms()):
            number = state.number
            await self._advance_to_the_end()
            if state.number != number:
                return
            logger.warning(
                "data directory %s, the owner of the bucket, has written nothing within its lease "
                "of %d ms: this broker takes over",
                state.owner_id,
                state.lease_ms,
            )
            await self._take_over(partial(check_last, number))

    async def promote(self) -> int:
        """Take the bucket over; returns the epoch. The directory is then closed by a stop.

        Raises StorageError: another call, or a restart, tries again.
        """
        async with self._lock:
            if self.promoted.is_set():
                return self._follower.state.epoch
            await self._advance_to_the_end()
            return await self._take_over(in_any_case)

    async def _take_over(self, check: Callable[[BucketState], None]) -> int:
        """Write the entry, apply all before it, store what an owner has; returns the epoch.

        The caller has the lock and has followed. Raises StorageError, also that of `check`.
        """
        self._data_dir.check_complete()
        state = self._follower.state
        journal = BucketJournal(
            self._store, self._data_dir.directory_id, self._random, lease_ms=self._lease_ms
        )
        journal.state = BucketState(state.number, dict(state.documents), list(state.voids))
        await self._threads.drive(check_followed(journal.state, self._store))
        epoch = await self._threads.drive(journal.take_over(check))
        self._thorough_ms = 0
        while state.number < journal.state.number:
            await self._advance()
        if state.owner_id != self._data_dir.directory_id:
            raise StoreFailed(
                f"data directory {state.owner_id} has taken the bucket over in the meantime, "
                f"epoch {state.epoch}"
            )
        for name in self._data_dir.promote(state):
            logger.warning(
                "%s was set at run time, and names or describes a key store that is not on "
                "this machine: the setting of this broker's start counts",
                name,
            )
        logger.warning("this broker owns the bucket, epoch %d; it starts again", epoch)
        self.promoted.set()
        return epoch
