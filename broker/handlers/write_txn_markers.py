"""WriteTxnMarkers (key 27, versions 0-2): end a producer's transaction in single partitions.

Between Kafka's brokers it carries every commit; here it serves the tool that aborts a hanging
transaction (`kafka-transactions abort`). The log refuses markers of a past epoch.

A partition that a marker names twice gets it once, and the results of a producer are answered
together. No producer has a negative id. A marker for one is an unknown server error, as is one
with epoch -1 or a version below 0: Kafka fails inside and has no code for it.

Versions: v1 flexible, v2 transaction version: from 2 on (KIP-890) each transaction ends with an
epoch of its own, so the marker's must be newer than the producer's.

Source: Kafka `KafkaApis.handleWriteTxnMarkersRequest`; KIP-98, KIP-664.
"""

from functools import partial

from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.requests.pending import Pending
from broker.transactions.state import TopicPartition
from protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.error_codes import ErrorCode
from protocol.records.builder import build_end_txn_marker
from protocol.records.layout import NO_PRODUCER_EPOCH

_EPOCH_PER_TRANSACTION_SINCE = 2
"""The version of transactions in which each one ends with an epoch of its own."""


def handle(
    context: Context, request: RequestContext, message: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    """Write every marker; answer when all are on disk or refused."""
    return _Writing(context, message).pending


def _refusal(marker: WritableTxnMarker) -> ErrorCode | None:
    """Why no partition can take the marker."""
    if marker.producer_id < 0 or marker.transaction_version < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if marker.producer_epoch < 0:
        is_none = marker.producer_epoch == NO_PRODUCER_EPOCH
        return ErrorCode.UNKNOWN_SERVER_ERROR if is_none else ErrorCode.INVALID_PRODUCER_EPOCH
    return None


class _Writing:
    """One request under way: counts the missing writes, and answers when none is left."""

    def __init__(self, context: Context, message: WriteTxnMarkersRequest) -> None:
        self.pending: Pending[WriteTxnMarkersResponse] = Pending()
        self._context = context
        self._results: dict[int, dict[TopicPartition, ErrorCode]] = {}
        self._missing = 1
        for marker in message.markers:
            self._write(marker)
        self._one_less()

    def _write(self, marker: WritableTxnMarker) -> None:
        results = self._results.setdefault(marker.producer_id, {})
        asked = dict.fromkeys(
            (topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        )
        for tp in asked:
            results.setdefault(tp, ErrorCode.NONE)  # in the order of the request
        refusal = _refusal(marker)
        if refusal is not None:
            results.update(dict.fromkeys(asked, refusal))
            return
        batch = build_end_txn_marker(
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._context.clock.wall_ms(),
            coordinator_epoch=marker.coordinator_epoch,
        )
        for tp in asked:
            try:
                log = self._context.topics.led_log(*tp)
            except REFUSALS as error:
                results[tp] = error_code(error)
                continue
            producer = log.producers.state.find(marker.producer_id)
            if (
                marker.transaction_version >= _EPOCH_PER_TRANSACTION_SINCE
                and producer is not None
                and marker.producer_epoch <= producer.producer_epoch
            ):
                results[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
                continue
            self._missing += 1
            self._context.transactions.append_marker(
                log,
                batch,
                partial(self._settle, results, tp),
                producer_id=marker.producer_id,
                is_commit=marker.transaction_result,
            )

    def _settle(
        self, results: dict[TopicPartition, ErrorCode], tp: TopicPartition, error: ErrorCode
    ) -> None:
        results[tp] = error
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.pending.resolve(self._response())

    def _response(self) -> WriteTxnMarkersResponse:
        markers = []
        for producer_id, results in self._results.items():
            by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
            for (name, index), error in results.items():
                by_topic.setdefault(name, []).append(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                )
            topics = [
                WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ]
            if topics:
                markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=markers)
