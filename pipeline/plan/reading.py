"""Reads one range of offsets from the broker, as Arrow batches.

Owns the fetch loop of a task: the next fetch is under way while the last one is decoded, transient
errors are retried from the last decoded offset, and missing records are data loss or a note. Every
offset of the range is accounted for: decoded, known to be a gap, or an error.

Source: Kafka `Fetcher`; Spark `KafkaDataConsumer` (data loss).
"""

import time
from collections.abc import Awaitable, Iterator
from typing import Any, Final

import pyarrow as pa

from client.core.retry import is_retriable
from client.errors import BrokerRefused, BrokerUnreachable, ClientError
from pipeline.errors import DataLoss
from pipeline.net.cluster import EARLIEST, Cluster, Fetched, check_code
from pipeline.plan.lake_files import read_gap
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules, PartitionDecoder
from protocol.error_codes import ErrorCode
from protocol.records.entry_loops import whole_entries

MAX_WAIT_MS: Final = 500
_FAILURES_MAX: Final = 8
_EMPTY_MAX: Final = 4
_PAUSE_S: Final = 0.2
_FIRST_BYTES: Final = 1 << 20
"""Of the first fetch, which shows how large records are."""
_SLACK_BYTES: Final = 64 << 10
"""About a batch: a fetch for the rest of a range may end within one."""


class RangeReader:
    """Reads one range once. Belongs to one thread, borrows its cluster."""

    def __init__(
        self,
        cluster: Cluster,
        wanted: OffsetRange,
        rules: DecodeRules,
        *,
        fetch_bytes: int,
        fail_on_data_loss: bool,
        archive: str = "",
    ) -> None:
        """Prepare; no request is sent before `batches`.

        What retention deletes meanwhile comes from the archive with the state directory `archive`.
        """
        self._cluster = cluster
        self._wanted = wanted
        self._rules = rules
        self._fetch_bytes = fetch_bytes
        self._fail = fail_on_data_loss
        self._archive = archive
        self._decoder = PartitionDecoder(
            wanted.topic, wanted.partition, wanted.start, wanted.end, rules
        )
        # Most ranges with a stop end in their first fetch.
        self._may_end = rules.stop is not None
        self._failures = 0
        self._empty = 0
        self._bytes_per_offset = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records of the range in order.

        Raises:
            DataLoss: offsets of the range are missing and the options make that an error.
            CorruptData: the broker's bytes contradict themselves.
            BrokerRefused: access is denied, or the topic was deleted.
            BrokerUnreachable: no answer after all retries.
        """
        decoder = self._decoder
        pending: Awaitable[Any] | None = None
        while not decoder.is_done:
            try:
                answer = pending or self._send(decoder.next_offset)
                pending = None
                fetched = self._cluster.receive_fetch(answer)
                if fetched is not None and fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    yield from self._outside_log()
                    continue
                if fetched is None or not self._is_usable(fetched):
                    continue
                following = self._offset_after(fetched.records)
                if following is not None and following < self._wanted.end and not self._may_end:
                    pending = self._send(following)
            except (BrokerUnreachable, BrokerRefused) as error:
                pending = None
                self._recover(error)
                continue
            yield from decoder.feed(fetched.records, fetched.aborted)
            self._failures = 0
            self._may_end = False

    def _send(self, offset: int) -> Awaitable[Any]:
        return self._cluster.send_fetch(
            self._wanted.topic_partition,
            offset,
            max_bytes=min(self._fetch_bytes, self._bytes_from(offset)),
            max_wait_ms=MAX_WAIT_MS,
            read_committed=self._rules.read_committed,
        )

    def _bytes_from(self, offset: int) -> int:
        """About how many bytes the rest of the range has, so that none beyond it is sent."""
        if not self._bytes_per_offset:
            return _FIRST_BYTES
        return int((self._wanted.end - offset) * self._bytes_per_offset) + _SLACK_BYTES

    def _offset_after(self, records: memoryview) -> int | None:
        """The offset after the last complete entry in `records`; notes how large they are."""
        size = len(records)
        used, last_offset, entries = whole_entries(records, 0, size, size, False)
        if not entries:
            return None
        first_offset = int.from_bytes(records[:8], "big", signed=True)
        self._bytes_per_offset = used / max(last_offset + 1 - first_offset, 1)
        return last_offset + 1

    def _is_usable(self, fetched: Fetched) -> bool:
        """Whether there are records to decode; errors are raised or handled."""
        check_code(fetched.error_code, self._wanted.topic_partition)
        if fetched.records:
            self._empty = 0
            return True
        self._empty += 1
        limit = fetched.last_stable_offset if self._rules.read_committed else fetched.high_watermark
        if self._empty >= _EMPTY_MAX:
            # The offsets exist without records: compaction, or markers at the end.
            if limit < self._wanted.end and self._fail:
                raise DataLoss(self._lost(f"the partition now ends at {limit}"))
            self._decoder.next_offset = self._wanted.end
        return False

    def _outside_log(self) -> Iterator[pa.RecordBatch]:
        """Continue after an offset below the log's start, or above its end."""
        tp, end = self._wanted.topic_partition, self._wanted.end
        first = self._cluster.list_offsets({tp: EARLIEST})[tp].offset
        next_offset = self._decoder.next_offset
        deleted = OffsetRange(*tp, next_offset, min(first, end))
        if self._archive and deleted.size > 0:
            yield from read_gap(self._archive, deleted, self._rules, fail_on_data_loss=self._fail)
        elif self._fail:
            raise DataLoss(self._lost(f"the partition now starts at {first}"))
        self._decoder.next_offset = deleted.end if deleted.size > 0 else end

    def _lost(self, what: str) -> str:
        one = self._wanted
        return (
            f"{one.topic}-{one.partition}: offsets {self._decoder.next_offset} to {one.end} "
            f"cannot be read, {what}. Retention removed them, or the topic was created again. Set "
            "failOnDataLoss=false to continue with what is there"
        )

    def _recover(self, error: BrokerUnreachable | BrokerRefused) -> None:
        self._failures += 1
        if not is_retriable(error) or self._failures >= _FAILURES_MAX:
            if self._fail or not self._is_gone():
                raise error
            self._decoder.next_offset = self._wanted.end
            return
        self._cluster.drop_metadata(self._wanted.topic)
        time.sleep(_PAUSE_S * self._failures)

    def _is_gone(self) -> bool:
        """Whether the topic was deleted, as far as the cluster reports it."""
        try:
            return not self._cluster.topics([self._wanted.topic])
        except ClientError:
            return False
