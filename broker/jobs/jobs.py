"""The broker's background jobs, each in a few lines over its collaborators.

| job           | interval                                  | what it does                   |
|---------------|-------------------------------------------|--------------------------------|
| sweep         | 1 s                                       | idle, trickling, stalled peers |
| coordinators  | 1 s                                       | offsets, transactions by time  |
| loop-lag      | 0.5 s                                     | how late the event loop is     |
| group-lag     | 15 s, with a metrics port                 | samples for the trend of lags  |
| clock         | 1 s                                       | notice that it was set         |
| flush         | 1 s                                       | `flush.ms` under `os`          |
| retention     | `log.retention.check.interval.ms`         | segments by age and size       |
| producer-ids  | `producer.id.expiration.check.interval.ms`| expire idle producers          |
| cleaner       | `log.cleaner.backoff.ms`                  | compact what is dirty          |
| segment-stats | 60 s                                      | statistics of closed segments  |
| checkpoint    | `log.flush.offset.checkpoint.interval.ms` | recovery points, log starts    |
| pending-files | 10 s                                      | unlink what was renamed away   |
| certificates  | 10 s                                      | read changed ones, warn        |
| identity-keys | 1 s                                       | read keys that tokens need     |
| tiering       | 1 s                                       | uploads to the object store    |
| tiering-watch | 1 s                                       | what waits for it; local room  |
| bucket        | 0.2 s                                     | the bucket's journal and tails |
| standby       | 0.5 s                                     | what the owner has shipped     |

Retention, producer-ids, cleaner and pending-files follow the broker's clock, which may be settable
(`broker.clocks.settable_clock`). The others serve sockets and the disk, and follow the real one.

`broker.jobs.scheduler` schedules and supervises; storage decides what may be deleted.
"""

import asyncio
import logging
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from broker.clocks.clock import Clock
from broker.clocks.trusted_clock import TrustedClock
from broker.groups.offsets.lag import SAMPLE_INTERVAL_MS
from broker.jobs.certificates import INTERVAL_MS as CERTIFICATES_INTERVAL_MS
from broker.jobs.certificates import CertificateWatch
from broker.jobs.cleaner import Cleaner
from broker.jobs.identity_keys import INTERVAL_MS as IDENTITY_KEYS_INTERVAL_MS
from broker.jobs.identity_keys import IdentityKeysWatch
from broker.jobs.scheduler import JobScheduler
from storage.errors import StorageError
from storage.log.segment_stats import collect_statistics
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.fetch.waiters import FetchWaiters
    from broker.group_commit import GroupCommit
    from broker.groups.coordinator import GroupCoordinator
    from broker.groups.offsets.lag import GroupLag
    from broker.jobs.bucket import BucketWriter
    from broker.jobs.standby import Standby
    from broker.jobs.tiering import Tiering
    from broker.metrics import Metrics
    from broker.net.connection import Connections
    from broker.security.service import Security
    from broker.threads import Pool
    from broker.topics.registry import TopicRegistry
    from broker.transactions.coordinator import TransactionCoordinator
    from config import BrokerConfig
    from storage.directory.data_dir import DataDir
    from storage.log.log import Log

logger = logging.getLogger("tidelog.broker.jobs.jobs")

SWEEP_INTERVAL_MS = 1000
COORDINATOR_INTERVAL_MS = 1000
LOOP_LAG_INTERVAL_MS = 500
CLOCK_INTERVAL_MS = 1000
FLUSH_INTERVAL_MS = 1000
PENDING_FILES_INTERVAL_MS = 10_000
SEGMENT_STATS_INTERVAL_MS = 60_000

STATS_REST: Final = 9
"""The rest after reading a part of a segment for its statistics, as a multiple of its duration."""


