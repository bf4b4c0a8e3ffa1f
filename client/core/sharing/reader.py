"""Reading as a member of a share group: share sessions, and the records in hand.

A session belongs to a connection to a leader. Its epoch grows with each request, so a request whose
answer is lost ends it: the connection is closed, and the broker takes the records back that it had
acquired. Records in hand are those that were returned and not acknowledged; what was acknowledged
goes with the next request. Holes in an acquired range, which compaction leaves, and markers of
transactions are acknowledged as gaps at once.

Source: KIP-932, KIP-1206, KIP-1222; Kafka ``ShareConsumeRequestManager``, ``ShareSessionHandler``.
"""

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from client.checks import check_choice
from client.core.cluster import Cluster, Role
from client.core.decoding import to_records
from client.core.retry import Backoff
from client.core.sharing.membership import ShareMembership
from client.core.sharing.options import ACKNOWLEDGEMENTS, IMPLICIT, Ack, ShareOptions
from client.core.sharing.session import FIRST_EPOCH, Acks, ShareSession, holes, offsets_of
from client.errors import (
    BadRecords,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidType,
    InvalidUse,
)
from client.types import ConsumerRecord, TopicPartition
from protocol.declare.primitives import message_spec
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.records.batch import RecordBatch
from protocol.records.layout import MAGIC_V2
from protocol.records.scan import Entry, scan_entries

logger = logging.getLogger("tidelog.client.core.sharing.reader")

_POLL_MS: Final = 1000
_STRICT_SINCE: Final = 2
_RENEWAL_SINCE: Final = 2
_LOST_SESSION: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)
_NOT_READY: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE})
"""Errors of a partition that pass: no member of the group has the topic yet, or no record is."""


_offset_of = attrgetter("offset")


class _Asked(NamedTuple):
    """A request on its way, and the acknowledgements in it."""

    session: ShareSession
    answer: Awaitable[Any]
    acks: Acks


