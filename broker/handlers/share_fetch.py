"""ShareFetch (key 78, versions 1-2): acquire records for a member of a share group.

    session        which partitions                          `broker.groups.share.sessions`
    acknowledge    what came with the request, first         `broker.requests.shares.sessions`
    read           each partition at its next offset
    enough?        min_bytes, an error, or nothing to wait for
    acquire        the records that were read: answer        `broker.groups.share.partition`
    else           wait for new records, or for some that come back

Nothing is acquired before the answer is certain: a client that has gone holds no record. The answer
has whole batches from the first to the last acquired record; a client skips those in between that
it did not acquire. A partition without records, error or acknowledgement is left out of the answer
of a session that continues.

A group begins in a partition when its first member fetches; a group that begins by duration waits
there with OFFSET_NOT_AVAILABLE until there is a record. Partitions that a fetch has to load follow
one by one: it is answered with as few of them as have `min_bytes`, and the next one has the others.

Source: KIP-932; Kafka `KafkaApis.handleShareFetchRequest`, `DelayedShareFetch`.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from broker.errors import TopicDenied, UnknownTopicId
from broker.fetch.failed_reads import note_failed_read
from broker.fetch.waiters import MAX_WAIT_MS, FetchWaiter
from broker.groups.consumer.values import Partition
from broker.groups.share.persister import StateNeeded
from broker.groups.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from broker.groups.share.stored_state import ShareKey
from broker.groups.share.values import Acquired, AcquireWish, Extent
from broker.groups.share_partitions import LoadedPartition, NotInitialized
from broker.replies.pending import Pending
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.requests.leaders import MOVED, NamedLeaders
from broker.requests.shares.sessions import (
    Acknowledgements,
    Outcome,
    find_session,
    member_problem,
)
from config.group import SHARE_ISOLATION, group_choice
from protocol.acl import Operation
from protocol.api import share_fetch as api
from protocol.declare.primitives import Buffer
from protocol.error_codes import ErrorCode
from protocol.records.entry import Entry
from protocol.records.layout import MAGIC_V2
from protocol.records.scan import scan_entries
from storage.disk.steps import Steps
from storage.errors import OffsetOutOfRange
from storage.log.log import Log
from storage.log.values import Isolation, ReadResult
from storage.segment.remote.log import RemoteBytesNeeded
from storage.segment.txn_index import AbortedTxn

_OPTIMIZED, _STRICT = 0, 1
_PARTITION_BYTES_MAX = 2 * 1024 * 1024


class _Read(NamedTuple):
    """Records of a partition that are not acquired yet."""

    partition: Partition
    loaded: LoadedPartition
    offset: int
    result: ReadResult
    entries: list[Entry]


def handle(
    context: Context, request: RequestContext, message: api.ShareFetchRequest
) -> Steps[api.ShareFetchResponse | Pending[api.ShareFetchResponse]]:
    """Acknowledge, then acquire; wait for `min_bytes` at most `max_wait_ms`."""
    problem = _problem(message)
    if problem is not None:
        return _refusal(ErrorCode.INVALID_REQUEST, problem)
    group_id, member_id = message.group_id or "", message.member_id or ""
    asked = Acknowledgements(context, request, group_id, member_id, may_renew=message.is_renew_ack)
    for topic in message.topics:
        for partition in topic.partitions:
            key = (bytes(topic.topic_id), partition.partition_index)
            asked.add(key, partition.acknowledgement_batches)
        yield None
    if asked and message.share_session_epoch == INITIAL_EPOCH:
        text = "The first request of a session has nothing to acknowledge."
        return _refusal(ErrorCode.INVALID_REQUEST, text)
    session, error = find_session(
        context, request, group_id, member_id, message.share_session_epoch
    )
    if session is None:
        if error is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return _refuse_later(context, message, error)
        return _refusal(error, None)
    if message.share_acquire_mode not in (_OPTIMIZED, _STRICT):
        text = (
            f"share_acquire_mode is {message.share_acquire_mode}; it has to be "
            f"{_OPTIMIZED} (whole batches) or {_STRICT} (strict limits)."
        )
        return _refusal(ErrorCode.INVALID_REQUEST, text)
    if message.share_session_epoch != FINAL_EPOCH:
        session.update(
            [(bytes(t.topic_id), p.partition_index) for t in message.topics for p in t.partitions],
            [(bytes(t.topic_id), p) for t in message.forgotten_topics_data for p in t.partitions],
        )
    return _ShareFetch(context, request, message, session).start(asked)


def _problem(message: api.ShareFetchRequest) -> str | None:
    """Why the request is invalid, as a sentence; None when it is valid."""
    problem = member_problem(message.group_id, message.member_id)
    if problem is not None:
        return problem
    limits = (message.max_bytes, message.min_bytes, message.max_records, message.max_wait_ms)
    if message.is_renew_ack and any(limits):
        return "A request with renewals fetches nothing: its limits have to be 0."
    return None


def _refusal(error: ErrorCode, text: str | None) -> api.ShareFetchResponse:
    return api.ShareFetchResponse(error_code=error, error_message=text)


def _refuse_later(
    context: Context, message: api.ShareFetchRequest, error: ErrorCode
) -> Pending[api.ShareFetchResponse]:
    """Refuse after the wait that the client allows, so that it does not ask at once again."""
    pending: Pending[api.ShareFetchResponse] = Pending()
    wait_ms = max(0, min(message.max_wait_ms, MAX_WAIT_MS))
    timer = context.clock.call_later(wait_ms, lambda: pending.resolve(_refusal(error, None)))
    pending.on_abandon = timer.cancel
    return pending


class _ShareFetch:
    """One fetch from session to answer; waits as often as needed."""

    def __init__(
        self,
        context: Context,
        request: RequestContext,
        message: api.ShareFetchRequest,
        session: ShareSession,
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._session = session
        self._shares = context.groups.shares
        self._check = Check(context, request)
        throttle = context.security.throttle
        self._quota = None if throttle is None else throttle.fetch_quota(request)
        overrides = context.topics.group_overrides.get(session.group_id, {})
        is_committed = group_choice(SHARE_ISOLATION, overrides) == "read_committed"
        self._isolation = Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED
        self._limit_bytes = min(message.max_bytes, context.config.fetch_max_bytes)
        self._least_bytes = max(1, min(message.min_bytes, self._limit_bytes))
        wait_ms = max(0, min(message.max_wait_ms, MAX_WAIT_MS))
        self._deadline_ms = context.clock.monotonic_ms() + wait_ms
        self._outcomes: Mapping[Partition, Outcome] | None = None
        self._refused: dict[Partition, ErrorCode] = {}
        self._waiter: FetchWaiter | None = None
        self._watched: list[LoadedPartition] = []
        self._just_loaded: set[Partition] = set()
        self._is_reading = False
        self._pending: Pending[api.ShareFetchResponse] = Pending(self._forget)

    def start(self, asked: Acknowledgements) -> Pending[api.ShareFetchResponse]:
        """The promise of the answer."""
        asked.begin(self._acknowledged)
        return self._pending

    def _acknowledged(self, outcomes: Mapping[Partition, Outcome]) -> None:
        """The acknowledgements are durable or refused: read, unless nothing is to be fetched."""
        self._outcomes = outcomes
        if self._message.share_session_epoch == FINAL_EPOCH:
            response = self._answer([])
            self._shares.sessions.end(self._session)
            self._pending.resolve(response)
        elif self._message.is_renew_ack or min(self._message.max_records, self._limit_bytes) <= 0:
            self._pending.resolve(self._answer([]))
        else:
            self._begin(is_deadline=False)

    def _begin(self, *, is_deadline: bool) -> None:
        if self._pending.settled or self._is_reading:
            return
        self._is_reading = True
        self._context.turns.begin_or_fail(self._attempt(is_deadline), self._pending)

    def _attempt(self, is_deadline: bool) -> Steps[None]:
        """Read every partition; acquire and answer, or wait."""
        try:
            reads = yield from self._read()
        finally:
            self._is_reading = False
        if self._pending.settled:
            return
        wait_ms = self._deadline_ms - self._context.clock.monotonic_ms()
        is_late = is_deadline or wait_ms <= 0
        size_bytes = sum(len(read.result.records) for read in reads)
        is_enough = size_bytes >= self._least_bytes or bool(self._refused)
        if not is_late and not is_enough:
            self._park(wait_ms, self._least_bytes - size_bytes)
            return
        delay_ms = 0
        if self._quota is not None and size_bytes:
            delay_ms = self._quota.delay_ms(size_bytes, len(reads))
        response = self._answer([] if delay_ms else reads)
        response.throttle_time_ms = delay_ms
        if not response.responses and not is_late and not delay_ms:
            # What was read is another member's by now.
            self._park(wait_ms, 1)
            return
        self._pending.resolve(response)

    # -- reading -------------------------------------------------------------------------------

    def _read(self) -> Steps[list[_Read]]:
        """The records at the next offset of each partition, within the limits of the request."""
        self._refused.clear()
        self._just_loaded.clear()
        self._stop_waiting()
        reads: list[_Read] = []
        bytes_left = self._context.answers.fetch_bytes(self._limit_bytes)
        for partition in list(self._session.partitions):
            try:
                read = self._read_partition(partition, bytes_left, needs_one=not reads)
            except RemoteBytesNeeded as need:
                self._fetch_remote(partition, need)
                continue
            except StateNeeded as need:
                self._shares.persister.read(need.key, self._retry)
                continue
            except NotInitialized:  # as Kafka
                self._refused[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
                continue
            except REFUSALS as error:
                note_failed_read(self._context.metrics, error)
                self._refused[partition] = error_code(error)
                continue
            if read is not None:
                reads.append(read)
                bytes_left -= len(read.result.records)
            yield None
        return self._without_new(reads)

    def _without_new(self, reads: list[_Read]) -> list[_Read]:
        """The reads, without those of partitions loaded just now that `min_bytes` does not need."""
        kept = [read for read in reads if read.partition not in self._just_loaded]
        size_bytes = sum(len(read.result.records) for read in kept)
        for read in reads:
            if read.partition in self._just_loaded and size_bytes < self._least_bytes:
                kept.append(read)
                size_bytes += len(read.result.records)
        return kept

    def _read_partition(
        self, partition: Partition, bytes_left: int, *, needs_one: bool
    ) -> _Read | None:
        """The records of a partition; None when there are none to acquire now."""
        topic_id, index = partition
        topic = self._context.topics.find_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id)
        if not self._check.topic(Operation.READ, topic.name):
            raise TopicDenied
        log = self._context.topics.led_log(topic.name, index)
        key = ShareKey(self._session.group_id, topic_id, index)
        is_new = key not in self._shares.partitions
        loaded = self._shares.partitions.load(key, log)
        if loaded is None:
            self._refused[partition] = ErrorCode.OFFSET_NOT_AVAILABLE
            return None
        if is_new:
            self._just_loaded.add(partition)
        self._watched.append(loaded)
        self._shares.partitions.log_start_moved(loaded)
        return self._read_at(partition, loaded, log, bytes_left, needs_one)

    def _read_at(
        self,
        partition: Partition,
        loaded: LoadedPartition,
        log: Log,
        bytes_left: int,
        needs_one: bool,
    ) -> _Read | None:
        offset = loaded.partition.next_fetch_offset()
        if offset is None or (bytes_left <= 0 and not needs_one):
            return None
        max_bytes = max(0, min(_PARTITION_BYTES_MAX, bytes_left))
        try:
            result = log.read(
                offset, max_bytes=max_bytes, isolation=self._isolation, min_one=needs_one
            )
        except OffsetOutOfRange:
            if offset >= log.log_start_offset:
                raise
            return None
        if not result.records:
            loaded.partition.skip(offset, result.next_offset - 1)
            return None
        return _Read(partition, loaded, offset, result, list(scan_entries(result.records)))

    def _fetch_remote(self, partition: Partition, need: RemoteBytesNeeded) -> None:
        """Let the store give the bytes, and read again then."""
        remote = self._context.remote
        failure = need if remote is None else remote.failure_of(need)
        if failure is not None:
            self._refused[partition] = error_code(failure)
            return
        assert remote is not None
        remote.begin(need, lambda _, __: self._begin(is_deadline=False))

    # -- waiting -------------------------------------------------------------------------------

    def _park(self, wait_ms: int, bytes_missing: int) -> None:
        """Read again when a log has grown, when records have come back, or when time is up."""
        retry = self._retry
        for loaded in self._watched:
            self._shares.partitions.when_available(loaded, retry)
        logs = [loaded.log for loaded in self._watched]
        self._waiter = FetchWaiter(logs, bytes_missing, self._released)
        self._context.fetch_waiters.park(self._waiter, wait_ms)

    def _released(self, is_deadline: bool) -> None:
        self._waiter = None
        self._begin(is_deadline=is_deadline)

    def _retry(self) -> None:
        self._begin(is_deadline=False)

    def _stop_waiting(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._context.fetch_waiters.remove(waiter)
        watched, self._watched = self._watched, []
        for loaded in watched:
            loaded.waiting.pop(self._retry, None)

    def _forget(self) -> None:
        """The client has gone."""
        self._stop_waiting()

    # -- answering -----------------------------------------------------------------------------

    def _answer(self, reads: list[_Read]) -> api.ShareFetchResponse:
        """Acquire what was read, and answer with it and with the outcomes of acknowledgements."""
        self._stop_waiting()
        response = api.ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.partitions.limits_of(
                self._session.group_id
            ).lock_duration_ms
        )
        parts: dict[Partition, api.PartitionData] = {}
        part = partial(_part_of, parts)
        if self._message.share_session_epoch == INITIAL_EPOCH:
            for partition in self._session.partitions:
                part(partition)
        for partition, outcome in (self._outcomes or {}).items():
            part(partition).acknowledge_error_code = outcome.error
            part(partition).acknowledge_error_message = outcome.message
        leaders = NamedLeaders(self._context)
        for partition, error in self._refused.items():
            part(partition).error_code = error
            if error in MOVED:
                topic_id, index = partition
                moved = self._context.topics.find_by_id(topic_id)
                part(partition).current_leader = leaders.leader(moved, index)
        response.node_endpoints = leaders.endpoints()
        left = self._message.max_records
        for read in reads:
            acquired = self._acquire(read, left)
            if acquired:
                left -= sum(each.last - each.first + 1 for each in acquired)
                data = part(read.partition)
                data.records = _between(read, acquired[0].first, acquired[-1].last)
                data.acquired_records = [
                    api.AcquiredRecords(
                        first_offset=each.first,
                        last_offset=each.last,
                        delivery_count=each.deliveries,
                    )
                    for each in acquired
                ]
                self._context.metrics.bytes_fetched += len(data.records)
                self._session.rotate(read.partition)
        topics: dict[bytes, api.ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in parts.items():
            topic = topics.setdefault(topic_id, api.ShareFetchableTopicResponse(topic_id=topic_id))
            topic.partitions.append(data)
        response.responses = list(topics.values())
        return response

    def _acquire(self, read: _Read, left: int) -> list[Acquired]:
        wish = AcquireWish(
            records=left,
            batch_records=max(1, self._message.batch_size),
            is_strict=self._message.share_acquire_mode == _STRICT,
        )
        acquired = read.loaded.partition.acquire(
            self._session.member_id,
            read.offset,
            _extents(read.entries, read.offset, read.result.aborted_transactions),
            wish,
            self._context.groups.shares.partitions.now_ms(),
        )
        self._shares.partitions.acquired(read.loaded)
        return acquired


def _part_of(parts: dict[Partition, api.PartitionData], partition: Partition) -> api.PartitionData:
    known = parts.get(partition)
    if known is None:
        known = parts[partition] = api.PartitionData(partition_index=partition[1])
    return known


def _extents(entries: list[Entry], offset: int, aborted: list[AbortedTxn] | None) -> list[Extent]:
    """The offsets of each entry; those of aborted transactions are marked.

    A wrapper of an old format has no first offset in its header: it begins after the entry before.
    """
    extents = []
    after = offset
    for entry in entries:
        first = entry.base_offset if entry.magic == MAGIC_V2 else min(after, entry.last_offset)
        is_aborted = any(
            entry.producer_id == txn.producer_id
            and txn.first_offset <= entry.base_offset <= txn.last_offset
            for txn in aborted or ()
        )
        extents.append(Extent(first, entry.last_offset, is_aborted))
        after = entry.last_offset + 1
    return extents


def _between(read: _Read, first: int, last: int) -> Buffer:
    """The bytes of the batches that contain records from `first` to `last`."""
    begin = end = 0
    for entry in read.entries:
        if entry.last_offset < first:
            begin = entry.position + entry.size
        end = entry.position + entry.size
        if entry.last_offset >= last:
            break
    return read.result.records[begin:end]
