"""WriteTxnMarkers (key 27, versions 0-2): end a producer's transaction in single partitions.

Between Kafka's brokers it carries every commit; here it serves the tool that aborts a hanging
transaction (`kafka-transactions abort`). The log refuses markers of an epoch that is over.

Versions: v1 flexible, v2 transaction version, which changes nothing for a marker.

Source: Kafka `KafkaApis.handleWriteTxnMarkersRequest`; KIP-98, KIP-664.
"""

from functools import partial

from broker.context import Context, RequestContext
from broker.error_mapping import REFUSALS, error_code
from broker.pending import Pending
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


def handle(
    context: Context, request: RequestContext, message: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    """Write every marker; answered when all are on disk or refused."""
    return _Writing(context, message).pending


class _Writing:
    """One request under way: counts what is missing, and answers when nothing is."""

    def __init__(self, context: Context, message: WriteTxnMarkersRequest) -> None:
        self.pending: Pending[WriteTxnMarkersResponse] = Pending()
        self._context = context
        self._response = WriteTxnMarkersResponse()
        self._missing = 1
        for marker in message.markers:
            self._response.markers.append(self._write(marker))
        self._one_less()

    def _write(self, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        batch = build_end_txn_marker(
            commit=marker.transaction_result,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._context.clock.wall_ms(),
            coordinator_epoch=marker.coordinator_epoch,
        )
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                partition = WritableTxnMarkerPartitionResult(partition_index=index)
                partitions.append(partition)
                self._append(topic.name, partition, batch, marker)
            result.topics.append(
                WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)
            )
        return result

    def _append(
        self,
        name: str,
        partition: WritableTxnMarkerPartitionResult,
        batch: bytes,
        marker: WritableTxnMarker,
    ) -> None:
        try:
            log = self._context.topics.led_log(name, partition.partition_index)
        except REFUSALS as error:
            partition.error_code = error_code(error)
            return
        self._missing += 1
        self._context.transactions.append_marker(
            log,
            batch,
            partial(self._settle, partition),
            producer_id=marker.producer_id,
            is_commit=marker.transaction_result,
        )

    def _settle(self, partition: WritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
        partition.error_code = error
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.pending.resolve(self._response)
