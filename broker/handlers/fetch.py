"""Fetch (key 1, versions 0-18): read batches, waiting for them if the client wants to.

    plan     which partitions, by session or by name        `broker.fetch.sessions`
    read     each of them under the byte limits             `broker.requests.fetch_read`
    enough?  min_bytes reached, an error anywhere,
             nothing to wait for: answer
    else     park until the high watermarks have moved      `broker.fetch.waiters`
             far enough or max_wait is over, read again

Records in an object store only are fetched by threads (`broker.remote.reads`). The fetch waits for
the first range, unless other partitions have enough; then the answer goes out, and the next fetch
finds the range in memory.

An answer that reaches the end of the visible records waits for records that were acknowledged
before the fetch came and are not durable yet (`broker.requests.commit_wait`). Records acknowledged
later do not delay it.

A full answer carries every requested partition, even empty ones (Java and kafka-python wait for
them for ever). An incremental one carries those with records, an error, or a high watermark or log
start that moved. `records` is empty, never null.

A client over its `consumer_byte_rate` gets an empty answer at once, with the delay; a session does
not advance by it.

Differs from Kafka: an answer has about two megabytes unless min_bytes is more, whatever max_bytes
allows. When little of a limit is left and a batch does not fit, the answer is full; Kafka tries the
partitions after it.

There are no followers, so a broker that fetches as one is refused.

Source: Kafka `KafkaApis.handleFetchRequest`, `DelayedFetch`; KIP-74, KIP-227, KIP-516.
"""

from typing import TYPE_CHECKING, TypeAlias

from broker.errors import BrokerError
from broker.fetch.sessions import NO_SESSION_ID, FetchPlan, FetchTarget
from broker.fetch.waiters import MAX_WAIT_MS, FetchWaiter
from broker.replies.pending import Pending
from broker.replies.turns import NEXT_TURN, Work
from broker.requests.access import Check
from broker.requests.by_topic import STEP, by_topic
from broker.requests.commit_wait import CommitWait
from broker.requests.context import Context, RequestContext
from broker.requests.fetch_read import (
    ENOUGH_BYTES,
    PARTITION_BYTES_MAX,
    STEP_BYTES,
    ZSTD_SINCE,
    FetchReader,
)
from broker.requests.leaders import MOVED, NamedLeaders
from protocol.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

if TYPE_CHECKING:
    from broker.quotas.throttle import FetchQuota
    from storage.log.log import Log

_ISOLATION_LEVELS = (0, 1)
_LEADERS_SINCE = 16

_PARTITION_COST_BYTES = STEP_BYTES // 8
"""The cost of a partition without records, in bytes: eight of them are one step."""

REMOTE_READS_MAX = 4
"""Ranges of the object store that one fetch asks for at once."""

_Part: TypeAlias = tuple[FetchTarget, PartitionData]


def handle(
    context: Context, request: RequestContext, message: FetchRequest
) -> Steps[FetchResponse | Pending[FetchResponse]]:
    """Answer with the available records, or wait for `min_bytes` at most `max_wait_ms`."""
    if message.isolation_level not in _ISOLATION_LEVELS:
        return _refuse_all(message, ErrorCode.UNKNOWN_SERVER_ERROR)
    return _Fetch(context, request, message).start()


def _refuse_all(message: FetchRequest, error: ErrorCode) -> Steps[FetchResponse]:
    """Refuse the request as a whole, and each partition for versions without a code for that."""

    def refusal(_: FetchTopic, asked: FetchPartition) -> PartitionData:
        return PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[],
            records=b"",
        )

    def collect(topic: FetchTopic, partitions: list[PartitionData]) -> FetchableTopicResponse:
        return FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
        )

    topics = yield from by_topic(message.topics, refusal, collect)
    return FetchResponse(error_code=error, responses=topics)


def _ignore(_: None, __: BaseException | None) -> None:
    """The bytes are kept for later, an error for the next fetch."""


def _replica_id(message: FetchRequest) -> int:
    """The id of the broker that fetches; below 0 for a consumer."""
    state = message.replica_state
    return message.replica_id if state is None else state.replica_id


