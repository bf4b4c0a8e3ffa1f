"""Ranges of remote segments: fetched in threads, kept in bounded memory, shared by requests.

    storage  raises RemoteBytesNeeded(file, start, end)
    begin    one GET for all requests that need this range, in a thread of the downloads
    settle   the bytes are kept by the file; each request reads again, in the loop thread

Bytes that cannot be those of the segment are fetched once more, since one wrong answer says nothing
about the object. What comes twice is in the store: a batch with a wrong checksum is kept, and its
readers see it, as one on a disk; wrong offsets, which readers would follow, are an error.

Every need is settled: by the bytes, by the store's error, or by the deadline. After an error the
same segment is refused for a moment, so that a store that hangs costs its clients one wait and not
one per request. The error is retriable for clients (KAFKA_STORAGE_ERROR).

The memory of all ranges is bounded; the range that was fetched longest ago goes first. Loop thread
only.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from broker.clocks.clock import Clock
from broker.metrics import RemoteMetrics
from broker.threads import Pool
from storage.disk.steps import Elsewhere, Steps
from storage.errors import StorageError, StoreFailed
from storage.log.log import Log
from storage.remote.object_store import ObjectStore
from storage.segment.offset_index import OffsetPosition
from storage.segment.remote.log import RemoteBytesNeeded, RemoteLogFile

logger = logging.getLogger("tidelog.broker.remote.reads")

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Memory of all ranges."""

DEADLINE_MS: Final = 10_000
"""How long a request waits for a range."""

REFUSED_MS: Final = 1_000
"""How long a segment is refused after an error of the store."""

READS_MAX: Final = 256
"""Ranges that are under way or wait for a thread; more are refused."""

TRIES_MAX: Final = 8
"""How often one operation may ask for further bytes."""

_STORED: Final = (
    "the second answer is the same: the object is damaged, or its index here is; tidelog fsck "
    "--remote says which"
)

Result = TypeVar("Result")

Settle: TypeAlias = Callable[[None, BaseException | None], object]
_Range: TypeAlias = tuple[RemoteLogFile, int]
_Key: TypeAlias = tuple[RemoteLogFile, int, int, int]


def _key(need: RemoteBytesNeeded) -> _Key:
    return need.file, need.start, need.end, need.least


class _Got(NamedTuple):
    """Bytes of an object, and what was wrong with the first answer; it `is_stored` so, or not."""

    data: bytes
    damage: str | None = None
    is_stored: bool = False


