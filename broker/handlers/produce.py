"""Produce (key 0, versions 0-13): append record batches, acknowledge them according to `acks`.

| acks | answered when                                                        |
|------|----------------------------------------------------------------------|
| 0    | never; an error closes the connection, the only way to report it      |
| 1    | the batch is written (page cache)                                     |
| -1   | the batch is on disk (`flush.policy=batch`), or as 1 (`os`)           |

Records acknowledged with acks=0 or 1 are noted, for later requests to wait for (`commit_wait`).

Each partition is independent: its records are stored whole or not at all, and its error does not
affect other partitions. The records field is a view into the request's own frame; the log stamps
offsets and timestamps in place and writes from there. Of a partition that occurs twice in the
request the last records count. A topic without partitions is left out of the answer.

A transactional batch must belong to the request's transactional id. Without one the whole request
is refused, as it is when it carries batches of several producers. A wrong one refuses only the
transactional batches.

Short work is done at once. A batch that decompresses to much, or must be rewritten, is examined in
the side thread, after the batches before it and before those after it; the loop thread assigns
offsets. The total size to decompress per request is bounded (`storage.append.opening`).

Differs from Kafka:

* a refused batch always has an error_message since v8; there some causes have one;
* null records are refused with INVALID_RECORD; there such a request gets no answer.

Source: Kafka `KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords`; KIP-32, KIP-467.
"""

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.clocks.clock import TimerHandle
from broker.errors import ConnectionMustClose, InternalTopic, NotLeader, ReadOnlyWindow
from broker.replies.pending import Pending
from broker.requests.by_topic import STEP, by_key, by_topic
from broker.requests.commit_wait import (
    ACKS_DURABLE,
    ACKS_NONE,
    ACKS_WRITTEN,
    PATIENCE_MS,
)
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.requests.leaders import NamedLeaders
from broker.topics.registry import is_internal
from broker.transactions.coordinator import transactional_producer
from broker.transactions.state import ProducerIdAndEpoch, TopicPartition, refusal_of_a_write
from protocol.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from storage.append.opening import Opening
from storage.append.plan import examine_append
from storage.disk.steps import Slice, Steps, off_loop
from storage.errors import (
    AppendRejected,
    FollowsBucket,
    StorageError,
    StorageFailed,
    TooMuchAtOnce,
)

if TYPE_CHECKING:
    from storage.log.log import Log
    from storage.log.values import AppendResult

_LEADERS_SINCE = 10
_ABORTABLE_SINCE = 11
_JOINS_TXN_SINCE = 12
_TOPIC_IDS_SINCE = 13
_NO_OFFSET = -1
_STEP_BYTES = 128 * 1024
"""Bytes of records of one step, about half a millisecond."""

_PARTITION_COST_BYTES = _STEP_BYTES // 8
"""The cost of a partition's append beside its bytes: eight small ones are one step."""

_ADMIN_CLIENT_ID = "__admin_client"
"""The client id under which Kafka's own tools may write to internal topics."""


def handle(context: Context, request: RequestContext, message: ProduceRequest) -> Any:
    """Append every partition's records, then answer according to `acks`.

    The result is the response, a promise of it, or None if the client wants none.
    """
    if message.acks not in (ACKS_NONE, ACKS_WRITTEN, ACKS_DURABLE):
        return _refuse_all(message, ErrorCode.INVALID_REQUIRED_ACKS)
    topics = message.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        (data,) = topics[0].partition_data
        if transactional_producer(data.records) is None:
            return _Appends(context, request, message).append_one(topics[0], data)
    return _handle_in_steps(context, request, message)


