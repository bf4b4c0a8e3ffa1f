"""Fetch (key 1, versions 0-18): read batches, waiting for them if the client wants to.

    plan     which partitions, by session or by name        `broker.fetch_sessions`
    read     each of them under the byte limits             `broker.fetch_read`
    enough?  min_bytes reached, an error anywhere,
             nothing to wait for: answer
    else     park until the high watermarks have moved      `broker.fetch_waiters`
             far enough or max_wait is over, read again

An answer that reaches the end of what may be shown waits for records that were acknowledged before
the fetch came and are not durable yet (`broker.commit_wait`); what is acknowledged later does not
hold it up.

A full answer carries every partition asked for, empty ones too (Java and kafka-python wait for them
for ever); an incremental one carries those with records, an error, or a high watermark or log start
that moved.  `records` is empty, never null.

Versions: v1 throttle time, v3 max_bytes, v4 isolation and last stable offset, v5 log start offset,
v7 sessions, v9 leader epochs, v10 zstd, v11 rack, v12 flexible and diverging epochs, v13 topic ids,
v15 replica state as a tag, v16 node endpoints, v17 replica directory, v18 high watermark asked.

Source: Kafka `KafkaApis.handleFetchRequest`, `DelayedFetch`; KIP-74, KIP-227, KIP-516.
"""

from typing import TYPE_CHECKING

from broker.commit_wait import CommitWait
from broker.context import Context, RequestContext
from broker.errors import BrokerError
from broker.fetch_read import FetchReader
from broker.fetch_sessions import FetchPlan, FetchTarget
from broker.fetch_waiters import FetchWaiter
from broker.pending import Pending
from protocol.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from storage.log import Log

_ISOLATION_LEVELS = (0, 1)

MAX_WAIT_MS = 300_000
"""The longest a fetch is parked, whatever the client asks."""

ENOUGH_BYTES = 2 * 1024 * 1024
"""What an incremental fetch is given at most, unless it waits for more: reading sixteen megabytes
before the first byte is sent makes the client wait and leaves the processor's caches cold. The
partitions that got nothing are the first of the next answer (`FetchSession.move_to_end`)."""


def handle(
    context: Context, request: RequestContext, message: FetchRequest
) -> FetchResponse | Pending[FetchResponse]:
    """Answer with what there is, or wait for `min_bytes` at most `max_wait_ms`."""
    if message.isolation_level not in _ISOLATION_LEVELS:
        return _refuse_all(message, ErrorCode.UNKNOWN_SERVER_ERROR)
    plan = context.fetch_sessions.plan(message, request.api_version)
    if plan.error is not ErrorCode.NONE:
        return FetchResponse(error_code=plan.error)
    return _Fetch(context, request, message, plan).start()


def _refuse_all(message: FetchRequest, error: ErrorCode) -> FetchResponse:
    """Refuse the request as a whole, and each partition for versions that have no code for that."""
    return FetchResponse(
        error_code=error,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=error,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=b"",
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )


class _Fetch:
    """One fetch from plan to answer; parks itself as often as needed."""

    __slots__ = (
        "_awaited",
        "_commit_wait",
        "_context",
        "_deadline_ms",
        "_message",
        "_min_bytes",
        "_pending",
        "_plan",
        "_version",
        "_waiter",
    )

    def __init__(
        self, context: Context, request: RequestContext, message: FetchRequest, plan: FetchPlan
    ) -> None:
        self._context = context
        self._message = message
        self._plan = plan
        self._version = request.api_version
        self._min_bytes = min(message.min_bytes, message.max_bytes, context.config.fetch_max_bytes)
        self._deadline_ms = 0
        self._awaited: dict[Log, int] = {}
        self._commit_wait: CommitWait | None = None
        self._pending: Pending[FetchResponse] | None = None
        self._waiter: FetchWaiter | None = None

    def start(self) -> FetchResponse | Pending[FetchResponse]:
        """The answer, or a promise of it when there is too little to read now."""
        max_wait_ms = min(self._message.max_wait_ms, MAX_WAIT_MS)
        parts, reader = self._read()
        self._awaited = reader.hidden_ends
        if max_wait_ms <= 0 or self._is_enough(parts, reader.bytes_read):
            if not self._awaited:
                return self._answer(parts)
            self._pending = Pending(self._forget)
            self._wait_for_commits()
            return self._pending
        self._deadline_ms = self._context.clock.monotonic_ms() + max_wait_ms
        self._pending = Pending(self._forget)
        self._park(reader.bytes_read, max_wait_ms)
        return self._pending

    def _read(self) -> tuple[list[tuple[FetchTarget, PartitionData]], FetchReader]:
        """The parts of an answer, and what read them: a portion, if that is what is waited for."""
        max_bytes = self._message.max_bytes
        if self._plan.is_incremental:
            portion = min(max_bytes, max(ENOUGH_BYTES, 2 * self._min_bytes))
            parts, reader = self._read_up_to(portion)
            if reader.bytes_read == 0 or reader.bytes_read >= self._min_bytes:
                return parts, reader
            # What is missing may be there, in a batch that is larger than the portion.
        return self._read_up_to(max_bytes)

    def _read_up_to(
        self, max_bytes: int
    ) -> tuple[list[tuple[FetchTarget, PartitionData]], FetchReader]:
        reader = FetchReader(
            self._context,
            version=self._version,
            isolation_level=self._message.isolation_level,
            max_bytes=max_bytes,
        )
        return [(target, reader.read(target)) for target in self._plan.targets], reader

    def _is_enough(self, parts: list[tuple[FetchTarget, PartitionData]], bytes_read: int) -> bool:
        if bytes_read >= self._min_bytes or not parts:
            return True
        return any(
            data.error_code != ErrorCode.NONE or data.diverging_epoch is not None
            for _, data in parts
        )

    def _park(self, bytes_read: int, max_wait_ms: int) -> None:
        waiter = FetchWaiter(self._logs(), self._min_bytes - bytes_read, self._retry)
        self._waiter = waiter
        self._context.fetch_waiters.park(waiter, max_wait_ms)

    def _logs(self) -> "list[Log]":
        reader = FetchReader(self._context, version=self._version, isolation_level=0, max_bytes=0)
        logs = []
        for target in self._plan.targets:
            try:
                logs.append(reader.find_log(target))
            except BrokerError:
                continue
        return logs

    def _retry(self, is_deadline: bool) -> None:
        """Woken: read again, answer if that is enough or time is up, else park once more."""
        self._waiter = None
        parts, reader = self._read()
        wait_ms = self._deadline_ms - self._context.clock.monotonic_ms()
        if not is_deadline and wait_ms > 0 and not self._is_enough(parts, reader.bytes_read):
            self._park(reader.bytes_read, wait_ms)
            return
        self._awaited = {
            log: end
            for log, end in self._awaited.items()
            if log in reader.hidden_ends and log.high_watermark < end
        }
        if self._awaited:
            self._wait_for_commits()
        else:
            self._resolve(parts)

    def _wait_for_commits(self) -> None:
        self._commit_wait = CommitWait(self._context, self._awaited, self._committed)

    def _committed(self) -> None:
        """What was acknowledged before the fetch is on disk, or the disk takes too long."""
        self._commit_wait = None
        parts, _ = self._read()
        self._resolve(parts)

    def _resolve(self, parts: list[tuple[FetchTarget, PartitionData]]) -> None:
        assert self._pending is not None, "a fetch that waits has a promise out"
        self._pending.resolve(self._answer(parts))

    def _forget(self) -> None:
        if self._waiter is not None:
            self._context.fetch_waiters.forget(self._waiter)
        if self._commit_wait is not None:
            self._commit_wait.cancel()

    def _answer(self, parts: list[tuple[FetchTarget, PartitionData]]) -> FetchResponse:
        session = self._plan.session
        response = FetchResponse(session_id=self._plan.session_id)
        topic: FetchableTopicResponse | None = None
        bytes_fetched = 0
        for target, data in parts:
            if session is not None and not self._is_news(target, data):
                continue
            if topic is None or (topic.topic, topic.topic_id) != (target.topic, target.topic_id):
                topic = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.records:
                bytes_fetched += len(data.records)
                if session is not None and self._plan.is_incremental:
                    session.move_to_end(target)
        self._context.metrics.bytes_fetched += bytes_fetched
        return response

    def _is_news(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether the session's client does not know this yet; remembers it as reported.

        An error resets what was reported, so that the recovery from it is news as well.
        """
        is_news = (
            not self._plan.is_incremental
            or bool(data.records)
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch is not None
            or data.high_watermark != target.reported_high_watermark
            or data.log_start_offset != target.reported_log_start_offset
        )
        failed = data.error_code != ErrorCode.NONE
        target.reported_high_watermark = -1 if failed else data.high_watermark
        target.reported_log_start_offset = -1 if failed else data.log_start_offset
        return is_news
