"""Produce (key 0, versions 0-13): append record batches, acknowledge as `acks` asks.

| acks | answered when                                                        |
|------|----------------------------------------------------------------------|
| 0    | never; an error closes the connection, the only way to tell           |
| 1    | the batch is written (page cache)                                     |
| -1   | the batch is on disk (`flush.policy=batch`), or as 1 (`os`)           |

What was acknowledged with acks=0 or 1 is noted, for later requests to wait for (`commit_wait`).

Each partition stands alone: its records are stored whole or not at all, and its error does not
touch its neighbours.  The records field is a view into the request's own frame; the log stamps
offsets and timestamps in place and writes from there.  Of a partition that stands in the request
twice the last records count, and a topic without partitions is left out of the answer.

A transactional batch has to belong to the request's transactional id: without one the whole request
is refused, as it is when it carries batches of several producers; a wrong one refuses the
transactional batches and no others.

Versions: v1 throttle time, v2 log append time, v3 transactional id and exactly one v2 batch per
partition, v5 log start offset, v7 zstd, v8 per-record errors, v9 flexible, v11
TRANSACTION_ABORTABLE, v12 a partition joins the transaction with its first records (KIP-890), v13
topic ids.

Differs from Kafka:

* a refused batch always has an error_message since v8; there some causes have one;
* null records are refused with INVALID_RECORD; there such a request gets no answer.

Source: Kafka `KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords`; KIP-32, KIP-467.
Read next: `storage.append` for what is checked, `broker.group_commit` for the wait.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.clock import TimerHandle
from broker.commit_wait import PATIENCE_MS
from broker.context import Context, RequestContext
from broker.error_mapping import REFUSALS, error_code
from broker.errors import ConnectionMustClose, InternalTopic
from broker.pending import Pending
from broker.topics import is_internal
from broker.transactions.entry import transactional_producer
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
from storage.errors import AppendRejected, StorageError, StorageFailed

if TYPE_CHECKING:
    from storage.log import Log

ACKS_NONE = 0
ACKS_WRITTEN = 1
ACKS_DURABLE = -1

_ABORTABLE_SINCE = 11
_JOINS_TXN_SINCE = 12
_TOPIC_IDS_SINCE = 13
_NO_OFFSET = -1
_ADMIN_CLIENT_ID = "__admin_client"
"""The client id under which Kafka's own tools may write to internal topics."""
_NOTHING_REFUSED: Final[Mapping[TopicPartition, ErrorCode]] = MappingProxyType({})