def _handle_in_steps(
    context: Context, request: RequestContext, message: ProduceRequest
) -> Steps[Any]:
    appends = _Appends(context, request, message)
    yield from _keep_each_once(message)
    batches = yield from _transactional_batches(appends, message)
    if not batches:
        return (yield from appends.append_all())
    if message.transactional_id is None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return (yield from _refuse_all(message, error))
    producer = batches[0].producer
    if any(batch.producer != producer for batch in batches):
        return (yield from _refuse_all(message, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    named = dict.fromkeys(batch.partition for batch in batches)
    appends.gate = gate = _Gate(context, request, message.transactional_id, producer, named)
    joins = request.api_version >= _JOINS_TXN_SINCE
    partitions = [tp for tp in named if context.topics.has_partition(*tp)]
    must_wait = context.transactions.must_wait
    if partitions and must_wait(message.transactional_id, producer, partitions, joins=joins):
        return _join_transaction(context, message, appends, gate, partitions, joins=joins)
    return (yield from appends.append_all())


class _Gate:
    """Whether the transactional batches of one request may be written.

    Each batch is checked when it is reached: the transaction may have ended in between.
    """

    __slots__ = ("_context", "_partitions", "_version", "error", "producer", "transactional_id")

    def __init__(
        self,
        context: Context,
        request: RequestContext,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Check the batches to `partitions`; once `error` is set, refuse all of them."""
        self._context = context
        self._version = request.api_version
        self.transactional_id = transactional_id
        self.producer = producer
        self._partitions = frozenset(partitions)
        self.error = ErrorCode.NONE

    def refusal(self, partition: TopicPartition) -> ErrorCode:
        """The error for the client if it may not write to this partition, else NONE."""
        context = self._context
        if partition not in self._partitions or not context.topics.has_partition(*partition):
            return ErrorCode.NONE
        error = self.error
        if error is ErrorCode.NONE:
            error = context.transactions.append_error(
                self.transactional_id, self.producer, partition
            )
        return refusal_of_a_write(
            error,
            knows_abortable=self._version >= _ABORTABLE_SINCE,
            knows_concurrent=self._version >= _JOINS_TXN_SINCE,
        )


def _keep_each_once(message: ProduceRequest) -> Steps[None]:
    """Keep only the last records of each partition, and drop topics without partitions."""
    counts = [len(topic.partition_data) for topic in message.topic_data]
    if min(counts, default=0) > 0 and sum(counts) <= STEP:
        keys = {
            (topic.name, topic.topic_id, data.index)
            for topic in message.topic_data
            for data in topic.partition_data
        }
        if len(keys) == sum(counts):
            return  # nearly always
    partitions = yield from by_key(
        ((topic, data) for topic in message.topic_data for data in topic.partition_data),
        lambda named: (named[0].name, named[0].topic_id, named[1].index),
    )
    topics: dict[tuple[str, bytes], TopicProduceData] = {}
    for number, ((name, topic_id, _), named) in enumerate(partitions.items()):
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = TopicProduceData(name=name, topic_id=topic_id)
        topic.partition_data.append(named[-1][1])
        if number % STEP == STEP - 1:
            yield None
    message.topic_data = list(topics.values())


class _TransactionalBatch(NamedTuple):
    """A batch of a transaction, and its partition."""

    producer: ProducerIdAndEpoch
    partition: TopicPartition


def _transactional_batches(
    appends: "_Appends", message: ProduceRequest
) -> Steps[list[_TransactionalBatch]]:
    """The transactional batches of the request, also those to partitions that do not exist."""
    batches = []
    spent = Slice(STEP)
    for topic in message.topic_data:
        name = appends.topic_name(topic) or ""
        for data in topic.partition_data:
            producer = transactional_producer(data.records)
            if producer is not None:
                batches.append(_TransactionalBatch(producer, (name, data.index)))
            if spent.add(1):
                yield None
    return batches


def _join_transaction(
    context: Context,
    message: ProduceRequest,
    appends: "_Appends",
    gate: _Gate,
    partitions: list[TopicPartition],
    *,
    joins: bool,
) -> Pending[Any]:
    """Append once every partition is part of the transaction, which must be durable first.

    Without `joins` the partitions are part of it already, and worker 1 has to confirm that.

    For that time the records are copied out of the request's frame, which the connection owns.
    """
    pending = _Joining()
    for topic in message.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else memoryview(bytearray(data.records))

    def admitted(error: ErrorCode) -> None:
        gate.error = error
        # Even if the client has gone: its records are then part of the transaction.
        pending.resolve(context.turns.begin_or_fail(appends.append_all(), pending))

    transactions = context.transactions
    transactions.admit(gate.transactional_id, gate.producer, partitions, admitted, joins=joins)
    return pending


class _Joining(Pending[Any]):
    """Records that wait until their partitions are part of the transaction.

    The connection's next request does not begin before they are appended.
    """

    __slots__ = ()

    is_begun = False


class _Appends:
    """The appends of one request."""

    __slots__ = ("_context", "_leaders", "_message", "_opening", "_request", "_wait", "gate")

    def __init__(self, context: Context, request: RequestContext, message: ProduceRequest) -> None:
        """Append for `message`; `gate` admits its transactional batches, if there are any."""
        self._context = context
        self._request = request
        self._message = message
        self._opening = Opening(context.config.queued_max_decompressed_bytes)
        self._leaders: NamedLeaders | None = None
        self._wait: _DurableWait | None = None
        self.gate: _Gate | None = None

    def append_one(self, topic: TopicProduceData, data: PartitionProduceData) -> Any:
        """Append the only records of the request: at once, or in steps if that takes long."""
        name = self.topic_name(topic)
        answer = self._try_at_once(name, data)
        if answer is None:
            return self.append_all(is_tried=True)
        return self._acknowledge([_topic_answer(topic, name, [answer])])

    def append_all(self, *, is_tried: bool = False) -> Steps[Any]:
        """Append what the gate allows, and answer according to `acks`.

        With `is_tried` the first records are known to take long.
        """
        topics = []
        spent_bytes = 0
        for topic in self._message.topic_data:
            name = self.topic_name(topic)
            answers = []
            for data in topic.partition_data:
                if spent_bytes >= _STEP_BYTES:
                    spent_bytes = 0
                    yield None
                answer = None if is_tried else self._try_at_once(name, data)
                is_tried = False
                spent_bytes += _PARTITION_COST_BYTES + len(data.records or b"")
                if answer is None:
                    answer = yield from self._do_aside(name, data)
                answers.append(answer)
            topics.append(_topic_answer(topic, name, answers))
        return self._acknowledge(topics)

    def topic_name(self, topic: TopicProduceData) -> str | None:
        """The name of the topic to append to; None when a topic id is unknown."""
        if self._request.api_version < _TOPIC_IDS_SINCE:
            return topic.name
        found = self._context.topics.find_by_id(topic.topic_id)
        return None if found is None else found.name

    def _acknowledge(self, topics: list[TopicProduceResponse]) -> Any:
        response = ProduceResponse(responses=topics)
        if self._message.acks == ACKS_NONE:
            _close_on_error(response)
            return None
        if self._leaders is not None:
            response.node_endpoints = self._leaders.endpoints()
        if self._wait is not None:
            return self._wait.answer(response, self._message.timeout_ms)
        return response

    def _try_at_once(
        self, name: str | None, data: PartitionProduceData
    ) -> PartitionProduceResponse | None:
        """Append the records; None, with nothing changed, if that takes long."""
        answer = PartitionProduceResponse()
        answer.index = data.index
        answer.base_offset = _NO_OFFSET
        if name is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return answer
        context = self._context
        records = data.records
        if not isinstance(records, memoryview):
            records = memoryview(records or b"")
        log = None
        try:
            if self.gate is None or self._passes(self.gate, name, answer):
                log = context.topics.led_log(name, data.index)
                self._check(log, name, records)
                now_ms = context.clock.wall_ms()
                result = log.append(
                    records,
                    now_ms=now_ms,
                    stamp_slack_ms=context.time.stamp_slack_ms,
                    produce_version=self._request.api_version,
                    opening=self._opening,
                )
                self._appended(log, result, answer, now_ms)
        except TooMuchAtOnce:
            return None
        except REFUSALS as error:
            self._reject(answer, name, log, error)
        return answer

    def _do_aside(
        self, name: str | None, data: PartitionProduceData
    ) -> Steps[PartitionProduceResponse]:
        """Examine the records in the side thread, then append them."""
        assert name is not None, "tried at once before"
        context, records = self._context, memoryview(data.records or b"")
        answer = PartitionProduceResponse(index=data.index, base_offset=_NO_OFFSET)
        log = examined = None
        now_ms = 0
        try:
            # Each time round: topics, transactions and settings may have changed meanwhile.
            while self.gate is None or self._passes(self.gate, name, answer):
                log = context.topics.led_log(name, data.index)
                self._check(log, name, records)
                if examined is not None:
                    result = log.append_examined(
                        examined, now_ms=now_ms, stamp_slack_ms=context.time.stamp_slack_ms
                    )
                    if result is not None:
                        self._appended(log, result, answer, now_ms)
                        break
                now_ms = context.clock.wall_ms()
                examine = partial(
                    examine_append,
                    records,
                    rules=log.append_rules,
                    now_ms=now_ms,
                    opening=self._opening.aside(),
                    produce_version=self._request.api_version,
                )
                try:
                    examined = yield from off_loop(examine)
                finally:
                    self._opening.return_to_loop()
        except REFUSALS as error:
            self._reject(answer, name, log, error)
        return answer

    def _passes(self, gate: _Gate, name: str, answer: PartitionProduceResponse) -> bool:
        """Whether `gate` admits the records; if not, the error is in `answer`."""
        code = gate.refusal((name, answer.index))
        if code is ErrorCode.NONE:
            return True
        self._context.metrics.appends_rejected[code.name.lower()] += 1
        answer.error_code = code
        return False

    def _check(self, log: "Log", name: str, records: memoryview) -> None:
        """Raise one of REFUSALS if this client may not write to `log`, or no client can now."""
        if is_internal(name) and self._request.client_id != _ADMIN_CLIENT_ID:
            raise InternalTopic(f"Topic {name!r} is written by the broker only.")
        self._context.space.check(log.path, len(records))

    def _appended(
        self, log: "Log", result: "AppendResult", answer: PartitionProduceResponse, now_ms: int
    ) -> None:
        context = self._context
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time_ms
        answer.log_start_offset = result.log_start_offset
        if result.size_bytes and not result.is_duplicate:
            metrics = context.metrics
            metrics.batches_appended += 1
            metrics.records_appended += result.records_count
            metrics.bytes_appended += result.size_bytes
            context.group_commit.appended(log, result.size_bytes)
            if result.log_append_time_ms < 0:
                context.metrics.client_times.appended(
                    self._request.client_id,
                    log.topic,
                    log.partition,
                    result.first_offset,
                    min_timestamp=result.min_timestamp,
                    max_timestamp=result.max_timestamp,
                    now_ms=now_ms,
                )
        if not log.waits_for_disk or result.last_offset < 0:
            return
        if self._message.acks == ACKS_DURABLE:
            if self._wait is None:
                self._wait = _DurableWait(context)
            self._wait.add(log, result.last_offset + 1, answer)
        else:
            # The client has the answer before the records are on disk.
            context.group_commit.acknowledge(log, result.last_offset + 1)

    def _reject(
        self, answer: PartitionProduceResponse, topic: str, log: "Log | None", error: Exception
    ) -> None:
        """Fill `answer` with the refusal `error`."""
        context = self._context
        code = error_code(error)
        answer.error_code = code
        context.metrics.appends_rejected[code.name.lower()] += 1
        if isinstance(error, StorageFailed) and log is not None:
            context.group_commit.append_failed(log, error)
        if isinstance(error, NotLeader) and self._request.api_version >= _LEADERS_SINCE:
            if self._leaders is None:
                self._leaders = NamedLeaders(context)
            found = context.topics.find(error.topic)
            answer.current_leader = self._leaders.leader(found, answer.index)
        if isinstance(error, ReadOnlyWindow | FollowsBucket):
            answer.error_message = str(error)
        if isinstance(error, AppendRejected):
            if log is not None:
                answer.log_start_offset = log.log_start_offset
                if code is ErrorCode.INVALID_TIMESTAMP:
                    now_ms = context.clock.wall_ms()
                    context.metrics.client_times.refused(self._request.client_id, log.topic, now_ms)
            answer.error_message = str(error)
            answer.record_errors = [
                BatchIndexAndErrorMessage(
                    batch_index=record.batch_index, batch_index_error_message=record.message
                )
                for record in error.record_errors
            ]
            first = error.record_errors[0].message if error.record_errors else None
            context.security.audit.append_refused(
                self._request, topic, answer.index, code.name, first or str(error)
            )


def _topic_answer(
    topic: TopicProduceData, name: str | None, answers: list[PartitionProduceResponse]
) -> TopicProduceResponse:
    answer = TopicProduceResponse(partition_responses=answers)
    answer.name = name or topic.name
    answer.topic_id = topic.topic_id
    return answer


def _refuse_all(message: ProduceRequest, error: ErrorCode) -> Steps[ProduceResponse]:
    """Refuse all partitions, for a reason that concerns the whole request.

    Raises:
        ConnectionMustClose: with acks=0.
    """

    def refusal(_: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        return PartitionProduceResponse(index=data.index, error_code=error, base_offset=_NO_OFFSET)

    topics = yield from by_topic(
        message.topic_data,
        refusal,
        lambda topic, answers: _topic_answer(topic, topic.name, answers),
        partitions_of=attrgetter("partition_data"),
    )
    response = ProduceResponse(responses=topics)
    if message.acks == ACKS_NONE:
        _close_on_error(response)
    return response


def _close_on_error(response: ProduceResponse) -> None:
    """With acks=0 there is no answer, so an error ends the connection.

    Raises:
        ConnectionMustClose: a partition failed.
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                code = ErrorCode(partition.error_code)
                raise ConnectionMustClose(
                    f"Produce with acks=0 failed for {topic.name}-{partition.index}: {code.name}"
                )


class _DurableWait(Pending[ProduceResponse]):
    """The answer of one acks=all request some of whose partitions are not on disk yet.

    Some appends of a request may be durable before its last partition is appended. So the count
    starts at one, and `answer` subtracts that one.

    The request's timeout is for other replicas, of which there are none, so it never shortens the
    wait for the disk, as in Kafka. It can lengthen the wait. Records that are not durable after
    both the timeout and `PATIENCE_MS` are answered REQUEST_TIMED_OUT; they are written, and may
    become durable later.
    """

    __slots__ = ("_context", "_missing", "_response", "_timer", "_waiting")

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context
        self._missing = 1
        self._waiting: dict[int, PartitionProduceResponse] = {}
        self._response: ProduceResponse | None = None
        self._timer: TimerHandle | None = None

    def add(self, log: "Log", next_offset: int, answer: PartitionProduceResponse) -> None:
        """Wait until everything of `log` below `next_offset` is on disk."""
        if self._context.group_commit.has(log, next_offset):
            return
        self._missing += 1
        self._waiting[id(answer)] = answer

        def settle(error: StorageError | None) -> None:
            del self._waiting[id(answer)]
            if error is not None:
                answer.error_code = error_code(error)
                answer.base_offset = _NO_OFFSET
                answer.log_append_time_ms = NO_TIMESTAMP
            self._missing -= 1
            if self._missing == 0:
                self._resolve()

        self._context.group_commit.when_durable(log, next_offset, settle)

    def answer(
        self, response: ProduceResponse, timeout_ms: int
    ) -> ProduceResponse | Pending[ProduceResponse]:
        """Return `response` itself when nothing is missing, else the promise of it."""
        self._missing -= 1
        if self._missing == 0:
            return response
        self._response = response
        self.on_abandon = self._stop_timer
        delay_ms = timeout_ms if timeout_ms > PATIENCE_MS else PATIENCE_MS
        self._timer = self._context.clock.call_later(delay_ms, self._time_out)
        return self

    def _resolve(self) -> None:
        assert self._response is not None, "until it is set, one is missing"
        self._stop_timer()
        self.resolve(self._response)

    def _time_out(self) -> None:
        for answer in self._waiting.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._resolve()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
