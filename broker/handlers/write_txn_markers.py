"""WriteTxnMarkers (key 27, versions 0-2): end a producer's transaction in single partitions.

Between Kafka's brokers it carries every commit; here it serves the tool that aborts a hanging
transaction (`kafka-transactions abort`). The log refuses markers of a past epoch.

A partition that a marker names twice gets it once, and the results of a producer are answered
together. No producer has a negative id. A marker for one is an unknown server error, as is one
with epoch -1 or a version below 0: Kafka fails inside and has no code for it.

From transaction version 2 on (KIP-890) each transaction ends with an epoch of its own, so the
marker's must be newer than the producer's.

Source: Kafka `KafkaApis.handleWriteTxnMarkersRequest`; KIP-98, KIP-664.
"""

from functools import partial

from broker.replies.pending import Pending
from broker.requests.by_topic import by_key
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.transactions.state import TopicPartition
from protocol.api import write_txn_markers as api
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_end_txn_marker
from protocol.records.layout import NO_PRODUCER_EPOCH
from protocol.structs import PartitionError, TopicErrors
from storage.disk.steps import Steps

_EPOCH_PER_TRANSACTION_SINCE = 2
"""The version of transactions in which each one ends with an epoch of its own."""


def handle(
    context: Context, request: RequestContext, message: api.WriteTxnMarkersRequest
) -> Steps[Pending[api.WriteTxnMarkersResponse]]:
    """Write every marker; answer when all are on disk or refused."""
    writing = _Writing(context, request)
    for marker in message.markers:
        yield from writing.write(marker)
    writing.settle(None, ErrorCode.NONE)
    return writing.pending


def _refusal(marker: api.WritableTxnMarker) -> ErrorCode | None:
    """Why no partition can take the marker."""
    if marker.producer_id < 0 or marker.transaction_version < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if marker.producer_epoch < 0:
        is_none = marker.producer_epoch == NO_PRODUCER_EPOCH
        return ErrorCode.UNKNOWN_SERVER_ERROR if is_none else ErrorCode.INVALID_PRODUCER_EPOCH
    return None


class _Writing:
    """One request under way: counts the missing writes, and answers when none is left."""

    def __init__(self, context: Context, request: RequestContext) -> None:
        self._request = request
        self.pending: Pending[api.WriteTxnMarkersResponse] = Pending()
        self._context = context
        self._response = api.WriteTxnMarkersResponse()
        self._producers: dict[int, api.WritableTxnMarkerResult] = {}
        self._topics: dict[tuple[int, str], TopicErrors] = {}
        self._results: dict[tuple[int, TopicPartition], PartitionError] = {}
        self._missing = 1

    def write(self, marker: api.WritableTxnMarker) -> Steps[None]:
        """Write the marker to its partitions, one after the other."""
        named = yield from by_key(
            ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes),
            lambda tp: tp,
        )
        refusal = _refusal(marker)
        batch = b""
        if refusal is None:
            batch = build_end_txn_marker(
                commit=marker.transaction_result,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                timestamp_ms=self._context.clock.wall_ms(),
                coordinator_epoch=marker.coordinator_epoch,
            )
        for tp in named:
            result = self._result(marker.producer_id, tp)
            if refusal is not None:
                result.error_code = refusal
            else:
                self._write(marker, batch, tp, result)
            yield None

    def _write(
        self,
        marker: api.WritableTxnMarker,
        batch: bytes,
        tp: TopicPartition,
        result: PartitionError,
    ) -> None:
        try:
            log = self._context.topics.led_log(*tp)
        except REFUSALS as error:
            result.error_code = error_code(error)
            return
        producer = log.producers.state.find(marker.producer_id)
        if (
            marker.transaction_version >= _EPOCH_PER_TRANSACTION_SINCE
            and producer is not None
            and marker.producer_epoch <= producer.producer_epoch
        ):
            result.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return
        self._missing += 1
        self._context.transactions.append_marker(
            log,
            batch,
            partial(self._written, marker, tp, result),
            producer_id=marker.producer_id,
            is_commit=marker.transaction_result,
        )

    def _result(self, producer_id: int, tp: TopicPartition) -> PartitionError:
        """The place of the result in the answer: one for each producer and partition."""
        result = self._results.get((producer_id, tp))
        if result is None:
            producer = self._producers.get(producer_id)
            if producer is None:
                producer = api.WritableTxnMarkerResult(producer_id=producer_id)
                self._producers[producer_id] = producer
                self._response.markers.append(producer)
            topic = self._topics.get((producer_id, tp[0]))
            if topic is None:
                topic = TopicErrors(name=tp[0])
                self._topics[producer_id, tp[0]] = topic
                producer.topics.append(topic)
            result = PartitionError(partition_index=tp[1])
            self._results[producer_id, tp] = result
            topic.partitions.append(result)
        return result

    def _written(
        self,
        marker: api.WritableTxnMarker,
        tp: TopicPartition,
        result: PartitionError,
        error: ErrorCode,
    ) -> None:
        if error is ErrorCode.NONE:
            how = "committed" if marker.transaction_result else "aborted"
            what = f"{how} the transaction of producer {marker.producer_id} in {tp[0]}-{tp[1]}"
            self._context.security.audit.changed(self._request, what)
        self.settle(result, error)

    def settle(self, result: PartitionError | None, error: ErrorCode) -> None:
        """One write less is missing, or the request has no further ones (None)."""
        if result is not None:
            result.error_code = error
        self._missing -= 1
        if self._missing == 0:
            self.pending.resolve(self._response)
