"""Producers and transactions of one log: the checks before an append and the updates after it.

Owns the connection between the log and three things that are independent of each other: the map of
producers (`storage.producers.state`), its snapshot files (`storage.producers.snapshots`) and the
transaction index of the segment that receives a marker. A log without idempotent producers pays one
comparison per batch.

Source: KIP-98; Kafka `UnifiedLog.append` and `UnifiedLog.rebuildProducerState`.
"""

from collections.abc import Iterable, Sequence

from protocol.records.layout import NO_PRODUCER_ID
from protocol.records.scan import Entry, iter_records
from storage.append.plan import Origin
from storage.disk.files import Bytes, Files, sync_file
from storage.producers.snapshots import ProducerSnapshots
from storage.producers.state import CachedBatch, EndTxnMarker, ProducerState
from storage.segment.scan import SegmentScan
from storage.segment.segment import Segment
from storage.segment.txn_index import AbortedTxn


def decode_marker(entry: Bytes) -> EndTxnMarker | None:
    """The transaction marker in a control batch, or None when it is another control record."""
    for record in iter_records(entry):
        return EndTxnMarker.decode(record.key or b"", record.value or b"")
    return None


class LogProducers:
    """The producer state of one log, with its files. Same thread as the log's writer."""

    __slots__ = ("has_aborts", "snapshots", "state")

    def __init__(self, state: ProducerState, snapshots: ProducerSnapshots) -> None:
        """Start with loaded state; recovery sets `has_aborts` when it finds transaction indexes."""
        self.state = state
        self.snapshots = snapshots
        self.has_aborts = False

    @classmethod
    def empty(cls, directory: str, files: Files, *, names: Iterable[str] = ()) -> "LogProducers":
        """A log without known producers; `names` are the files in the directory."""
        return cls(ProducerState(), ProducerSnapshots(directory, files, names=names))

    @property
    def has_any(self) -> bool:
        """Whether a producer is known, or a snapshot that may name one."""
        return len(self.state) > 0 or len(self.snapshots.offsets) > 0

    def check(self, buffer: Bytes, batches: Sequence[Entry], origin: Origin) -> CachedBatch | None:
        """The original of a batch that is a duplicate; None when all may be appended.

        Raises ProducerStateError: see `ProducerState.check` and `check_marker`.
        """
        for batch in batches:
            if batch.producer_id <= NO_PRODUCER_ID:
                continue
            if batch.is_control:
                marker = decode_marker(_bytes_of(buffer, batch))
                if marker is not None:
                    self.state.check_marker(batch.producer_id, batch.producer_epoch, marker)
                continue
            duplicate = self.state.check(batch, from_client=origin is Origin.CLIENT)
            if duplicate is not None:
                return duplicate
        return None

    def update(self, buffer: Bytes, batches: Sequence[Entry], segment: Segment) -> None:
        """Add batches that were just written to `segment`."""
        for batch in batches:
            if batch.producer_id > NO_PRODUCER_ID:
                marker = decode_marker(_bytes_of(buffer, batch)) if batch.is_control else None
                self._update_one(batch, marker, segment)

    def replay(self, segment: Segment, entry: Entry, data: Bytes) -> None:
        """Add a producer's entry found in the log; rebuilds the transaction index."""
        assert entry.producer_id > NO_PRODUCER_ID
        marker = decode_marker(data) if entry.is_control else None
        self._update_one(entry, marker, segment)

    def rebuild(
        self,
        segments: Iterable[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        now_ms: int,
        may_skip_replay: bool = False,
        is_quarantined: bool = False,
    ) -> None:
        """Restore the state as of `log_end_offset`, from the newest snapshot and the log after it.

        With `may_skip_replay` a log without any snapshot counts as a log without producers: a clean
        stop of a log with producers, or with more than one segment, leaves a snapshot. With
        `is_quarantined` no file is deleted. Raises OSError or CorruptLog.
        """
        if may_skip_replay and not self.snapshots.offsets:
            self.state.clear(log_end_offset)
            return
        if is_quarantined:
            start = self.snapshots.load(self.state, end_offset=log_end_offset, now_ms=now_ms)
        else:
            start = self.snapshots.reload(
                self.state,
                log_start_offset=log_start_offset,
                log_end_offset=log_end_offset,
                now_ms=now_ms,
            )
        if start < log_end_offset:
            for segment in segments:
                if start < segment.next_offset and segment.base_offset < log_end_offset:
                    self._replay_segment(segment, start)
        self.state.map_end_offset = log_end_offset

    def rebuild_aborts(self, before: Iterable[Segment], segment: Segment, *, now_ms: int) -> None:
        """Rebuild the transaction index of a closed segment from the log up to its end.

        `before` are the segments before it. The state of this object does not change. Raises
        OSError.
        """
        then = LogProducers(ProducerState(), self.snapshots)
        start = self.snapshots.load(then.state, end_offset=segment.base_offset, now_ms=now_ms)
        for older in before:
            if start < older.next_offset:
                then._replay_segment(older, start)
        segment.txn_index.clear()
        scan = SegmentScan(segment, check_crc=False)
        for entry in scan:
            if entry.producer_id > NO_PRODUCER_ID:
                then.replay(segment, entry, scan.bytes_of(entry))
        if segment.txn_index.file is not None:
            # Durable before the manifest stores its size: a file of zeros would have the same size.
            sync_file(segment.txn_index.file)
            segment.files.sync_directory(segment.directory)

    def _replay_segment(self, segment: Segment, start: int) -> None:
        scan = SegmentScan(segment, check_crc=False)
        for entry in scan:
            if entry.producer_id <= NO_PRODUCER_ID or entry.base_offset < start:
                continue
            marker = decode_marker(scan.bytes_of(entry)) if entry.is_control else None
            completed = self.state.update(entry, marker=marker)
            if completed is not None:
                self.state.complete_txn(completed)

    def _update_one(self, batch: Entry, marker: EndTxnMarker | None, segment: Segment) -> None:
        completed = self.state.update(batch, marker=marker)
        if completed is None:
            return
        if completed.is_aborted:
            segment.txn_index.append(
                AbortedTxn(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    self.state.last_stable_offset_after(completed),
                )
            )
            self.has_aborts = True
        self.state.complete_txn(completed)


def _bytes_of(buffer: Bytes, batch: Entry) -> memoryview:
    return memoryview(buffer)[batch.position : batch.position + batch.size]