class RemoteReads:
    """The reads of one broker from its object store."""

    def __init__(
        self, store: ObjectStore, pool: Pool, clock: Clock, metrics: RemoteMetrics
    ) -> None:
        """Read from `store` in the threads of `pool`."""
        self._store = store
        self._pool = pool
        self._clock = clock
        self._metrics = metrics
        self._waiting: dict[_Key, list[Settle]] = {}
        self._kept: dict[_Range, int] = {}
        self._kept_bytes = 0
        self._refused: dict[RemoteLogFile, tuple[int, StoreFailed]] = {}

    def failure_of(self, need: RemoteBytesNeeded) -> StoreFailed | None:
        """The error with which `need` is refused at once, or None."""
        until_ms, error = self._refused.get(need.file, (0, None))
        if error is not None and self._clock.monotonic_ms() < until_ms:
            return error
        self._refused.pop(need.file, None)
        if len(self._waiting) >= READS_MAX:
            return StoreFailed(f"{READS_MAX} reads of the object store are under way")
        return None

    def begin(self, need: RemoteBytesNeeded, settle: Settle) -> None:
        """Call `settle(None, error)` in a later turn, when the bytes are there or are not to be."""
        key = _key(need)
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(settle)
            return
        self._waiting[key] = [settle]
        overdue = self._clock.call_later(DEADLINE_MS, partial(self._overdue, need))

        def done(got: _Got | None, error: BaseException | None) -> None:
            overdue.cancel()
            self._done(need, got, error)

        try:
            landmarks = need.file.landmarks(need.start, need.end)
        except OSError as error:
            landmarks = []
            logger.warning("a range is compared with no index: %s", error)
        self._pool.submit(partial(_get, self._store, need, landmarks), done)

    def steps(self, need: RemoteBytesNeeded) -> Steps[None]:
        """Fetch the range, in steps. Raises StoreFailed."""
        failure = self.failure_of(need)
        if failure is not None:
            raise failure
        call: Elsewhere[None] = Elsewhere(partial(self.begin, need))
        yield call  # type: ignore[misc]
        call.result()

    async def fetch(self, need: RemoteBytesNeeded) -> None:
        """Fetch the range. Raises StoreFailed."""
        await self._pool.drive(self.steps(need))

    def _overdue(self, need: RemoteBytesNeeded) -> None:
        error = StoreFailed(f"GET {need.file.object.key}: no answer within {DEADLINE_MS} ms")
        self._settle(need, error)

    def _done(self, need: RemoteBytesNeeded, got: _Got | None, error: BaseException | None) -> None:
        if got is not None:
            self._metrics.fetched += 1
            self._metrics.fetched_bytes += len(got.data)
            if got.damage is not None:
                self._metrics.errors["fetch"] += 1
                again = _STORED if got.is_stored else "the second answer is sound"
                logger.error("GET %s: %s; %s", need.file.object.key, got.damage, again)
            self._keep(need.file, need.start, got.data)
        elif not isinstance(error, StorageError):
            logger.error("a read of the object store failed", exc_info=error)
            error = StoreFailed(f"GET {need.file.object.key}: {error}")
        self._settle(need, error)

    def _settle(self, need: RemoteBytesNeeded, error: BaseException | None) -> None:
        waiting = self._waiting.pop(_key(need), None)
        if waiting is None:
            # The deadline came first. Late bytes are kept all the same.
            return
        if isinstance(error, StoreFailed):
            self._metrics.errors["fetch"] += 1
            self._refused[need.file] = (self._clock.monotonic_ms() + REFUSED_MS, error)
            logger.warning("%s", error)
        for settle in waiting:
            settle(None, error)

    def _keep(self, file: RemoteLogFile, start: int, data: bytes) -> None:
        self._kept_bytes += len(data) - self._kept.pop((file, start), 0)
        self._kept[file, start] = len(data)
        file.keep(start, data)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            (oldest, at), size = next(iter(self._kept.items()))
            del self._kept[oldest, at]
            self._kept_bytes -= size
            oldest.forget(at)


def _get(store: ObjectStore, need: RemoteBytesNeeded, landmarks: Sequence[OffsetPosition]) -> _Got:
    """The range of `need`, from a second GET if the first one's bytes are wrong.

    A batch that its end cuts off is left out unless the read needs a part of it.

    Raises:
        StoreFailed: as the store, or the bytes are wrong both times and cannot be served.
    """
    file, key = need.file, need.file.object.key
    data, reason = store.get(key, need.start, need.end), None
    checked = file.check(need.start, data, landmarks)
    if checked.damage is not None:
        first, reason = data, checked.damage.reason
        data = store.get(key, need.start, need.end)
        checked = file.check(need.start, data, landmarks)
        if checked.damage is not None:
            if data != first or checked.damage.misleads:
                raise StoreFailed(f"GET {key}: {checked.damage.reason}, in a second answer too")
            return _Got(data, reason, is_stored=True)
    is_enough = need.start + checked.whole_bytes >= need.least
    return _Got(data[: checked.whole_bytes] if is_enough else data, reason)


def report_no_store(logs: Sequence[Log]) -> None:
    """Write to the log what cannot be read, and what does not wait, without an object store."""
    for topic in sorted({log.topic for log in logs if log.config.remote_acks_enable}):
        logger.warning(
            "%s: remote.acks.enable has no effect, since remote.storage.url is not set: records "
            "are acknowledged when they are on disk",
            topic,
        )
    for log in logs:
        if log.segments.first is not log.segments.first_local:
            logger.error(
                "%s-%d: offsets %d to %d are in an object store, and remote.storage.url is not "
                "set: they cannot be read",
                log.topic,
                log.partition,
                log.log_start_offset,
                log.segments.first_local.base_offset - 1,
            )


async def repeated(reads: RemoteReads | None, read: Callable[[], Result]) -> Result:
    """The result of `read`, called again after each range that it needed.

    Raises what it raises; RemoteBytesNeeded when there is no store, or it asks too often.
    """
    for _ in range(TRIES_MAX):
        try:
            return read()
        except RemoteBytesNeeded as need:
            if reads is None:
                raise
            await reads.fetch(need)
    return read()
