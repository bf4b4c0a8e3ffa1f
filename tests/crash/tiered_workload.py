"""The workload with an object store: uploads, local retention, deletions, a store that fails.

The promises are the same. A crash is judged with the store as it is at that moment, where requests
without an answer have happened or have not.
"""

import random
from collections.abc import Callable
from contextlib import suppress

from storage.bucket.journal import BucketJournal, read_state
from storage.bucket.shipping import Shipper
from storage.disk.steps import Steps, run_steps
from storage.errors import StorageError, StoreFailed
from storage.log.compaction import Tier
from storage.log.log import Log
from storage.log.retention import delete_expired
from storage.remote.cleaning import StoredLogs
from storage.remote.erase import erase_unused
from storage.remote.local import drop_expired_locally
from storage.remote.upload import next_to_upload, upload_segment
from storage.segment.facts import RemoteObject
from tests.crash.checker import check_named, is_internal_to
from tests.crash.workload import NOW_MS, SEGMENT_BYTES, Workload
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_store import SimulatedStore, StoreFault
from tests.support.tiered import tiered_broker

_TIERED = {
    "segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "300",
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
    "file.delete.delay.ms": "1000",
}


_OVERRIDES = {
    "orders": _TIERED,
    "lazy": {**_TIERED, "flush.policy": "os", "retention.bytes": str(6 * SEGMENT_BYTES)},
    "ledger": Workload.overrides["ledger"],
    "temporary": _TIERED,
    "growing": _TIERED,
}


