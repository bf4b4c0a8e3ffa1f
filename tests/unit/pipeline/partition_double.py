"""One partition as a Kafka broker answers for it: real batches, markers with today's time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from client.types import OffsetAndTimestamp
from pipeline.net.cluster import EARLIEST, LATEST, MAX_TIMESTAMP, Cluster, Fetched
from pipeline.options.options import TopicPartition
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.record import Record

WALL_MS = 1_795_000_000_000
TP: TopicPartition = ("t", 0)


@dataclass
class Kept:
    """One batch of the log; `times` are its records', also a marker's one."""

    first: int
    times: list[int]
    data: bytes
    is_marker: bool = False
    is_aborted: bool = False

    @property
    def last(self) -> int:
        return self.first + len(self.times) - 1


@dataclass
class PartitionDouble:
    """Stands for a cluster with this one partition; list_offsets counts markers, as Kafka does."""

    batches: list[Kept] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, first offset and the marker's offset of each aborted transaction."""
    fetches: int = 0
    end: int = 0

    @property
    def cluster(self) -> Cluster:
        return cast("Cluster", self)

    def write(self, times: Iterable[int]) -> None:
        """Append a batch without a transaction."""
        self._keep(list(times), None)

    def transact(self, batches: Iterable[Iterable[int]], producer: int, *, commit: bool) -> None:
        """Append batches of one transaction and its marker."""
        begun, first = self.end, len(self.batches)
        for times in batches:
            self._keep(list(times), producer)
        for one in self.batches[first:]:
            one.is_aborted = not commit
        if not commit:
            self.aborted.append((producer, begun, self.end))
        data = build_end_txn_marker(
            commit=commit, producer_id=producer, producer_epoch=0,
            timestamp_ms=WALL_MS + self.end, base_offset=self.end,
        )  # fmt: skip
        self.batches.append(Kept(self.end, [WALL_MS + self.end], bytes(data), is_marker=True))
        self.end += 1

    def _keep(self, times: list[int], producer: int | None) -> None:
        identity: dict[str, Any] = {}
        if producer is not None:
            identity = {
                "producer_id": producer, "producer_epoch": 0, "base_sequence": 0,
                "is_transactional": True,
            }  # fmt: skip
        records = [Record(0, when, None, b"v", ()) for when in times]
        data = bytes(build_batch(records, base_offset=self.end, **identity))
        self.batches.append(Kept(self.end, times, data))
        self.end += len(times)

    def rows(self, *, read_committed: bool) -> list[tuple[int, int]]:
        """(offset, time) of what a reader sees."""
        return [
            (one.first + number, when)
            for one in self.batches
            if not one.is_marker and not (read_committed and one.is_aborted)
            for number, when in enumerate(one.times)
        ]

    # --- what a Cluster answers --------------------------------------------------------------

    def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {tp: self._found(when) for tp, when in questions.items()}

    def _found(self, when: int) -> OffsetAndTimestamp:
        if when in (LATEST, EARLIEST):
            return OffsetAndTimestamp(self.end if when == LATEST else 0, -1, -1)
        entries = [
            (one.first + number, time)
            for one in self.batches
            for number, time in enumerate(one.times)
        ]
        if when == MAX_TIMESTAMP:
            offset, time = max(entries, key=lambda entry: entry[1], default=(-1, -1))
            return OffsetAndTimestamp(offset, time, -1)
        assert when >= 0, f"a broker gives {when} another meaning"
        offset, time = next((entry for entry in entries if entry[1] >= when), (-1, -1))
        return OffsetAndTimestamp(offset, time, -1)

    def send_fetch(self, _: TopicPartition, offset: int, *, max_bytes: int, **__: Any) -> Any:
        return offset, max_bytes

    def receive_fetch(self, asked: tuple[int, int]) -> Fetched:
        offset, max_bytes = asked
        self.fetches += 1
        data, reached = b"", offset
        for one in self.batches:
            if one.last >= offset and (not data or len(data) + len(one.data) <= max_bytes):
                data += one.data
                reached = one.last
        aborted = tuple(
            (producer, first)
            for producer, first, marker in self.aborted
            if marker >= offset and first <= reached
        )
        return Fetched(
            error_code=0, high_watermark=self.end, last_stable_offset=self.end,
            log_start_offset=0, aborted=aborted, records=memoryview(data),
        )  # fmt: skip

    def fetch(self, _: TopicPartition, offset: int, *, max_bytes: int, **__: Any) -> Fetched:
        return self.receive_fetch((offset, max_bytes))

    def fetch_each(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int, **__: Any
    ) -> dict[TopicPartition, Fetched]:
        return {tp: self.receive_fetch((offset, max_bytes)) for tp, offset in offsets.items()}

    def close(self) -> None:
        """Nothing is open."""