def handle(
    context: Context, request: RequestContext, message: ProduceRequest
) -> ProduceResponse | Pending[ProduceResponse] | Pending[ProduceResponse | None] | None:
    """Append every partition's records, then answer as `acks` asks."""
    if message.acks not in (ACKS_NONE, ACKS_WRITTEN, ACKS_DURABLE):
        return _refuse_all(message, ErrorCode.INVALID_REQUIRED_ACKS)
    _keep_each_once(message)
    batches = _transactional_batches(context, request, message)
    if not batches:
        return _append_all(context, request, message, _NOTHING_REFUSED)
    if message.transactional_id is None:
        return _refuse_all(message, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer = batches[0].producer
    if any(batch.producer != producer for batch in batches):
        return _refuse_all(message, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    partitions = [tp for _, tp in batches if context.topics.has_partition(*tp)]
    transactional_id = message.transactional_id
    if request.api_version < _JOINS_TXN_SINCE:
        errors = {
            tp: context.transactions.append_error(transactional_id, producer, tp)
            for tp in partitions
        }
        return _append_all(context, request, message, _refusals(request, errors))
    admitted = context.transactions.is_admitted(transactional_id, producer, partitions)
    if admitted or not partitions:
        return _append_all(context, request, message, _NOTHING_REFUSED)
    return _join_transaction(context, request, message, producer, partitions)


def _refusals(
    request: RequestContext, errors: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """What the partitions are answered that may not be written to."""
    version = request.api_version
    return {
        tp: refusal_of_a_write(
            error,
            knows_abortable=version >= _ABORTABLE_SINCE,
            knows_concurrent=version >= _JOINS_TXN_SINCE,
        )
        for tp, error in errors.items()
        if error is not ErrorCode.NONE
    }


def _keep_each_once(message: ProduceRequest) -> None:
    """Drop what stands before the last records of the same partition, and topics without any."""
    topics = message.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return  # which is nearly all that is sent
    seen: set[tuple[str, bytes, int]] = set()
    for topic in reversed(topics):
        kept = []
        for data in reversed(topic.partition_data):
            key = (topic.name, topic.topic_id, data.index)
            if key not in seen:
                seen.add(key)
                kept.append(data)
        topic.partition_data = kept[::-1]
    message.topic_data = [topic for topic in topics if topic.partition_data]


def _append_all(
    context: Context,
    request: RequestContext,
    message: ProduceRequest,
    refused: Mapping[TopicPartition, ErrorCode],
) -> ProduceResponse | Pending[ProduceResponse] | None:
    """Append what is not `refused` already, and answer as `acks` asks."""
    wait = _DurableWait(context) if message.acks == ACKS_DURABLE else None
    response = ProduceResponse()
    for topic in message.topic_data:
        name = _topic_name(context, request, topic)
        answers = [
            _append(context, request, name, partition, wait, refused)
            if name is not None
            else PartitionProduceResponse(
                index=partition.index,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                base_offset=_NO_OFFSET,
            )
            for partition in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(
                name=name or topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if message.acks == ACKS_NONE:
        _close_on_error(response)
        return None
    if wait is not None:
        return wait.answer(response, message.timeout_ms)
    return response


class _TransactionalBatch(NamedTuple):
    """A batch of a transaction, and where it is to go."""

    producer: ProducerIdAndEpoch
    partition: TopicPartition


def _transactional_batches(
    context: Context, request: RequestContext, message: ProduceRequest
) -> list[_TransactionalBatch]:
    """The transactional batches of the request, also those to partitions that do not exist."""
    batches = []
    for topic in message.topic_data:
        for data in topic.partition_data:
            producer = transactional_producer(data.records)
            if producer is not None:
                name = _topic_name(context, request, topic)
                batches.append(_TransactionalBatch(producer, (name or "", data.index)))
    return batches


def _join_transaction(
    context: Context,
    request: RequestContext,
    message: ProduceRequest,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
) -> Pending[ProduceResponse | None]:
    """Append once every partition is part of the transaction, which has to be durable first.

    The records leave the request's frame, which belongs to the connection, for that time.
    """
    assert message.transactional_id is not None, "asked before"
    pending: Pending[ProduceResponse | None] = Pending()
    for topic in message.topic_data:
        for data in topic.partition_data:
            data.records = None if data.records is None else memoryview(bytearray(data.records))

    def admitted(error: ErrorCode) -> None:
        refused = _refusals(request, dict.fromkeys(partitions, error))
        try:
            reply = _append_all(context, request, message, refused)
        except ConnectionMustClose as must_close:
            pending.fail(must_close)
            return
        if isinstance(reply, Pending):
            reply.subscribe(lambda done: pending.resolve(done.result()))
        else:
            pending.resolve(reply)

    context.transactions.admit(message.transactional_id, producer, partitions, admitted)
    return pending


def _topic_name(context: Context, request: RequestContext, topic: TopicProduceData) -> str | None:
    """The name the records go to; None when a topic id is unknown."""
    if request.api_version < _TOPIC_IDS_SINCE:
        return topic.name
    found = context.topics.find_by_id(topic.topic_id)
    return None if found is None else found.name


def _append(
    context: Context,
    request: RequestContext,
    name: str,
    data: PartitionProduceData,
    wait: "_DurableWait | None",
    refused: Mapping[TopicPartition, ErrorCode],
) -> PartitionProduceResponse:
    """Append one partition's records; the answer is complete unless `wait` has to wait for it."""
    answer = PartitionProduceResponse(index=data.index, base_offset=_NO_OFFSET)
    if (name, data.index) in refused:
        code = refused[name, data.index]
        context.metrics.appends_rejected[code.name.lower()] += 1
        answer.error_code = code
        return answer
    log: Log | None = None
    try:
        log = context.topics.led_log(name, data.index)
        if is_internal(name) and request.client_id != _ADMIN_CLIENT_ID:
            raise InternalTopic(f"Topic {name!r} is written by the broker only.")
        records = data.records
        context.space.check(log.path, 0 if records is None else len(records))
        result = log.append(
            memoryview(b"" if records is None else records),
            now_ms=context.clock.wall_ms(),
            stamp_slack_ms=context.time.stamp_slack_ms,
            produce_version=request.api_version,
        )
    except REFUSALS as error:
        _reject(context, answer, log, error)
        return answer
    answer.base_offset = result.first_offset
    answer.log_append_time_ms = result.log_append_time_ms
    answer.log_start_offset = result.log_start_offset
    if result.size_bytes and not result.is_duplicate:
        metrics = context.metrics
        metrics.batches_appended += 1
        metrics.records_appended += result.records_count
        metrics.bytes_appended += result.size_bytes
        context.commits.appended(log, result.size_bytes)
    if log.config.flush_policy != "os" and result.last_offset >= 0:
        if wait is not None:
            wait.add(log, result.last_offset + 1, answer)
        else:
            context.commits.acknowledge(log, result.last_offset + 1)
    return answer


def _reject(
    context: Context, answer: PartitionProduceResponse, log: "Log | None", error: Exception
) -> None:
    """Fill `answer` with the refusal `error`."""
    code = error_code(error)
    answer.error_code = code
    context.metrics.appends_rejected[code.name.lower()] += 1
    if isinstance(error, StorageFailed) and log is not None:
        context.commits.append_failed(log, error)
    if isinstance(error, AppendRejected):
        if log is not None:
            answer.log_start_offset = log.log_start_offset
        answer.error_message = str(error)
        answer.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]


def _refuse_all(message: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    """Nothing is appended, for a reason that has to do with no partition alone.

    Raises:
        ConnectionMustClose: with acks=0.
    """
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index,
                        error_code=error,
                        base_offset=_NO_OFFSET,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )
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


class _DurableWait:
    """The partitions of one acks=all request that are not on disk yet.

    The appends of a request may become durable while later partitions of it are still being
    appended, so the count starts at one and `answer` gives that one back.

    The request's timeout is for other replicas, of which there are none, so it never shortens the
    wait for the disk, as in Kafka.  It lengthens it: what is not durable after it and after
    `PATIENCE_MS` is answered REQUEST_TIMED_OUT; it is written, and may well become durable later.
    """

    __slots__ = ("_context", "_missing", "_pending", "_response", "_timer", "_waiting")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._missing = 1
        self._waiting: dict[int, PartitionProduceResponse] = {}
        self._pending: Pending[ProduceResponse] | None = None
        self._response: ProduceResponse | None = None
        self._timer: TimerHandle | None = None

    def add(self, log: "Log", next_offset: int, answer: PartitionProduceResponse) -> None:
        """Wait until everything of `log` below `next_offset` is on disk."""
        if log.durable_offset >= next_offset:
            return
        self._missing += 1
        self._waiting[id(answer)] = answer

        def settle(error: StorageError | None) -> None:
            del self._waiting[id(answer)]
            if error is not None:
                answer.error_code = error_code(error)
                answer.base_offset = _NO_OFFSET
                answer.log_append_time_ms = NO_TIMESTAMP
            self._one_less()

        self._context.commits.when_durable(log, next_offset, settle)

    def answer(
        self, response: ProduceResponse, timeout_ms: int
    ) -> ProduceResponse | Pending[ProduceResponse]:
        """`response` itself when nothing is missing, else a promise of it."""
        self._response = response
        self._missing -= 1
        if self._missing == 0:
            return response
        self._pending = Pending(self._stop_timer)
        self._timer = self._context.clock.call_later(max(PATIENCE_MS, timeout_ms), self._time_out)
        return self._pending

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing == 0 and self._pending is not None and self._response is not None:
            self._stop_timer()
            self._pending.resolve(self._response)

    def _time_out(self) -> None:
        assert self._pending is not None, "the timer is set with the promise"
        assert self._response is not None, "the timer is set with the response"
        for answer in self._waiting.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._pending.resolve(self._response)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
