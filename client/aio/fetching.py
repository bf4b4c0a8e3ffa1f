"""Reading: the fetched records not handed out yet, and the task that fetches more.

`PartitionReader` holds one partition's bytes as they came and decodes them batch by batch when a
caller polls, so that prefetched records cost their bytes and no objects. `Fetcher` sends each
leader one request at a time for all of its partitions, as long as less than `prefetch_bytes` wait
to be handed out.

Invariant: records are handed out in offset order, each once, from `position` on; a seek bumps
`epoch`, so that an answer to an older request is dropped.

Source: Kafka ``Fetcher``, ``CompletedFetch``; KIP-98 for aborted transactions.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from client.aio.background import end_tasks, start_watched
from client.checks import check_flags, check_numbers
from client.core import records
from client.core.cluster import Cluster, Role
from client.core.decoding import to_records
from client.core.offsets import Isolation
from client.core.retry import Backoff, is_retriable
from client.errors import BadRecords, BrokerRefused, BrokerUnreachable, ClientBroken, ClientError
from client.statistics import PartitionStatistics
from client.types import ConsumerRecord, TopicPartition
from protocol.api.fetch import FetchRequest
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.records.batch import RecordBatch
from protocol.records.layout import INT64_MIN, MAGIC_V2, ControlType
from protocol.records.record import control_type
from protocol.records.scan import Entry, iter_records, scan_entries

logger = logging.getLogger("tidelog.client.aio.fetching")

_STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


_GONE_PAUSE_S = 1.0
"""How long a topic that does not exist is left out before it is asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """How to fetch; sizes in bytes, times in milliseconds."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    prefetch_bytes: int = 8 * 1024 * 1024
    check_crcs: bool = True

    def __post_init__(self) -> None:
        """Refuse invalid values, by the names that users give; raises InvalidUse."""
        check_flags(check_crcs=self.check_crcs)
        check_numbers(0, fetch_max_wait_ms=self.max_wait_ms, fetch_min_bytes=self.min_bytes)
        check_numbers(
            1,
            fetch_max_bytes=self.max_bytes,
            partition_max_bytes=self.partition_max_bytes,
            prefetch_bytes=self.prefetch_bytes,
        )


@dataclass(slots=True)
class _Chunk:
    """The entries of one answer, and which producers had aborted transactions in it."""

    entries: deque[tuple[Entry, memoryview]]
    aborted: list[tuple[int, int]]
    size_bytes: int


class PartitionReader:
    """One partition that is read. Owned by its consumer.

    `position` is the next offset to hand out, None until it is known (`is_out_of_range`: because
    the log lacks the requested offset). `consumed` is the offset that may be committed
    automatically: all records before it were handed out before the latest poll. `committed` is the
    last committed offset.
    """

    def __init__(
        self, partition: TopicPartition, options: FetchOptions, *, oldest_ms: int = INT64_MIN
    ) -> None:
        """Nothing fetched, position unknown. Batches without a record from `oldest_ms` on are left
        out; of others all records are handed out.
        """
        self.partition = partition
        self.position: int | None = None
        self.consumed: int | None = None
        self.committed: int | None = None
        self.fetch_offset = 0
        self.epoch = 0
        self.is_paused = False
        self.is_out_of_range = False
        self.leader_epoch = -1
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.buffered_bytes = 0
        self._options = options
        self._oldest_ms = oldest_ms
        self._chunks: deque[_Chunk] = deque()
        self._records: list[ConsumerRecord] = []
        self._next = 0
        self._batch_end = 0
        self._aborted_producers: set[int] = set()

    def seek(self, offset: int | None) -> None:
        """Hand out from `offset` next; with None the reset policy decides again."""
        self.epoch += 1
        self.is_out_of_range = False
        self.position = self.consumed = offset
        self.fetch_offset = offset or 0
        self.buffered_bytes = 0
        self._chunks.clear()
        self._records, self._next = [], 0
        self._aborted_producers.clear()

    def statistics(self) -> PartitionStatistics:
        """Where it stands; its end is the one that its isolation lets it see."""
        is_committed = self._options.isolation is Isolation.READ_COMMITTED
        end = self.last_stable_offset if is_committed else self.high_watermark
        is_known = self.position is not None and end >= 0
        return PartitionStatistics(
            position=self.position,
            committed=self.committed,
            end=None if end < 0 else end,
            lag=max(0, end - (self.position or 0)) if is_known else None,
            buffered_bytes=self.buffered_bytes,
            is_paused=self.is_paused,
        )

    @property
    def has_data(self) -> bool:
        """Whether `take` may find records without fetching."""
        return self._next < len(self._records) or bool(self._chunks)

    def add(self, data: Any) -> None:
        """Keep the records of a fetch; `data` is a `PartitionData`.

        Raises:
            BadRecords: the bytes are not entries.
        """
        self.high_watermark = data.high_watermark
        self.last_stable_offset = data.last_stable_offset
        self.log_start_offset = data.log_start_offset
        if not data.records:
            return
        view = memoryview(data.records)
        try:
            entries = deque(
                (entry, view[entry.position : entry.position + entry.size])
                for entry in scan_entries(view)
            )
        except ProtocolError as error:
            raise self._bad(self.fetch_offset, error) from error
        if not entries:
            return
        self.fetch_offset = max(self.fetch_offset, entries[-1][0].last_offset + 1)
        aborted = [(a.first_offset, a.producer_id) for a in data.aborted_transactions or ()]
        heapq.heapify(aborted)
        self._chunks.append(_Chunk(entries, aborted, len(view)))
        self.buffered_bytes += len(view)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records from `position` on; fewer if no more are here.

        Raises:
            BadRecords: a batch fails its checksum or does not parse; reading can continue after a
                `seek` past it.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and self._fill():
            end = min(self._next + limit - len(taken), len(self._records))
            taken += self._records[self._next : end]
            self._next = end
            self._advance()
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """The next record, None if it is not here yet.

        Raises:
            BadRecords: as `take`.
        """
        if not self._fill():
            return None
        record = self._records[self._next]
        self._next += 1
        self._advance()
        return record

    def put_back(self, records: list[ConsumerRecord]) -> None:
        """Hand these out again next: the last ones that `take` returned, or some at their end."""
        if records:
            assert self.position is None or records[0].offset < self.position, "not taken before"
            self._records, self._next = [*records, *self._records[self._next :]], 0
            self.position = records[0].offset

    def _advance(self) -> None:
        if self._next < len(self._records):
            self.position = self._records[self._next].offset
        else:
            # After the whole batch: compaction may have removed its last offsets.
            self.position = self._batch_end

    def _fill(self) -> bool:
        """Decode until a record is available; False if all fetched bytes are used up."""
        while self._next >= len(self._records):
            if not self._chunks:
                return False
            chunk = self._chunks[0]
            if not chunk.entries:
                self._chunks.popleft()
                self.buffered_bytes -= chunk.size_bytes
                assert self.buffered_bytes >= 0, f"{self.partition}: {self.buffered_bytes} bytes"
                continue
            entry, view = chunk.entries[0]
            self._records = self._decode(entry, view, chunk)
            chunk.entries.popleft()
            self._next = 0
            self._batch_end = max(entry.last_offset + 1, self.position or 0)
            if not self._records:
                self.position = self._batch_end
        return True

    def _decode(self, entry: Entry, view: memoryview, chunk: _Chunk) -> list[ConsumerRecord]:
        leader_epoch = -1
        try:
            if entry.magic >= MAGIC_V2:
                batch = RecordBatch(view)
                if self._options.check_crcs and not batch.crc_ok():
                    raise self._bad(entry.base_offset, "its check sum does not match")
                if self._is_hidden(batch, view, chunk):
                    return []
                if entry.max_timestamp < self._oldest_ms:
                    return []
                leader_epoch = batch.partition_leader_epoch
            self.leader_epoch = leader_epoch
            return to_records(
                self.partition, view, entry.timestamp_type, leader_epoch, self.position or 0
            )
        except ProtocolError as error:
            raise self._bad(entry.base_offset, error) from error

    def _is_hidden(self, batch: RecordBatch, view: memoryview, chunk: _Chunk) -> bool:
        """Whether a batch is a marker, or of an aborted transaction that must not be seen."""
        if self._options.isolation is Isolation.READ_UNCOMMITTED:
            return batch.is_control
        while chunk.aborted and chunk.aborted[0][0] <= batch.last_offset:
            self._aborted_producers.add(heapq.heappop(chunk.aborted)[1])
        if batch.is_control:
            if any(control_type(record) is ControlType.ABORT for record in iter_records(view)):
                self._aborted_producers.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborted_producers

    def _bad(self, offset: int, problem: object) -> BadRecords:
        return BadRecords(
            f"the batch at offset {offset} of {self.partition} cannot be read: {problem}; "
            "seek past it to continue"
        )


def fetch_request(offsets: Mapping[TopicPartition, int], options: FetchOptions) -> FetchRequest:
    """The request to one broker for the records of each partition from its offset on."""
    return records.fetch_request(
        offsets,
        isolation=options.isolation,
        max_wait_ms=options.max_wait_ms,
        min_bytes=options.min_bytes,
        max_bytes=options.max_bytes,
        partition_max_bytes=options.partition_max_bytes,
    )


class Fetcher:
    """Keeps the readers of one consumer filled. Started by `start`, ended by `close`.

    `failures` holds the errors that no retry cures, for the next poll to raise. `answers_count` and
    `fetched_bytes` count the answers with records, and the bytes in them.

    The partitions of a topic that is gone wait, and the others are read. With `outlives_topics` it
    is no error: a group's next round, or the next look for a pattern, takes the partitions out.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        find_positions: Callable[[list[PartitionReader]], Awaitable[None]],
    ) -> None:
        """`find_positions` sets `position` of the readers it is given."""
        self.readers: dict[TopicPartition, PartitionReader] = {}
        self.failures: deque[ClientError] = deque()
        self.arrived = asyncio.Event()
        self.answers_count = 0
        self.fetched_bytes = 0
        self.outlives_topics = False
        self._cluster = cluster
        self._options = options
        self._find_positions = find_positions
        self._gone_until: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._finding: asyncio.Task[None] | None = None
        self._backoff = Backoff(first_ms=50, limit_ms=1000)
        self._task: asyncio.Task[None] | None = None
        self._defect: ClientBroken | None = None

    def start(self) -> None:
        """Begin fetching."""
        self._task = start_watched(self._run(), "consumer.fetch", self.break_off)

    async def close(self) -> None:
        """Stop fetching."""
        await end_tasks(self._task, self._finding, *self._under_way.values())

    def wake(self) -> None:
        """Something changed: an assignment, a position, or room for more."""
        self._changed.set()

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; readers of partitions that stay keep their records."""
        wanted = set(partitions)
        kept = {tp: reader for tp, reader in self.readers.items() if tp in wanted}
        for partition in sorted(wanted - kept.keys()):
            kept[partition] = PartitionReader(partition, self._options)
        self.readers = kept
        self.wake()

    def next_reader(self, done: Collection[TopicPartition]) -> PartitionReader | None:
        """A reader with data, each in its turn, but for those in `done`; None if there is none."""
        for partition, reader in self.readers.items():
            if reader.has_data and not reader.is_paused and partition not in done:
                # To the back of the queue, so that a busy partition starves no other.
                self.readers[partition] = self.readers.pop(partition)
                return reader
        return None

    async def wait(self, deadline: float | None) -> bool:
        """Wait until records arrive (True) or loop time reaches `deadline` (False).

        Raises:
            ClientError: an error that no retry cures.
        """
        self.arrived.clear()
        self.wake()
        try:
            async with asyncio.timeout_at(deadline):
                await self.arrived.wait()
        except TimeoutError:
            return False
        self.raise_failure()
        return True

    def raise_failure(self) -> None:
        """Raise the next error that no retry cures, if there is one.

        Raises:
            ClientError: the oldest failure that was not raised yet, or a defect, on every call.
        """
        if self._defect is not None:
            raise self._defect
        if self.failures:
            raise self.failures.popleft()

    def break_off(self, defect: ClientBroken) -> None:
        """A task has failed with a defect: this poll and every later one raise it."""
        self._defect = self._defect or defect
        self.arrived.set()

    def buffered_bytes(self) -> int:
        """The bytes that wait to be handed out, without paused partitions."""
        return sum(r.buffered_bytes for r in self.readers.values() if not r.is_paused)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            self._start_finding()
            try:
                await self._start_fetches()
            except ClientError as error:
                if not is_retriable(error):
                    self.report(error)
                await asyncio.sleep(self._backoff.next_s())
                self._changed.set()
            await self._changed.wait()

    def _start_finding(self) -> None:
        if self._finding is not None and not self._finding.done():
            return
        lost = [
            reader
            for reader in self.readers.values()
            if reader.position is None and not self._is_gone(reader.partition.topic)
        ]
        if lost:
            self._finding = start_watched(self._find(lost), "consumer.find", self.break_off)

    async def _find(self, lost: list[PartitionReader]) -> None:
        try:
            there = await self._by_leader(lost)
            await self._find_positions([reader for group in there.values() for reader in group])
        except ClientError as error:
            if not (self.outlives_topics and _is_no_topic(error)):
                self.report(error)
            await asyncio.sleep(self._backoff.next_s())
        self._changed.set()

    async def _start_fetches(self) -> None:
        if self.buffered_bytes() >= self._options.prefetch_bytes:
            return
        fetchable = [
            reader
            for reader in self.readers.values()
            if reader.position is not None and not reader.is_paused
        ]
        for node_id, found in (await self._by_leader(fetchable)).items():
            if node_id in self._under_way:
                continue
            readers = [r for r in found if self.readers.get(r.partition) is r]
            task = start_watched(self._fetch(node_id, readers), "consumer.request", self.break_off)
            self._under_way[node_id] = task
            task.add_done_callback(partial(self._fetched, node_id))

    async def _by_leader(
        self, readers: Iterable[PartitionReader]
    ) -> dict[int, list[PartitionReader]]:
        """The readers by the node that leads their partition, without those of missing topics.

        Raises:
            ClientError: a leader is not known for another reason.
        """
        found: dict[int, list[PartitionReader]] = {}
        for reader in readers:
            topic = reader.partition.topic
            if self._is_gone(topic):
                continue
            try:
                leader = await self._cluster.leader(reader.partition)
            except BrokerRefused as error:
                if not _is_no_topic(error):
                    raise
                self._leave_out(topic, error)
            else:
                found.setdefault(leader, []).append(reader)
        return found

    def _is_gone(self, topic: str) -> bool:
        return asyncio.get_running_loop().time() < self._gone_until.get(topic, 0)

    def _leave_out(self, topic: str, error: BrokerRefused) -> None:
        """A topic, or a partition of it, does not exist: go on without, and ask again soon."""
        loop = asyncio.get_running_loop()
        if self.outlives_topics:
            logger.warning("%s: it is left out until it exists again", error)
        else:
            self.report(error)
        self._gone_until[topic] = loop.time() + _GONE_PAUSE_S
        loop.call_later(_GONE_PAUSE_S, self._changed.set)

    def _fetched(self, node_id: int, _: asyncio.Task[None]) -> None:
        self._under_way.pop(node_id, None)
        self._changed.set()

    async def _fetch(self, node_id: int, readers: list[PartitionReader]) -> None:
        asked = {reader.partition: (reader, reader.epoch) for reader in readers}
        try:
            connection = await self._cluster.connection(node_id, Role.FETCH)
            offsets = {reader.partition: reader.fetch_offset for reader in readers}
            response = await connection.call(
                fetch_request(offsets, self._options),
                **records.FETCH_VERSIONS,
                timeout_ms=self._cluster.options.request_timeout_ms + self._options.max_wait_ms,
            )
        except BrokerUnreachable as error:
            logger.debug("fetch from node %d failed: %s", node_id, error)
            for partition in asked:
                self._cluster.forget_topic(partition.topic)
            await asyncio.sleep(self._backoff.next_s())
            return
        except ClientError as error:
            self.report(error)
            await asyncio.sleep(self._backoff.next_s())
            return
        if response.error_code != ErrorCode.NONE:
            self.report(BrokerRefused("fetching", response.error_code, broker=connection.address))
        is_good = response.error_code == ErrorCode.NONE
        before = self.fetched_bytes
        for topic in response.responses:
            for data in topic.partitions:
                reader, epoch = asked[TopicPartition(topic.topic, data.partition_index)]
                if reader.epoch == epoch and self.readers.get(reader.partition) is reader:
                    is_good &= self._take(reader, data, connection.address)
        self.answers_count += self.fetched_bytes > before
        if is_good:
            self._backoff.reset()
        else:
            await asyncio.sleep(self._backoff.next_s())

    def _take(self, reader: PartitionReader, data: Any, address: str) -> bool:
        """Keep one partition's answer; False if it was an error."""
        if data.error_code == ErrorCode.NONE:
            try:
                reader.add(data)
            except BadRecords as error:
                self.report(error)
                return False
            self.fetched_bytes += len(data.records or b"")
            if reader.has_data:
                self.arrived.set()
            return True
        if data.error_code in _STALE_LEADER:
            self._cluster.forget_topic(reader.partition.topic)
        elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not reader.has_data:
            logger.info("%s: offset %d is out of range", reader.partition, reader.fetch_offset)
            reader.seek(None)
            reader.is_out_of_range = True
        else:
            what = f"fetching {reader.partition} from offset {reader.fetch_offset}"
            denied = self._cluster.denied("READ", reader.partition.topic)
            self.report(BrokerRefused(what, data.error_code, broker=address, denied=denied))
        return False

    def report(self, error: ClientError) -> None:
        """Have the next poll raise `error`."""
        # One is enough until the next poll: a lasting fault would pile up.
        if not self.failures:
            self.failures.append(error)
        self.arrived.set()


def _is_no_topic(error: ClientError) -> bool:
    """Whether metadata lacks a topic or a partition of it: it was deleted, or is not there yet."""
    return isinstance(error, BrokerRefused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