class TieredWorkload(Workload):
    """All topics have their closed segments in a store, and all their tails.

    In every other run the compacted one is shipped as a whole, like those of the broker.
    """

    config = tiered_broker()
    overrides = _OVERRIDES
    store: SimulatedStore

    def __init__(self, disk: SimulatedDisk, seed: int, *, steps: int = 60) -> None:
        """With an empty store."""
        super().__init__(disk, seed, steps=steps)
        self._compacts = seed % 4 == 1
        if seed % 2:
            ledger = {**_TIERED, **Workload.overrides["ledger"], "delete.retention.ms": "0"}
            self.overrides = {**_OVERRIDES, "ledger": ledger}
        self.store = SimulatedStore()
        self._store_seed = seed + 3
        self._store_rng = random.Random(seed + 2)

    def _kinds(self) -> list[tuple[Callable[[], None], int]]:
        kinds = [(self._tier, 60), (self._erase, 15), (self._ship, 50)]
        return [*super()._kinds(), *kinds, (self._clean, 40 if self._compacts else 0)]

    def _start(self) -> None:
        super()._start()
        rng = random.Random(self._store_seed)
        self._store_seed += 1
        self._journal = BucketJournal(self.store, self._dir().directory_id, rng)
        self._shipper = Shipper(self._dir(), self._journal, is_internal_to(self._dir()))

    def _ship(self) -> None:
        """Write what the bucket's journal lacks; what it has is promised from then on."""
        rng = self._store_rng
        for topic in self._dir().topics.values():
            for log in topic.logs:
                if rng.random() < 0.5 and log.offline_reason is None:
                    log.flush()
        self.store.faults = {
            kind: [rng.choice([*[None] * 12, *StoreFault]) for _ in range(4)]
            for kind in ("PUT", "GET", "HEAD", "LIST", "DELETE")
        }
        try:
            if not self._journal.is_owner:
                self._drive(self._shipper.begin())
            self._drive(self._shipper.ship(), notes=0.03)
            while self._shipper.has_noted and rng.random() < 0.6:
                self._drive(self._shipper.ship(), notes=0.01)
            for topic in self._dir().topics.values():
                for log in topic.logs:
                    promised = self.promises.partitions.get((log.topic, log.partition))
                    if promised is not None:
                        end = self._shipper.shipped_end(log)
                        promised.shipped = max(promised.shipped, end)
            if rng.random() < 0.3:
                self._drive(self._journal.checkpoint())
        except StoreFailed:
            # The job tries again later.
            pass
        finally:
            self.store.faults = {}
        self._check_bucket()

    def _check_bucket(self) -> None:
        """Another machine that reads the bucket now finds all that it names."""
        found = self.store.copy(self._store_rng)
        for problem in check_named(read_state(found), found):
            raise AssertionError(problem)

    def _tier_of(self) -> Tier:
        return StoredLogs(self.store, self._shipped_end)

    def _shipped_end(self, log: Log) -> int:
        return self._shipper.shipped_end(log) if self._journal.is_owner else 0

    def _compact(self) -> None:
        rng = self._store_rng
        self.store.faults = {"GET": [rng.choice([*[None] * 20, *StoreFault]) for _ in range(4)]}
        try:
            super()._compact()
        except StoreFailed:
            # The job tries again later.
            pass
        finally:
            self.store.faults = {}
        self._check_bucket()

    def _drive(self, steps: Steps[int], *, notes: float = 0) -> None:
        """Run the steps; appends and deletions come in between, and ends are noted."""
        for call in steps:
            if self._store_rng.random() < notes:
                self._shipper.note_ends()
            if self._store_rng.random() < 0.1:
                self._erase_first()
            if call is not None:
                call.run()
            if self._store_rng.random() < 0.02:
                log = self._pick()
                if log.offline_reason is None:
                    self._append(log, self._values(), producer_id=-1)

    def _tier(self) -> None:
        """Upload what is due, with appends in between; then local retention."""
        self._tier_log(self._pick())

    def _clean(self) -> None:
        """All that happens to the compacted topic, by turns."""
        log = self._dir().topics["ledger"].logs[0]
        for _ in range(3):
            self._append(log, self._values(), producer_id=-1)
        for name, _, producer_id in sorted(self._open_txns):
            if name == log.topic:
                self._end_txn(log, producer_id)
        log.flush()
        self._ship()
        self._compact()
        self._tier_log(log)

    def _tier_log(self, log: Log) -> None:
        rng = self._store_rng
        if not log.config.remote_storage_enable:
            return
        for name, partition, producer_id in sorted(self._open_txns):
            # Nothing above an open transaction is uploaded.
            if (name, partition) == (log.topic, log.partition) and rng.random() < 0.8:
                self._end_txn(log, producer_id)
        if rng.random() < 0.7:
            log.roll(NOW_MS)
        if rng.random() < 0.9:
            log.flush()
        self.store.faults = {
            kind: [rng.choice([*[None] * 12, *StoreFault]) for _ in range(4)]
            for kind in ("PUT", "GET", "HEAD")
        }
        try:
            while (segment := next_to_upload(log)) is not None:
                topic = self._dir().topics[log.topic]
                steps = upload_segment(log, segment, topic.topic_id, self.store, rng)
                for call in steps:
                    if call is not None:
                        call.run()
                    if rng.random() < 0.05:
                        self._append(log, self._values(), producer_id=-1)
                    if rng.random() < 0.02:
                        steps.close()
        except StoreFailed:
            # The job tries again later.
            pass
        finally:
            self.store.faults = {}
        drop_expired_locally(log, NOW_MS, is_named=self._shipper.names)
        if rng.random() < 0.3:
            # Before the bucket's journal knows the new objects.
            with suppress(StoreFailed):
                self._erase_of(log)

    def _erase(self) -> None:
        """Delete the objects of what retention and deletions of topics have removed."""
        rng = self._store_rng
        for topic in self._dir().topics.values():
            for log in topic.logs:
                # Otherwise hardly an object is ever to be deleted.
                if log.segments.first.is_remote and log.offline_reason is None:
                    self._delete_first(log)
        self.store.faults = {"DELETE": [rng.choice([None, None, *StoreFault]) for _ in range(4)]}
        try:
            for topic in self._dir().topics.values():
                for log in topic.logs:
                    self._erase_of(log)
            run_steps(self._dir().erase_remote(NOW_MS + 100_000, self.store, self._may_go))
        except StoreFailed:
            pass
        finally:
            self.store.faults = {}
        self._check_bucket()

    def _erase_first(self) -> None:
        """Delete the object of a log's first segment, if it may go."""
        logs = [log for topic in self._dir().topics.values() for log in topic.logs]
        logs = [log for log in logs if log.segments.first.remote and log.offline_reason is None]
        if logs:
            log = self._store_rng.choice(logs)
            self._delete_first(log)
            with suppress(StoreFailed):
                self._erase_of(log)
            self._check_bucket()

    def _delete_first(self, log: Log) -> None:
        """Move the log's start past its first segment, as DeleteRecords does."""
        start = min(log.segments.first.next_offset, log.high_watermark)
        if not log.config.is_deleted_by_retention or self._store_rng.random() < 0.4:
            return
        promised = self._promises_of(log)
        promised.start_wanted = max(promised.start_wanted, start)
        log.delete_before(start)
        delete_expired(log, NOW_MS)
        if self._store_rng.random() < 0.3:
            self._checkpoint()

    def _may_go(self, where: RemoteObject) -> bool:
        return self._journal.is_owner and not self._shipper.names(where)

    def _erase_of(self, log: Log) -> None:
        try:
            run_steps(erase_unused(log, self.store, self._may_go))
        except StoreFailed:
            raise
        except StorageError as error:
            self.errors.append(str(error))


class CleaningWorkload(TieredWorkload):
    """Mostly rounds of compaction: rewritten segments have objects, and several become one.

    Only with odd seeds, as in `TieredWorkload`.
    """

    def _kinds(self) -> list[tuple[Callable[[], None], int]]:
        return [*super()._kinds(), (self._clean, 2000)]