class _Fetch:
    """One fetch from plan to answer; parks itself as often as needed."""

    # Class attributes, because few fetches wait.
    _commit_wait: CommitWait | None = None
    _leaders: NamedLeaders | None = None
    _deadline_ms = 0
    """Set with the promise."""

    _pending: Pending[FetchResponse] | None = None
    _reserved_bytes = 0
    _waiter: FetchWaiter | None = None
    _window_logs: "dict[Log, int] | None" = None
    _work: Work | None = None

    _plan: FetchPlan

    def __init__(self, context: Context, request: RequestContext, message: FetchRequest) -> None:
        self._context = context
        self._message = message
        self._check = None if context.security.access is None else Check(context, request)
        self._request = request
        throttle = context.security.throttle
        self._quota = None if throttle is None else throttle.fetch_quota(request)
        self._version = request.api_version
        self._min_bytes = min(message.min_bytes, message.max_bytes, context.config.fetch_max_bytes)
        self._awaited: dict[Log, int] = {}

    def start(self) -> Steps[FetchResponse | Pending[FetchResponse]]:
        """Return the answer, or a promise of it when there is too little to read now."""
        self._plan = plan = yield from self._context.fetch_sessions.plan(
            self._message, self._version, self._request.session.principal
        )
        if plan.error is not ErrorCode.NONE:
            return FetchResponse(error_code=plan.error)
        asked_ms = self._message.max_wait_ms
        max_wait_ms = asked_ms if asked_ms < MAX_WAIT_MS else MAX_WAIT_MS
        is_first = True
        try:
            while True:
                parts, reader = self._read_only_target() or (yield from self._read())
                if is_first and reader.hidden_ends:
                    ends = reader.hidden_ends.items()
                    self._awaited = {log: end.acknowledged for log, end in ends}
                is_first = False
                if max_wait_ms <= 0 or self._is_enough(parts, reader.bytes_read):
                    hidden = self._awaited and self._still_hidden(reader)
                    if not hidden:
                        self._begin_remote(reader)
                        if self._quota is None and len(parts) <= STEP:
                            response = self._add(parts)
                        else:
                            response = yield from self._answer(parts)
                        if self._reserved_bytes:
                            self._context.answers.lease(response, self._reserved_bytes)
                            self._reserved_bytes = 0
                        return response
                    is_waiting = self._wait_for_commits(hidden)
                else:
                    is_waiting = self._park(parts, reader, max_wait_ms)
                if is_waiting:
                    self._deadline_ms = self._context.clock.monotonic_ms() + max_wait_ms
                    self._pending = Pending(self._forget)
                    return self._pending
        finally:
            if self._reserved_bytes:
                self._reserve(0)

    def _read(self) -> Steps[tuple[list[_Part], FetchReader]]:
        """Read the parts of an answer, and their reader: a portion, if that is enough."""
        if self._context.turns.is_round_full:
            most = min(STEP_BYTES, self._message.max_bytes)
            parts, reader = yield from self._read_up_to(most, most, needs_one=False)
            if not reader.left_some:
                return parts, reader
            yield NEXT_TURN
        most = self._message.max_bytes
        enough = ENOUGH_BYTES if self._min_bytes <= ENOUGH_BYTES // 2 else 2 * self._min_bytes
        portion = min(most, enough)
        first = 0
        if portion < most and not self._plan.is_incremental and len(self._plan.targets) > 1:
            first = self._context.random.randrange(len(self._plan.targets))
        parts, reader = yield from self._read_up_to(portion, enough, first=first)
        is_short = 0 < reader.bytes_read < self._min_bytes
        if is_short and (portion < most or reader.was_limited):
            # The missing bytes may be there, in a batch that is larger than the portion.
            parts, reader = yield from self._read_up_to(most, PARTITION_BYTES_MAX)
        if reader.was_cut or reader.bytes_allowed < self._min_bytes:
            self._wait_for_no_more(reader)
        return parts, reader

    def _read_only_target(self) -> tuple[list[_Part], FetchReader] | None:
        """As `_read`, of one partition in one step; None, with nothing read for good, if not so."""
        targets = self._plan.targets
        if (
            len(targets) != 1
            or self._version < ZSTD_SINCE
            or self._min_bytes > ENOUGH_BYTES // 2
            or self._reserved_bytes
            or self._context.turns.is_round_full
        ):
            return None
        most = self._message.max_bytes
        reader = self._reader(most if most < ENOUGH_BYTES else ENOUGH_BYTES, ENOUGH_BYTES)
        (target,) = targets
        data = reader.read(target)
        if data is None or 0 < reader.bytes_read < self._min_bytes:
            return None
        self._window_logs = None
        if reader.bytes_read >= STEP_BYTES:
            self._context.turns.count_read(reader.bytes_read)
            self._reserve(reader.bytes_read)
        if reader.was_cut or reader.bytes_allowed < self._min_bytes:
            self._wait_for_no_more(reader)
        return [(target, data)], reader

    def _wait_for_no_more(self, reader: FetchReader) -> None:
        """No answer gets more bytes than `reader` had, so there is no use in waiting for them."""
        self._min_bytes = max(1, min(self._min_bytes, reader.bytes_read))

    def _read_up_to(
        self, max_bytes: int, partition_max_bytes: int, *, first: int = 0, needs_one: bool = True
    ) -> Steps[tuple[list[_Part], FetchReader]]:
        """Read the partitions from the target numbered `first` on, then those before it.

        The parts are in the order of the targets.
        """
        if self._reserved_bytes:
            self._reserve(0)
        reader = self._reader(max_bytes, partition_max_bytes, needs_one=needs_one)
        parts: list[_Part] = []
        spent_bytes = 0
        targets = self._plan.targets
        for target in targets[first:] + targets[:first] if first else targets:
            if spent_bytes >= STEP_BYTES:
                spent_bytes = 0
                self._reserve(reader.bytes_read)
                yield None
            if self._version >= ZSTD_SINCE:
                data = reader.read(target)
                if data is None:
                    data = yield from reader.read_window(target)
            else:
                data = yield from reader.read_for_old_client(target)
            parts.append((target, data))
            read_bytes = len(data.records) if data.records else 0
            spent_bytes += _PARTITION_COST_BYTES + read_bytes
            if read_bytes >= STEP_BYTES:
                self._context.turns.count_read(read_bytes)
        self._window_logs = reader.window_logs
        if reader.bytes_read >= STEP_BYTES or self._reserved_bytes:
            self._reserve(reader.bytes_read)
        if first:
            parts = parts[-first:] + parts[:-first]
        return parts, reader

    def _reader(
        self, max_bytes: int, partition_max_bytes: int, *, needs_one: bool = True
    ) -> FetchReader:
        return FetchReader(
            self._context,
            self._version,
            self._message.isolation_level,
            max_bytes,
            partition_max_bytes,
            _replica_id(self._message),
            needs_one=needs_one,
            check=self._check,
        )

    def _reserve(self, size_bytes: int) -> None:
        """Reserve this much memory for the answer, in place of the previous amount."""
        if size_bytes != self._reserved_bytes:
            self._context.answers.reserve(size_bytes - self._reserved_bytes)
            self._reserved_bytes = size_bytes

    def _is_enough(self, parts: list[_Part], bytes_read: int) -> bool:
        if bytes_read >= self._min_bytes or not parts:
            return True
        # A forbidden partition waits with the others, and its refusal comes with their answer.
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return all(data.error_code == denied for _, data in parts) or any(
            data.error_code not in (ErrorCode.NONE, denied) or data.diverging_epoch is not None
            for _, data in parts
        )

    def _park(self, parts: list[_Part], read: FetchReader, max_wait_ms: int) -> bool:
        """Wait for more; False when more has come by now: reading many partitions takes turns."""
        if read.remote_needs:
            self._fetch_remote(read)
            return True
        reader = FetchReader(
            self._context,
            self._version,
            isolation_level=0,
            max_bytes=0,
            check=self._check,
        )
        logs = []
        for target, data in parts:
            try:
                log = reader.find_log(target)
            except BrokerError:
                continue
            if log.high_watermark != data.high_watermark:
                return False
            logs.append(log)
        if self._window_logs:
            if any(log.high_watermark != seen for log, seen in self._window_logs.items()):
                return False
            logs += self._window_logs
        self._waiter = FetchWaiter(logs, self._min_bytes - read.bytes_read, self._retry)
        self._context.fetch_waiters.park(self._waiter, max_wait_ms)
        return True

    def _retry(self, is_deadline: bool) -> None:
        """Read again, then answer if that is enough or time is up, else park once more."""
        self._waiter = None
        self._begin(self._read_again(is_deadline))

    def _read_again(self, is_deadline: bool) -> Steps[None]:
        try:
            while True:
                parts, reader = yield from self._read()
                wait_ms = self._deadline_ms - self._context.clock.monotonic_ms()
                if is_deadline or wait_ms <= 0 or self._is_enough(parts, reader.bytes_read):
                    hidden = self._still_hidden(reader)
                    if not hidden:
                        self._begin_remote(reader)
                        yield from self._resolve(parts)
                        return
                    if self._wait_for_commits(hidden):
                        return
                elif self._park(parts, reader, wait_ms):
                    return
        finally:
            self._reserve(0)

    def _fetch_remote(self, reader: FetchReader) -> None:
        """Read again when the first range has come from the object store, or is not to come."""
        remote = self._context.remote
        assert remote is not None, "a need without a store is refused"
        is_first = True

        def settle(_: None, __: BaseException | None) -> None:
            nonlocal is_first
            if is_first and self._pending is not None and not self._pending.settled:
                is_first = False
                self._begin(self._read_again(False))

        for need in reader.remote_needs[:REMOTE_READS_MAX]:
            remote.begin(need, settle)

    def _begin_remote(self, reader: FetchReader) -> None:
        """Fetch ranges for the next fetch of this client; the answer goes out without them."""
        for need in reader.remote_needs[:REMOTE_READS_MAX]:
            assert self._context.remote is not None, "a need without a store is refused"
            self._context.remote.begin(need, _ignore)

    def _still_hidden(self, reader: FetchReader) -> "dict[Log, int]":
        """The ends acknowledged before the fetch came that this answer does not reach."""
        return {
            log: end
            for log, end in self._awaited.items()
            if log in reader.hidden_ends and reader.hidden_ends[log].high_watermark < end
        }

    def _wait_for_commits(self, hidden: "dict[Log, int]") -> bool:
        """Wait for the disk; False when all of `hidden` is there by now: reading takes turns."""
        owed = {log: end for log, end in hidden.items() if log.high_watermark < end}
        if owed:
            self._commit_wait = CommitWait(self._context, owed, self._committed)
        return bool(owed)

    def _committed(self) -> None:
        """Read again: the acknowledged records are on disk, or the disk takes too long."""
        self._commit_wait = None
        self._begin(self._read_at_last())

    def _read_at_last(self) -> Steps[None]:
        try:
            parts, _ = yield from self._read()
            yield from self._resolve(parts)
        finally:
            self._reserve(0)

    def _begin(self, steps: Steps[None]) -> None:
        assert self._pending is not None, "a fetch that waits has a promise out"
        self._work = None
        throttle = self._context.security.throttle
        if throttle is not None:
            steps = throttle.timed(self._request, steps)
        outcome = self._context.turns.begin_or_fail(steps, self._pending)
        if isinstance(outcome, Work):
            self._work = outcome
            outcome.subscribe(self._read_in_turns)

    def _read_in_turns(self, work: Pending[None]) -> None:
        if work.error is not None and self._pending is not None:
            self._pending.fail(work.error)

    def _resolve(self, parts: list[_Part]) -> Steps[None]:
        assert self._pending is not None, "a fetch that waits has a promise out"
        self._pending.resolve((yield from self._answer(parts)))

    def _forget(self) -> None:
        if self._waiter is not None:
            self._context.fetch_waiters.remove(self._waiter)
        if self._commit_wait is not None:
            self._commit_wait.cancel()
        if self._work is not None:
            self._work.abandon()

    def _delayed_answer(self, quota: "FetchQuota", parts: list[_Part]) -> FetchResponse | None:
        """An empty answer with a delay when the client's quota is used up, else None."""
        sizes = [len(data.records) for _, data in parts if data.records]
        delay_ms = quota.delay_ms(sum(sizes), len(sizes))
        if not delay_ms:
            return None
        session_id = NO_SESSION_ID
        if self._plan.is_incremental:
            session_id = self._plan.session_id
        elif self._plan.session is not None:
            self._context.fetch_sessions.close(self._plan.session)
        return FetchResponse(session_id=session_id, throttle_time_ms=delay_ms)

    def _answer(self, parts: list[_Part]) -> Steps[FetchResponse]:
        if self._quota is not None:
            delayed = self._delayed_answer(self._quota, parts)
            if delayed is not None:
                return delayed
        response = self._add(parts[:STEP])
        for begin in range(STEP, len(parts), STEP):
            yield None
            self._add(parts[begin : begin + STEP], response)
        return response

    def _add(self, parts: list[_Part], response: FetchResponse | None = None) -> FetchResponse:
        """The answer with the parts that are news; the parts of a topic follow each other."""
        session = self._plan.session
        if response is None:
            response = FetchResponse(session_id=NO_SESSION_ID if session is None else session.id)
        topics = response.responses
        topic = topics[-1] if topics else None
        bytes_fetched = 0
        for target, data in parts:
            if session is not None and not self._is_news(target, data):
                continue
            if topic is None or (topic.topic, topic.topic_id) != (target.topic, target.topic_id):
                topic = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id)
                topics.append(topic)
            topic.partitions.append(data)
            if data.error_code and data.error_code in MOVED and self._version >= _LEADERS_SINCE:
                self._name_leader(target, data, response)
            if data.records:
                bytes_fetched += len(data.records)
                if session is not None and self._plan.is_incremental:
                    session.move_to_end(target)
        self._context.metrics.bytes_fetched += bytes_fetched
        return response

    def _name_leader(
        self, target: FetchTarget, data: PartitionData, response: FetchResponse
    ) -> None:
        if self._leaders is None:
            self._leaders = NamedLeaders(self._context)
        topic = self._context.topics.find_by_id(target.topic_id)
        data.current_leader = self._leaders.leader(topic, target.partition)
        response.node_endpoints = self._leaders.endpoints()

    def _is_news(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether this is new to the session's client; remembers it as reported.

        An error resets what was reported, so that the recovery from it is reported as well.
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
