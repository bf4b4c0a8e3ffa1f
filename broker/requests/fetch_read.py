"""Reading the partitions of one fetch under its byte limits.

`FetchReader` holds the values common to all partitions of a request (version, isolation, limits).
It reads one target at a time into the `PartitionData` of the answer. `broker.handlers.fetch`
decides about waiting and sessions.

Limits, from the outside in: the request's max_bytes (v3+), the broker's `fetch.max.bytes`, the part
of `queued.max.response.bytes` that unread answers leave, the partition's own maximum. The first
partition that has data returns at least one whole batch, however large (v3+); batches are never
split. Versions 0-2 take their limit literally: a message larger than the limit is cut off, which
those clients expect.

Versions 0-1 can read magic 0 only and 2-3 magic 1: newer batches are converted on the way out, in
the side thread, because that parses every record.

Source: KIP-74; Kafka's `ReplicaManager.readFromLog`, `KafkaApis.maybeConvertFetchedData`.
"""

from typing import NamedTuple

from broker.errors import (
    InconsistentTopicId,
    NotReplica,
    ReadOnlyWindow,
    SenselessRequest,
    TopicDenied,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedByVersion,
    UnsupportedForClient,
)
from broker.fetch.failed_reads import note_failed_read
from broker.fetch.sessions import TOPIC_IDS_SINCE, FetchTarget
from broker.requests.access import Check
from broker.requests.context import Context
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import NO_LEADER_EPOCH
from protocol.acl import Operation
from protocol.api.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from protocol.declare.primitives import Buffer
from protocol.error_codes import ErrorCode
from protocol.records.convert import down_convert
from protocol.records.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2, Codec
from protocol.records.scan import scan_entries
from storage.disk.steps import Steps, off_loop
from storage.errors import OffsetOutOfRange
from storage.log.log import Log
from storage.log.values import Isolation, ReadResult
from storage.segment.remote.log import RemoteBytesNeeded
from storage.window.log_window import LogWindow

_READ = Operation.READ
"""Looking into an enumeration costs as much as the right that is known."""

OPENED_BYTES_ENOUGH = 8 * 1024 * 1024
"""Bytes of records that the broker converts for one request of an old version.

It finishes the last batch. The bytes count uncompressed, because a small batch may decompress to
many.
"""

PARTITION_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes read of one partition in one step: a few milliseconds."""

ENOUGH_BYTES = 2 * 1024 * 1024
"""The most bytes for a partition, and for an answer in all, unless the fetch waits for more.

Reading sixteen megabytes before the first byte is sent delays this client and all others, and
leaves the processor's caches cold. In a session, the partitions that got nothing are the first of
the next answer (`FetchSession.move_to_end`). Without one, each fetch begins at a random partition.
"""

STEP_BYTES = 64 * 1024
"""Bytes of one step of a fetch of many partitions, and of a fetch in a full round of the loop."""

FULL_SHARE = 4
"""An answer is full when the next batch does not fit and at most this part of it is left: 1/4.

