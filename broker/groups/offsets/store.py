"""Committed offsets: the table in memory, the pending ones of open transactions, and the log.

Owns the values, the rules of their age, and the order "log first, then memory, then the answer". A
change shows in the table only when it is durable, so no client reads a position that a crash could
take back. Refuses to know generations (`broker.groups.classic.group` decides who may commit), the
clock and the wire.

Offsets committed inside a transaction wait under its producer id until its marker arrives. They
never overtake. A plain commit that comes after them in the log wins over them when the transaction
commits, and a tombstone that comes after them removes them.

Source: Kafka's `OffsetMetadataManager`, `GroupMetadataManager.storeOffsets`, KIP-98, KIP-211
(expiry), KIP-447.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from broker.groups.internal_topic import InternalTopic, KeyValue, WhenDone
from broker.groups.offsets.records import CommittedOffset, encode_offset_key, encode_offset_value
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from values.dataclasses import dataclass

TopicPartition: TypeAlias = tuple[str, int]

logger = logging.getLogger("tidelog.broker.groups.offsets.store")

_NOTHING: Mapping[TopicPartition, CommittedOffset] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryRule:
    """The rule by which a group's offsets expire.

    Attributes:
        now_ms: the current time (wall clock).
        retention_ms: how long an offset is kept after it began to age.
        ages_since_ms: when all of them began to age (the group became empty), or NO_TIMESTAMP:
            each from its own commit.
        subscribed_topics: topics that some member consumes now; their offsets do not age.
    """

    now_ms: int
    retention_ms: int
    ages_since_ms: int = NO_TIMESTAMP
    subscribed_topics: frozenset[str] = frozenset()


class OffsetTable:
    """The offsets of every group. Loop thread only."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[str, dict[int, dict[TopicPartition, CommittedOffset | None]]] = {}
        self._groups_of_producer: dict[int, set[str]] = {}

    def groups(self) -> Iterator[str]:
        """The groups that have offsets, committed or pending."""
        yield from self._groups
        yield from (group_id for group_id in self._pending if group_id not in self._groups)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """A group's committed offsets; empty for an unknown group. A view: do not keep it."""
        return self._groups.get(group_id, _NOTHING)

    def is_unstable(self, group_id: str, tp: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        pending = self._pending.get(group_id)
        return pending is not None and any(tp in offsets for offsets in pending.values())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has offsets for the group."""
        return group_id in self._pending

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """The partitions that the group has offsets of, committed or pending."""
        pending = self._pending.get(group_id, {}).values()
        return list({*self.of_group(group_id), *(tp for offsets in pending for tp in offsets)})

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has any offset, committed or pending."""
        return group_id in self._groups or group_id in self._pending

    def commit(self, group_id: str, tp: TopicPartition, committed: CommittedOffset) -> None:
        """Set an offset; a pending one of an open transaction is older and will not count."""
        self._groups.setdefault(group_id, {})[tp] = committed
        for offsets in self._pending.get(group_id, {}).values():
            if tp in offsets:
                offsets[tp] = None

    def remove(self, group_id: str, tp: TopicPartition) -> None:
        """Remove an offset, with those of open transactions for it; ignores unknown ones."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(tp, None)
            if not offsets:
                del self._groups[group_id]
        for producer_id, waiting in list(self._pending.get(group_id, {}).items()):
            waiting.pop(tp, None)
            if not waiting:
                self._take_pending(producer_id, group_id)

    def prepare(
        self, producer_id: int, group_id: str, tp: TopicPartition, committed: CommittedOffset
    ) -> None:
        """Add an offset that counts only if the producer's open transaction commits."""
        self._pending.setdefault(group_id, {}).setdefault(producer_id, {})[tp] = committed
        self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def complete(
        self, producer_id: int, *, is_commit: bool, has_ended: Callable[[str], bool]
    ) -> None:
        """End the producer's transaction for the groups that `has_ended` selects.

        Their pending offsets of this producer become committed, or are dropped.
        """
        for group_id in filter(has_ended, list(self._groups_of_producer.get(producer_id, ()))):
            offsets = self._take_pending(producer_id, group_id)
            if not is_commit:
                continue
            for tp, committed in offsets.items():
                if committed is not None:
                    self.commit(group_id, tp, committed)

    def _take_pending(
        self, producer_id: int, group_id: str
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Remove and return the producer's pending offsets for the group."""
        of_group = self._pending[group_id]
        offsets = of_group.pop(producer_id)
        if not of_group:
            del self._pending[group_id]
        groups = self._groups_of_producer[producer_id]
        groups.remove(group_id)
        if not groups:
            del self._groups_of_producer[producer_id]
        return offsets

    def find_expired(self, group_id: str, rule: ExpiryRule) -> list[TopicPartition]:
        """The group's offsets that are too old to keep."""
        return [
            tp
            for tp, committed in self.of_group(group_id).items()
            if tp[0] not in rule.subscribed_topics
            and _is_expired(committed, rule)
            and not self.is_unstable(group_id, tp)
        ]


def _is_expired(committed: CommittedOffset, rule: ExpiryRule) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return rule.now_ms >= committed.expire_timestamp_ms
    since_ms = rule.ages_since_ms
    if since_ms == NO_TIMESTAMP:
        since_ms = committed.commit_timestamp_ms
    return rule.now_ms - since_ms >= rule.retention_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets that a group commits, in a transaction if there is a producer id."""

    group_id: str
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]]
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_transactional(self) -> bool:
        """Whether the offsets count only once the producer's transaction commits."""
        return self.producer_id != NO_PRODUCER_ID


def log_failure(error: ErrorCode) -> None:
    """Log the failure of a change that no caller waits for: the next round tries again."""
    if error is not ErrorCode.NONE:
        logger.warning("groups or offsets could not be changed in the log now: %s", error.name)


class OffsetStore:
    """The committed offsets of all groups, in memory and in the offsets topic."""

    def __init__(self, topic: InternalTopic, has_topic: Callable[[str], bool]) -> None:
        """Store into `topic`, which its owner opens and replays.

        `has_topic` says whether a topic of that name exists.
        """
        self.table = OffsetTable()
        self._topic = topic
        self.has_topic = has_topic

    def commit(self, commit: OffsetCommit, when_done: WhenDone) -> None:
        """Store offsets; `when_done(NONE)` once they are durable and visible."""
        if not commit.offsets:
            when_done(ErrorCode.NONE)
            return
        group_id = commit.group_id
        records: list[KeyValue] = [
            (encode_offset_key(group_id, *tp), encode_offset_value(committed))
            for tp, committed in commit.offsets
        ]

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._take(commit)
                # A topic that was deleted meanwhile found nothing in the table to delete.
                gone = [tp for tp, _ in commit.offsets if not self.has_topic(tp[0])]
                self.delete(group_id, gone, log_failure)
            when_done(error)

        self._topic.append(
            self._topic.partition_of(group_id),
            records,
            stored,
            producer_id=commit.producer_id,
            producer_epoch=commit.producer_epoch,
        )

    def delete(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        when_done: WhenDone,
        *,
        also: Sequence[KeyValue] = (),
    ) -> None:
        """Delete offsets by tombstones; `also` are further records to store with them."""
        records: list[KeyValue] = [(encode_offset_key(group_id, *tp), None) for tp in partitions]
        records += also
        if not records:
            when_done(ErrorCode.NONE)
            return

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for tp in partitions:
                    self.table.remove(group_id, tp)
            when_done(error)

        self._topic.append(self._topic.partition_of(group_id), records, stored)

    def _take(self, commit: OffsetCommit) -> None:
        for tp, committed in commit.offsets:
            if commit.is_transactional:
                self.table.prepare(commit.producer_id, commit.group_id, tp, committed)
            else:
                self.table.commit(commit.group_id, tp, committed)