@dataclass(kw_only=True)
class BackgroundJobs:
    """The jobs of one broker; `broker.node` starts and stops their scheduler.

    Calls that block are made in `threads`.
    """

    config: "BrokerConfig"
    clock: Clock
    live: Clock
    time: TrustedClock
    data_dir: "DataDir"
    topics: "TopicRegistry"
    group_commit: "GroupCommit"
    fetch_waiters: "FetchWaiters"
    connections: "Connections"
    groups: "GroupCoordinator"
    group_lag: "GroupLag"
    transactions: "TransactionCoordinator"
    metrics: "Metrics"
    threads: "Pool"
    certificates: CertificateWatch
    security: "Security"
    identity_keys: IdentityKeysWatch
    tiering: "Tiering | None" = None
    bucket: "BucketWriter | None" = None
    standby: "Standby | None" = None

    def __post_init__(self) -> None:
        """Start without a memory of earlier runs."""
        self._cleaner = Cleaner(
            self.topics.logs,
            self.time.now_ms,
            map_bytes=lambda: self.topics.broker_config.log_cleaner_dedupe_buffer_size,
            metrics=self.metrics,
            threads=self.threads,
            tiering=self.tiering,
        )
        self._unreadable_segments: WeakKeyDictionary[Log, set[int]] = WeakKeyDictionary()
        self._dirty_since_ms: dict[Log, int] = {}
        self._held_by_future: dict[Log, int] = {}

    def schedule(self, scheduler: JobScheduler) -> None:
        """Put every job into `scheduler`."""
        config = self.config
        scheduler.add("sweep", SWEEP_INTERVAL_MS, self.connections.sweep)
        is_first = self.data_dir.may_change and self.standby is None
        if is_first:
            scheduler.add("coordinators", COORDINATOR_INTERVAL_MS, self.tick_coordinators)
        scheduler.add("loop-lag", LOOP_LAG_INTERVAL_MS, self.measure_loop_lag)
        if config.metrics_listener is not None:
            scheduler.add("group-lag", SAMPLE_INTERVAL_MS, self.sample_group_lag)
        scheduler.add("clock", CLOCK_INTERVAL_MS, self.time.now_ms)
        scheduler.add("flush", FLUSH_INTERVAL_MS, self.flush_by_age)
        clock = self.clock
        scheduler.add(
            "retention", config.log_retention_check_interval_ms, self.delete_expired, clock=clock
        )
        scheduler.add(
            "producer-ids",
            config.producer_id_expiration_check_interval_ms,
            self.expire_producer_ids,
            clock=clock,
        )
        if config.log_cleaner_enable:
            scheduler.add("cleaner", self._cleaner_backoff_ms, self._cleaner.run, clock=clock)
        scheduler.add("checkpoint", config.log_flush_offset_checkpoint_interval_ms, self.checkpoint)
        scheduler.add("segment-stats", SEGMENT_STATS_INTERVAL_MS, self.collect_segment_stats)
        scheduler.add(
            "pending-files", PENDING_FILES_INTERVAL_MS, self.delete_pending_files, clock=clock
        )
        scheduler.add("certificates", CERTIFICATES_INTERVAL_MS, self.certificates.run)
        if self.security.tokens.are_enabled and is_first:
            scheduler.add(
                "delegation-tokens",
                config.delegation_token_expiry_check_interval_ms,
                self.remove_expired_tokens,
            )
        if self.identity_keys:
            scheduler.add("identity-keys", IDENTITY_KEYS_INTERVAL_MS, self.identity_keys.run)
        if self.tiering is not None:
            from broker.jobs.tiering import INTERVAL_MS as TIERING_INTERVAL_MS

            scheduler.add("tiering", TIERING_INTERVAL_MS, self.tiering.run)
            scheduler.add("tiering-watch", TIERING_INTERVAL_MS, self.tiering.watch)
        if self.bucket is not None:
            from broker.jobs.bucket import INTERVAL_MS as BUCKET_INTERVAL_MS

            scheduler.add("bucket", BUCKET_INTERVAL_MS, self.bucket.run)
            self.group_commit.when_held = partial(scheduler.hurry, "bucket")

        if self.standby is not None:
            from broker.jobs.standby import INTERVAL_MS as STANDBY_INTERVAL_MS

            scheduler.add("standby", STANDBY_INTERVAL_MS, self.standby.run)

    def _cleaner_backoff_ms(self) -> int:
        """The pause in force, which may change at run time; 0 means the shortest one."""
        return max(1, self.topics.broker_config.log_cleaner_backoff_ms)

    async def checkpoint(self) -> None:
        """Write the offset checkpoints, in a thread."""
        await self.threads.drive(self.data_dir.checkpoint())

    async def delete_pending_files(self) -> None:
        """Unlink files that were renamed away `file.delete.delay.ms` ago, in threads."""
        await self.threads.drive(self.data_dir.delete_pending_files(self.clock.wall_ms()))

    async def collect_segment_stats(self) -> None:
        """Collect the statistics of closed segments that have none, so that readers can skip them.

        Most have them since they were closed. The others come from a crash, a directory of Kafka,
        an earlier release or compaction. No request waits for this.
        """
        for log in list(self.topics.logs()):
            unreadable = self._unreadable_segments.setdefault(log, set())
            try:
                await self.threads.drive(
                    collect_statistics(log, unreadable), rest_after_call=STATS_REST
                )
            except StorageError as error:
                logger.error("%s-%d could not be measured: %s", log.topic, log.partition, error)
            if not unreadable:
                del self._unreadable_segments[log]
            await asyncio.sleep(0)

    async def tick_coordinators(self) -> None:
        """Run the due work of the coordinators."""
        self.groups.tick()
        self.transactions.tick()
        await self.threads.drive(self.groups.shares.tick())

    def measure_loop_lag(self) -> None:
        """Record how late a zero-delay timer runs."""
        scheduled_ns = perf_counter_ns()
        self.live.call_later(
            0, lambda: self.metrics.observe_loop_lag(perf_counter_ns() - scheduled_ns)
        )

    async def sample_group_lag(self) -> None:
        """Take a sample of every group's lag in time, with a turn for others between groups."""
        for _ in self.group_lag.sample(self.live.monotonic_ms()):
            await asyncio.sleep(0)

    def flush_by_age(self) -> None:
        """Sync logs under `flush.policy=os` that were dirty for `flush.ms`."""
        now_ms = self.live.monotonic_ms()
        still_dirty: dict[Log, int] = {}
        for log in self.topics.logs():
            if not log.waits_for_disk and log.durable_offset < log.log_end_offset:
                since_ms = self._dirty_since_ms.get(log, now_ms)
                if now_ms - since_ms >= log.config.flush_ms:
                    self.group_commit.mark_dirty(log)
                else:
                    still_dirty[log] = since_ms
        self._dirty_since_ms = still_dirty

    async def delete_expired(self) -> None:
        """Delete expired segments, one log per step, by the trusted clock."""
        now_ms = self.time.now_ms()
        logs = list(self.topics.logs())
        for gone in self._held_by_future.keys() - set(logs):
            del self._held_by_future[gone]
        for log in logs:
            try:
                self._delete_expired_of(log, now_ms)
            except StorageError as error:
                logger.error("retention of %s-%d failed: %s", log.topic, log.partition, error)
            await asyncio.sleep(0)

    def _delete_expired_of(self, log: "Log", now_ms: int) -> None:
        from storage.log.retention import delete_expired
        from storage.remote.local import drop_expired_locally, each_is_named

        deleted = delete_expired(log, now_ms)
        for segment in deleted:
            self.metrics.segments_deleted[segment.reason.value] += 1
            logger.info(
                "%s-%d: segment %d deleted (%s)",
                log.topic,
                log.partition,
                segment.base_offset,
                segment.reason.value,
            )
        if deleted:
            self.fetch_waiters.log_changed(log)
        is_named = each_is_named if self.bucket is None else self.bucket.keeps
        for remote in drop_expired_locally(log, now_ms, is_named=is_named):
            logger.info(
                "%s-%d: segment %d is in the object store only (local retention)",
                log.topic,
                log.partition,
                remote.base_offset,
            )
        held = log.held_by_future
        if held is not None and self._held_by_future.get(log) != held:
            logger.warning(
                "%s-%d: segment %d has a timestamp ahead of the clock. Retention by time keeps it "
                "and everything after it until the clock has passed that; retention.bytes, "
                "DeleteRecords and retention.clamp.future=true do not wait.",
                log.topic,
                log.partition,
                held,
            )
        if held is None:
            self._held_by_future.pop(log, None)
        else:
            self._held_by_future[log] = held
        self.metrics.logs_held_by_future = len(self._held_by_future)

    async def remove_expired_tokens(self) -> None:
        """Remove the delegation tokens that have expired."""
        now_ms = self.clock.wall_ms()
        tokens = self.security.tokens
        for token in await self.topics.alone(lambda: tokens.remove_expired(now_ms)):
            logger.info("the delegation token %s of %s has expired", token.id, token.owner)

    async def expire_producer_ids(self) -> None:
        """Expire the producers of all logs that wrote nothing for `producer.id.expiration.ms`."""
        now_ms = self.time.now_ms()
        expired = 0
        for log in list(self.topics.logs()):
            producers = log.producers.state
            producers.expiration_ms = self.topics.broker_config.producer_id_expiration_ms
            expired += producers.expire(now_ms)
            await asyncio.sleep(0)
        if expired:
            logger.info("%d idle producer ids have expired", expired)