To look for a smaller batch in each of the other partitions costs more than the bytes are worth.
"""

_MAX_BYTES_SINCE = 3
_MAGIC_V1_SINCE = 2
_MAGIC_V2_SINCE = 4
ZSTD_SINCE = 10
"""First version that can read every format of records."""

_STORAGE_ERROR_SINCE = 6
_UNKNOWN_OFFSET = -1
_READ_COMMITTED = 1
_CONSUMER_ID = -1
_NOT_FOUND = (UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId, TopicDenied)
"""Errors whose answer has an empty list of aborted transactions, not null, as in Kafka."""


class HiddenEnd(NamedTuple):
    """The high watermark of a partition at its read, and the acknowledged end above it."""

    high_watermark: int
    acknowledged: int


class FetchReader:
    """Reads targets for one request; `bytes_left` shrinks with each read.

    `was_limited` says that a partition was read with a limit below the requested one, so that more
    may be there; `was_cut` says that much more is there, and `left_some` that a partition was not
    read to its high watermark. `hidden_ends` collects the logs whose answer reaches the high
    watermark, while more of them was acknowledged (`broker.requests.commit_wait`). `window_logs`
    has the high watermarks of the logs that were read as windows, if any.
    """

    # Class attributes, because most of these stay as they are in most fetches.
    bytes_read = 0
    left_some = False
    was_cut = False
    was_limited = False
    window_logs: dict[Log, int] | None = None
    _opening_left = OPENED_BYTES_ENOUGH

    def __init__(
        self,
        context: Context,
        version: int,
        isolation_level: int,
        max_bytes: int,
        partition_max_bytes: int = PARTITION_BYTES_MAX,
        replica_id: int = _CONSUMER_ID,
        *,
        needs_one: bool = True,
        check: Check | None = None,
    ) -> None:
        """Read for a request of `version` that takes `max_bytes` in all (v3+).

        Read at most `partition_max_bytes` of a partition. With `needs_one`, the first one that has
        data gives at least a batch. `replica_id` is that of the broker that fetches, below 0 for a
        consumer. `check` asks for the client's rights, None where everyone has all.
        """
        limit = wanted = context.config.fetch_max_bytes
        if version < _MAX_BYTES_SINCE:
            max_bytes = limit
        elif max_bytes < limit:
            wanted = max_bytes
        self._context = context
        self._version = version
        self._isolation = (
            Isolation.READ_COMMITTED
            if isolation_level == _READ_COMMITTED
            else Isolation.READ_UNCOMMITTED
        )
        self._needs_one = needs_one
        self.bytes_allowed = self.bytes_left = context.answers.fetch_bytes(wanted)
        self._max_bytes = max_bytes
        self.hidden_ends: dict[Log, HiddenEnd] = {}
        self.remote_needs: list[RemoteBytesNeeded] = []
        self._replica_id = replica_id
        self._check = check
        most = partition_max_bytes
        self._partition_max_bytes = most if most < PARTITION_BYTES_MAX else PARTITION_BYTES_MAX

    def find_log(self, target: FetchTarget) -> Log:
        """The log of `target`, with the requester's leader epoch checked.

        Raises:
            BrokerError: unknown topic, topic id or partition, another leader or epoch; a follower;
                a client without the right to read.
        """
        topics = self._context.topics
        name = target.topic
        if self._version >= TOPIC_IDS_SINCE:
            topic = topics.find_by_id(target.topic_id)
            if topic is None:
                raise UnknownTopicId(target.topic_id)
            if name and name != topic.name:
                raise InconsistentTopicId(f"Topic id {target.topic_id.hex()} is not {name!r}.")
            name = topic.name
        if self._check is not None:
            self._authorize(self._check, name)
        epoch = target.asked.current_leader_epoch
        log = topics.led_log(name, target.partition, epoch if epoch >= 0 else NO_LEADER_EPOCH)
        if self._replica_id > _CONSUMER_ID:
            raise NotReplica(name, target.partition, self._replica_id)
        return log

    def _find_window(self, target: FetchTarget) -> LogWindow:
        """The window of `target`, which `find_log` refuses; raises as that does."""
        epoch = target.asked.current_leader_epoch
        try:
            log = self.find_log(target)
        except ReadOnlyWindow as refusal:
            window = self._context.topics.led_window(
                refusal.name, target.partition, epoch if epoch >= 0 else NO_LEADER_EPOCH
            )
            if window is not None and self._replica_id <= _CONSUMER_ID:
                return window
            raise
        raise UnknownTopicOrPartition(log.topic, log.partition)  # a topic since the last step

    def _authorize(self, check: Check, name: str) -> None:
        is_replica = self._replica_id > _CONSUMER_ID
        if is_replica and not check.cluster(Operation.CLUSTER_ACTION):
            raise TopicDenied
        if not is_replica and not check.topic(_READ, name):
            raise TopicDenied

    def read(self, target: FetchTarget) -> PartitionData | None:
        """One partition's part of the answer, its error included; `records` is never None.

        For versions that can read every format. None for a partition of a window: see
        `read_window`.
        """
        data = _nothing_of(target)
        try:
            result = self._read_log(self.find_log(target), target, data)
            if result is not None:
                self._take(data, result.records)
        except RemoteBytesNeeded as need:
            self._need_remote(data, self.find_log(target), need)
        except ReadOnlyWindow:
            return None
        except REFUSALS as error:
            self._refuse(data, error)
        return data

    def read_window(self, target: FetchTarget) -> Steps[PartitionData]:
        """The same for a partition of a time window, for all versions that have empty batches."""
        data = _nothing_of(target)
        try:
            if self._version < _MAGIC_V2_SINCE:
                raise UnsupportedByVersion(
                    f"Version {self._version} of Fetch cannot read a window: it knows no batches "
                    "without records."
                )
            window = self._find_window(target)
            log = window.log
            if self.window_logs is None:
                self.window_logs = {}
            self.window_logs[log] = log.high_watermark
            wanted = min(target.asked.partition_max_bytes, self.bytes_left)
            portion = min(wanted, self._partition_max_bytes)
            result = yield from window.read(
                target.asked.fetch_offset,
                max_bytes=max(0, portion),
                isolation=self._isolation,
                min_one=self._needs_one,
            )
            data.log_start_offset = result.log_start_offset
            data.high_watermark = result.high_watermark
            data.last_stable_offset = result.last_stable_offset
            data.aborted_transactions = _aborted(result)
            end = window.end_offset(self._isolation, 0)
            if result.next_offset < end:
                self.left_some = True
            elif end < log.high_watermark:
                pass  # What is not on disk yet lies outside of the window.
            elif hidden_end := self._context.group_commit.acknowledged_end(log):
                self.hidden_ends[log] = HiddenEnd(log.high_watermark, hidden_end)
            if portion < wanted:
                self.was_limited = True
                self.was_cut = self.was_cut or len(result.records) >= portion // 2
            if result.records:
                yield from self._take_from_window(data, log, target, result)
        except RemoteBytesNeeded as need:
            self._need_remote(data, window.log, need)
        except REFUSALS as error:
            self._refuse(data, error)
        return data

    def _take_from_window(
        self, data: PartitionData, log: Log, target: FetchTarget, result: ReadResult
    ) -> Steps[None]:
        records: Buffer = result.records
        if self._version < ZSTD_SINCE:
            records = yield from self._suit_old_client(log, target, result)
        self._take(data, records)

    def read_for_old_client(self, target: FetchTarget) -> Steps[PartitionData]:
        """As `read` and `read_window`, for older versions, in a format that they can read."""
        data = _nothing_of(target)
        try:
            log = self.find_log(target)
            result = self._read_log(log, target, data)
            if result is not None:
                self._take(data, (yield from self._suit_old_client(log, target, result)))
        except RemoteBytesNeeded as need:
            self._need_remote(data, self.find_log(target), need)
        except ReadOnlyWindow:
            return (yield from self.read_window(target))
        except REFUSALS as error:
            self._refuse(data, error)
        return data

    def _need_remote(self, data: PartitionData, log: Log, need: RemoteBytesNeeded) -> None:
        """Leave the partition without records until the object store has given the bytes."""
        remote = self._context.remote
        failure = need if remote is None else remote.failure_of(need)
        if failure is not None:
            self._refuse(data, failure)
            return
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        self.left_some = True
        self.remote_needs.append(need)

    def _take(self, data: PartitionData, records: Buffer) -> None:
        data.records = records
        size = len(records)
        self.bytes_left -= size
        self.bytes_read += size
        self._needs_one = False

    def _refuse(self, data: PartitionData, error: Exception) -> None:
        code = error_code(error)
        note_failed_read(self._context.metrics, error)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data.error_code = code
        data.records = b""
        if isinstance(error, _NOT_FOUND):
            data.aborted_transactions = []

    def _read_log(self, log: Log, target: FetchTarget, data: PartitionData) -> ReadResult | None:
        """The records of `log` for `target`, if any; sets all other fields of `data`."""
        asked = target.asked
        if asked.last_fetched_epoch >= 0 and self._diverges(log, target, data):
            return None
        wanted = asked.partition_max_bytes
        max_bytes = wanted if wanted < self.bytes_left else self.bytes_left
        is_negative = wanted < 0 or self._max_bytes < 0
        if is_negative and asked.fetch_offset < log.end_offset(self._isolation):
            raise SenselessRequest("The most bytes to return are a negative number.")
        most = self._partition_max_bytes
        portion = max_bytes if max_bytes < most else most
        result = log.read(
            asked.fetch_offset,
            max_bytes=portion if portion > 0 else 0,
            isolation=self._isolation,
            min_one=self._needs_one,
        )
        data.high_watermark = result.high_watermark
        data.last_stable_offset = result.last_stable_offset
        data.log_start_offset = result.log_start_offset
        is_committed = self._isolation is Isolation.READ_COMMITTED
        if result.next_offset < (
            result.last_stable_offset if is_committed else result.high_watermark
        ):
            self.left_some = True
            size = len(result.records)
            if max_bytes < wanted and self.bytes_left - size <= self.bytes_allowed // FULL_SHARE:
                self.bytes_left = size  # the answer is full once it has these
        elif hidden_end := self._context.group_commit.acknowledged_end(log):
            self.hidden_ends[log] = HiddenEnd(log.high_watermark, hidden_end)
        if result.aborted_transactions is not None:
            data.aborted_transactions = _aborted(result)
        if portion < max_bytes:
            self.was_limited = True
            self.was_cut = self.was_cut or len(result.records) >= portion // 2
        return result if result.records else None

    def _diverges(self, log: Log, target: FetchTarget, data: PartitionData) -> bool:
        """Whether the requester's log is no prefix of ours; sets the divergence in `data`.

        Raises:
            OffsetOutOfRange: its last epoch is newer than all of ours.
        """
        asked = target.asked
        epoch, end_offset = log.end_offset_for_epoch(asked.last_fetched_epoch)
        if end_offset < 0 or epoch < 0:
            raise OffsetOutOfRange(
                asked.fetch_offset, start=log.log_start_offset, end=log.log_end_offset
            )
        if end_offset >= asked.fetch_offset and epoch >= asked.last_fetched_epoch:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        data.high_watermark = log.high_watermark
        data.last_stable_offset = log.last_stable_offset
        data.log_start_offset = log.log_start_offset
        return True

    def _suit_old_client(self, log: Log, target: FetchTarget, result: ReadResult) -> Steps[Buffer]:
        """The records in a form the request's version can read, up to the first it cannot.

        Raises:
            UnsupportedForClient: they are zstd, which came with version 10.
            UnsupportedByVersion: they would have to be converted and the topic forbids it.
        """
        records: Buffer = result.records
        magic_max = 0
        for entry in scan_entries(records):
            if entry.codec is Codec.ZSTD:
                if entry.position == 0:
                    raise UnsupportedForClient("The records are zstd, newer than the request.")
                records = records[: entry.position]
                break
            magic_max = max(magic_max, entry.magic)
        if self._version >= _MAGIC_V2_SINCE:
            return records
        magic = MAGIC_V0 if self._version < _MAGIC_V1_SINCE else MAGIC_V1
        assert magic < MAGIC_V2
        if magic_max > magic:
            if not log.config.message_downconversion_enable:
                raise UnsupportedByVersion("message.downconversion.enable is false for this topic.")
            if self._opening_left <= 0:
                return b""
            source, enough_bytes = records, self._opening_left
            converted = yield from off_loop(
                lambda: down_convert(
                    source, magic, target.asked.fetch_offset, enough_bytes=enough_bytes
                )
            )
            self._opening_left -= converted.opened_bytes
            records = converted.records
        if self._version < _MAX_BYTES_SINCE:
            records = memoryview(records)[: max(0, target.asked.partition_max_bytes)]
        return records


def _aborted(result: ReadResult) -> list[AbortedTransaction] | None:
    """The aborted transactions that readers of committed records skip; None for all others."""
    if result.aborted_transactions is None:
        return None
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in result.aborted_transactions
    ]


def _nothing_of(target: FetchTarget) -> PartitionData:
    data = PartitionData()
    data.partition_index = target.partition
    data.high_watermark = _UNKNOWN_OFFSET
    data.aborted_transactions = None
    data.records = b""
    return data