class ShareReader:
    """The records of one share consumer. A face calls one coroutine at a time."""

    def __init__(self, cluster: Cluster, options: ShareOptions) -> None:
        """Nothing is read before `fetch`."""
        self.membership = ShareMembership(cluster, options.group_id, options.topics)
        self._cluster = cluster
        self._options = options
        self._sessions: dict[int, ShareSession] = {}
        self._backoff = Backoff()
        self._failures: list[ClientError] = []
        self._refusals: list[ClientError] = []
        self._waiting: deque[ConsumerRecord] = deque()
        self._current: ConsumerRecord | None = None

    # What users call.

    async def start(self) -> None:
        """Join the group; refuse topics that do not exist.

        Raises:
            BrokerUnreachable: no broker answers.
            BrokerRefused: a topic does not exist, or the group does not accept this member.
            UnsupportedByBroker: the broker has no share groups.
        """
        for topic in self._options.topics:
            await self._cluster.topic(topic)
        await self.membership.join()

    def fail(self, error: ClientError) -> None:
        """Have the next poll raise `error`."""
        self._failures[:] = [error]

    async def poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        """Records as soon as there are any; empty if none come in time. Raises as `fetch`."""
        self._current = None
        if self._waiting:
            found = [record for record in self._waiting if self._find_holder(record)]
            self._waiting.clear()
            return found
        deadline = self._cluster.clock.now() + timeout_ms / 1000
        while True:
            left_ms = max(0, int((deadline - self._cluster.clock.now()) * 1000))
            found = await self.fetch(left_ms)
            if found or self._cluster.clock.now() >= deadline:
                return found

    async def next(self) -> ConsumerRecord:
        """The next record, waited for; with implicit acknowledgement the last one is accepted."""
        current, self._current = self._current, None
        if current is not None and self._is_implicit and self._find_holder(current):
            self.acknowledge(current, "accept")
        while not self._waiting:
            self._waiting.extend(await self.poll(_POLL_MS))
        self._current = self._waiting.popleft()
        return self._current

    @property
    def _is_implicit(self) -> bool:
        return self._options.acknowledgement == IMPLICIT

    # What the user says about records.

    def acknowledge(self, record: ConsumerRecord, kind: str) -> None:
        """Say what became of a record in hand; it is sent with the next request.

        Raises:
            InvalidUse: the record is not in hand, or `kind` is none.
        """
        check_choice("acknowledgement", kind, ACKNOWLEDGEMENTS)
        session, partition = self._holder(record), record.topic_partition
        session.in_hand[partition].discard(record.offset)
        ranges = session.done.setdefault(partition, [])
        ranges.append((record.offset, record.offset, ACKNOWLEDGEMENTS[kind]))

    def accept_returned(self) -> None:
        """Accept the records in hand that the user has; iteration has not reached the others."""
        waiting: dict[TopicPartition, set[int]] = {}
        for record in self._waiting:
            waiting.setdefault(record.topic_partition, set()).add(record.offset)
        for session in self._sessions.values():
            for partition, offsets in session.in_hand.items():
                kept = offsets & waiting.get(partition, set())
                ranges = session.done.setdefault(partition, [])
                ranges += [(offset, offset, Ack.ACCEPT) for offset in offsets - kept]
                session.in_hand[partition] = kept

    def _find_holder(self, record: ConsumerRecord) -> ShareSession | None:
        for session in self._sessions.values():
            if record.offset in session.in_hand.get(record.topic_partition, ()):
                return session
        return None

    def _holder(self, record: object) -> ShareSession:
        if not isinstance(record, ConsumerRecord):
            raise InvalidType(f"{record!r} is not a record: give one that this consumer returned")
        session = self._find_holder(record)
        if session is None:
            raise InvalidUse(
                f"offset {record.offset} of {record.topic_partition} is not in hand: it was "
                "acknowledged before, or its broker has taken it back"
            )
        return session

    # Requests.

    async def fetch(self, wait_ms: int) -> list[ConsumerRecord]:
        """Send the acknowledgements, and acquire records; empty if none come within `wait_ms`.

        Each leader is asked once, for `max_records`.

        Raises:
            InvalidUse: with explicit acknowledgement records are left in hand.
            BadRecords: a batch was damaged; its records were rejected.
            BrokerRefused, BrokerUnreachable, UnsupportedByBroker: what no retry cures.
        """
        self._settle_in_hand()
        await self.membership.beat()
        if self._failures:
            raise self._failures.pop(0)
        asked: list[_Asked] = []
        try:
            for node_id, partitions in (await self._partitions_by_leader()).items():
                session = await self._session(node_id)
                if session is not None:
                    asked += self._ask(session, partitions, wait_ms)
            if not asked:
                await self._cluster.clock.sleep(self._pause_s(wait_ms))
            found: list[ConsumerRecord] = []
            while asked:
                found += await self._answered(asked[0])
                del asked[0]
        finally:
            # These answers are not read: what they acquire goes back with the connection.
            for each in asked:
                each.session.connection.close()
        return found

    def _settle_in_hand(self) -> None:
        if self._is_implicit:
            self.accept_returned()
            return
        left = sum(
            len(offsets) for each in self._sessions.values() for offsets in each.in_hand.values()
        )
        if left:
            raise InvalidUse(
                f"{left} records are in hand without acknowledgement: with "
                'acknowledgement="explicit" each is accepted, released or rejected before the '
                "next ones are fetched"
            )

    def _pause_s(self, wait_ms: int) -> float:
        """How long to wait where there is no leader to ask: at most until the next heartbeat."""
        until_beat_s = self.membership.due - self._cluster.clock.now()
        return max(0.0, min(wait_ms / 1000, until_beat_s))

    async def _partitions_by_leader(self) -> dict[int, list[TopicPartition]]:
        """What to read from each leader; leaders of old sessions have to learn what is over."""
        found: dict[int, list[TopicPartition]] = {node_id: [] for node_id in self._sessions}
        for partition in self.membership.assigned:
            try:
                leader = await self._cluster.leader(partition, is_patient=False)
            except (BrokerRefused, BrokerUnreachable) as error:
                logger.info("%s is left out: %s", partition, error)
                continue
            found.setdefault(leader, []).append(partition)
        return found

    async def _session(self, node_id: int) -> ShareSession | None:
        """The session with a leader, a new one if its connection was lost; None: unreachable."""
        session = self._sessions.get(node_id)
        try:
            connection = await self._cluster.connection(node_id, Role.FETCH)
        except BrokerUnreachable as error:
            logger.info("broker %d: %s", node_id, error)
            self._lose(session, error)
            await self._cluster.clock.sleep(self._backoff.next_s())
            return None
        if session is not None and session.connection is not connection:
            lost = BrokerUnreachable("the connection was lost", broker=connection.address)
            self._lose(session, lost)
            session = None
        if session is None:
            session = self._sessions[node_id] = ShareSession(node_id=node_id, connection=connection)
        return session

    def _ask(
        self, session: ShareSession, partitions: Iterable[TopicPartition], wait_ms: int
    ) -> list[_Asked]:
        """Send a ShareFetch, which carries the acknowledgements; nothing if that fails."""
        wanted = {tp: self.membership.assigned[tp] for tp in partitions}
        recreated = [tp for tp, known in wanted.items() if session.ids.get(tp, known) != known]
        for partition in recreated:
            session.in_hand.pop(partition, None)
            lost = {partition: session.done.pop(partition, [])}
            self._refuse(lost, BrokerRefused(f"reading {partition}", ErrorCode.UNKNOWN_TOPIC_ID))
        acks = session.take_done()
        request = session.fetch_request(
            self._options, self.membership.member_id, wanted, acks, wait_ms
        )
        least = _STRICT_SINCE if self._options.is_strict else 1
        try:
            return [self._send(session, request, least, acks, wait_ms)]
        except BrokerUnreachable as error:
            self._refuse(acks, error)
            self._lose(session, error)
            return []

    def _send(
        self, session: ShareSession, request: Any, least: int, acks: Acks, wait_ms: int = 0
    ) -> _Asked:
        spec = message_spec(type(request))
        version = session.connection.version_of(
            spec.api_key, max_version=spec.max_version, min_version=least
        )
        timeout_ms = self._cluster.options.request_timeout_ms + wait_ms
        answer = session.connection.send(request, spec.api_key, version, timeout_ms=timeout_ms)
        return _Asked(session, answer, acks)

    async def renew(self, records: Iterable[ConsumerRecord]) -> None:
        """Hold records in hand for another lock duration, from now on.

        Raises:
            InvalidUse: one is not in hand.
            BrokerRefused: the lock of one has expired, or the group allows no renewal.
        """
        wanted: dict[int, dict[TopicPartition, list[tuple[int, int, Ack]]]] = {}
        for record in records:
            acks = wanted.setdefault(self._holder(record).node_id, {})
            ranges = acks.setdefault(record.topic_partition, [])
            ranges.append((record.offset, record.offset, Ack.RENEW))
        self._refusals.clear()
        for node_id, acks in wanted.items():
            ordered = {partition: sorted(ranges) for partition, ranges in acks.items()}
            await self._acknowledge(self._sessions[node_id], ordered)
        self._raise_refusal()

    async def commit(self) -> None:
        """Send the acknowledgements now, and wait until they are durable.

        With implicit acknowledgement the records that the user has are accepted.

        Raises:
            BrokerRefused: some had no effect: the first one's reason.
            BrokerUnreachable: a broker did not answer.
        """
        self._refusals.clear()
        if self._is_implicit:
            self.accept_returned()
        for session in list(self._sessions.values()):
            acks = session.take_done()
            if acks:
                await self._acknowledge(session, acks)
        self._raise_refusal()

    def _raise_refusal(self) -> None:
        if self._refusals:
            raise self._refusals[0]

    async def _acknowledge(
        self, session: ShareSession, acks: Acks, *, is_final: bool = False
    ) -> None:
        """Send acknowledgements alone; what is refused is reported."""
        request = session.acknowledge_request(
            self._options, self.membership.member_id, acks, is_final=is_final
        )
        address = session.connection.address
        try:
            least = _RENEWAL_SINCE if request.is_renew_ack else 1
            response = await self._send(session, request, least, acks).answer
        except BrokerUnreachable as error:
            self._refuse(acks, error)
            self._lose(session, error)
            return
        except BaseException:
            session.connection.close()
            raise
        if response.error_code != ErrorCode.NONE:
            self._refuse(acks, self._refusal("acknowledging", response, address))
            if response.error_code in _LOST_SESSION:
                self._sessions.pop(session.node_id, None)
            return
        if not is_final:
            session.advance()
        for topic in response.responses:
            for part in topic.partitions:
                partition = session.partition(bytes(topic.topic_id), part.partition_index)
                if partition is not None and part.error_code != ErrorCode.NONE:
                    refusal = self._refusal(f"acknowledging records of {partition}", part, address)
                    self._refuse({partition: acks.get(partition, [])}, refusal)

    async def close(self, *, is_clean: bool) -> None:
        """Send the acknowledgements, give back what is in hand, and leave the group.

        With implicit acknowledgement a clean end accepts the records that the user has. Failures
        are reported and logged: the ends of the locks and of the membership have the same effect,
        only later.
        """
        if is_clean and self._is_implicit:
            self.accept_returned()
        for session in list(self._sessions.values()):
            if session.epoch != FIRST_EPOCH and session.connection.is_open:
                await self._acknowledge(session, session.take_done(), is_final=True)
        self._sessions.clear()
        await self.membership.leave()

    # Answers.

    async def _answered(self, asked: _Asked) -> list[ConsumerRecord]:
        """The records of an answer. Errors that pass are logged, others come with the next call."""
        session = asked.session
        try:
            response = await asked.answer
        except BrokerUnreachable as error:
            logger.info("%s: %s", self.membership.what, error)
            self._refuse(asked.acks, error)
            self._lose(session, error)
            await self._cluster.clock.sleep(self._backoff.next_s())
            return []
        if response.error_code != ErrorCode.NONE:
            await self._refused(asked, response)
            return []
        session.advance()
        found: list[ConsumerRecord] = []
        is_good = True
        for topic in response.responses:
            for part in topic.partitions:
                partition = session.partition(bytes(topic.topic_id), part.partition_index)
                if partition is not None:
                    is_good &= self._check_part(asked, partition, part)
                    found += self._take(session, partition, part)
        if is_good:
            self._backoff.reset()
        elif not found:
            await self._cluster.clock.sleep(self._backoff.next_s())
        return found

    async def _refused(self, asked: _Asked, response: Any) -> None:
        """The whole request was refused: raise, unless another attempt may succeed."""
        session = asked.session
        error = self._refusal("reading", response, session.connection.address)
        self._refuse(asked.acks, error)
        if error.code in _LOST_SESSION or session.epoch == FIRST_EPOCH:
            self._sessions.pop(session.node_id, None)
        if not error.retriable:
            raise error
        logger.info("%s", error)
        await self._cluster.clock.sleep(self._backoff.next_s())

    def _check_part(self, asked: _Asked, partition: TopicPartition, part: Any) -> bool:
        """Report the errors of a partition; whether it was read."""
        address = asked.session.connection.address
        if part.acknowledge_error_code != ErrorCode.NONE:
            refusal = BrokerRefused(
                f"acknowledging records of {partition}",
                part.acknowledge_error_code,
                broker=address,
                detail=part.acknowledge_error_message,
            )
            self._refuse({partition: asked.acks.get(partition, [])}, refusal)
        if part.error_code == ErrorCode.NONE:
            return True
        error = self._refusal(f"reading {partition}", part, address)
        if error.retriable or error.code in _NOT_READY:
            logger.info("%s", error)
            self._cluster.forget_topic(partition.topic)
        else:
            self._failures.append(error)
        return False

    def _refusal(self, doing: str, part: Any, address: str) -> BrokerRefused:
        what = f"{doing} as a member of {self.membership.what}"
        return BrokerRefused(what, part.error_code, broker=address, detail=part.error_message)

    def _refuse(self, acks: Acks, error: ClientError) -> None:
        """Report acknowledgements that had no effect; those of gaps are of no interest."""
        for partition, ranges in acks.items():
            offsets = offsets_of(ranges)
            if not offsets:
                continue
            self._refusals.append(error)
            logger.warning(
                "%d acknowledgements of %s had no effect: %s", len(offsets), partition, error
            )
            if self._options.on_refused is not None:
                self._options.on_refused(partition, offsets, error)

    def _lose(self, session: ShareSession | None, error: ClientError) -> None:
        """A session has ended with its connection: the broker has taken everything back."""
        if session is not None and self._sessions.get(session.node_id) is session:
            del self._sessions[session.node_id]
            self._refuse(session.take_done(), error)

    # Records.

    def _take(
        self, session: ShareSession, partition: TopicPartition, part: Any
    ) -> list[ConsumerRecord]:
        """Those of the records of an answer that were acquired: they are in hand now."""
        records, damaged = self._decode(partition, memoryview(part.records or b""))
        found: list[ConsumerRecord] = []
        offsets = session.in_hand.setdefault(partition, set())
        ranges = session.done.setdefault(partition, [])
        for acquired in part.acquired_records:
            first, last = acquired.first_offset, acquired.last_offset
            begin = bisect_left(records, first, key=_offset_of)
            taken = records[begin : bisect_left(records, last + 1, begin, key=_offset_of)]
            found += [each._replace(delivery_count=acquired.delivery_count) for each in taken]
            offsets.update(each.offset for each in taken)
            for hole in holes(first, last, (each.offset for each in taken)):
                is_damaged = any(low <= hole[1] and hole[0] <= high for low, high in damaged)
                ranges.append((*hole, Ack.REJECT if is_damaged else Ack.GAP))
        return found

    def _decode(
        self, partition: TopicPartition, view: memoryview
    ) -> tuple[list[ConsumerRecord], list[tuple[int, int]]]:
        """The records of whole batches, and the offsets of those batches that are damaged."""
        found: list[ConsumerRecord] = []
        damaged: list[tuple[int, int]] = []
        for entry in scan_entries(view):
            batch = view[entry.position : entry.position + entry.size]
            try:
                found += self._decode_batch(partition, entry, batch)
            except ProtocolError as problem:
                damaged.append((entry.base_offset, entry.last_offset))
                text = f"the batch at offset {entry.base_offset} of {partition} cannot be read"
                self._failures.append(BadRecords(f"{text}: {problem}; its records were rejected"))
        return found, damaged

    def _decode_batch(
        self, partition: TopicPartition, entry: Entry, view: memoryview
    ) -> Iterable[ConsumerRecord]:
        leader_epoch = -1
        if entry.magic >= MAGIC_V2:
            batch = RecordBatch(view)
            if self._options.check_crcs and not batch.crc_ok():
                raise ProtocolError("its check sum does not match")
            if batch.is_control:
                return ()
            leader_epoch = batch.partition_leader_epoch
        return to_records(partition, view, entry.timestamp_type, leader_epoch)
