"""Fetch (key 1, versions 0-18): read batches, waiting for them if the client wants to.

    plan     which partitions, by session or by name        `broker.fetch_sessions`
    read     each of them under the byte limits             `broker.fetch_read`
    enough?  min_bytes reached, an error anywhere,
             nothing to wait for: answer
    else     park until the high watermarks have moved      `broker.fetch_waiters`
             far enough or max_wait is over, read again

A full answer carries every partition asked for, empty ones too (Java and kafka-python wait for them
for ever); an incremental one carries those with records, an error, or a high watermark or log start
that moved.  `records` is empty, never null.

Versions: v1 throttle time, v3 max_bytes, v4 isolation and last stable offset, v5 log start offset,
v7 sessions, v9 leader epochs, v10 zstd, v11 rack, v12 flexible and diverging epochs, v13 topic ids,
v15 replica state as a tag, v16 node endpoints, v17 replica directory, v18 high watermark asked.

Source: Kafka `KafkaApis.handleFetchRequest`, `DelayedFetch`; KIP-74, KIP-227, KIP-516.
"""

from typing import TYPE_CHECKING

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
    plan = context.fetch_sessions.plan(message, request.api_version)
    if plan.error is not ErrorCode.NONE:
        return FetchResponse(error_code=plan.error)
    return _Fetch(context, request, message, plan).start()


class _Fetch:
    """One fetch from plan to answer; parks itself as often as needed."""

    __slots__ = (
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
        self._pending: Pending[FetchResponse] | None = None
        self._waiter: FetchWaiter | None = None

    def start(self) -> FetchResponse | Pending[FetchResponse]:
        """The answer, or a promise of it when there is too little to read now."""
        max_wait_ms = min(self._message.max_wait_ms, MAX_WAIT_MS)
        parts, bytes_read = self._read()
        if max_wait_ms <= 0 or self._is_enough(parts, bytes_read):
            return self._answer(parts)
        self._deadline_ms = self._context.clock.monotonic_ms() + max_wait_ms
        self._pending = Pending(self._forget)
        self._park(bytes_read, max_wait_ms)
        return self._pending

    def _read(self) -> tuple[list[tuple[FetchTarget, PartitionData]], int]:
        """The parts of an answer, and their bytes: a portion, if that is what is waited for."""
        max_bytes = self._message.max_bytes
        if self._plan.is_incremental:
            portion = min(max_bytes, max(ENOUGH_BYTES, 2 * self._min_bytes))
            parts, bytes_read = self._read_up_to(portion)
            if bytes_read == 0 or bytes_read >= self._min_bytes:
                return parts, bytes_read
            # What is missing may be there, in a batch that is larger than the portion.
        return self._read_up_to(max_bytes)

    def _read_up_to(self, max_bytes: int) -> tuple[list[tuple[FetchTarget, PartitionData]], int]:
        reader = FetchReader(
            self._context,
            version=self._version,
            isolation_level=self._message.isolation_level,
            max_bytes=max_bytes,
        )
        parts = [(target, reader.read(target)) for target in self._plan.targets]
        return parts, reader.bytes_read

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
        parts, bytes_read = self._read()
        wait_ms = self._deadline_ms - self._context.clock.monotonic_ms()
        if is_deadline or wait_ms <= 0 or self._is_enough(parts, bytes_read):
            assert self._pending is not None
            self._pending.resolve(self._answer(parts))
        else:
            self._park(bytes_read, wait_ms)

    def _forget(self) -> None:
        if self._waiter is not None:
            self._context.fetch_waiters.forget(self._waiter)

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
