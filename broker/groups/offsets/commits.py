"""Committing, deleting and expiring offsets: the table made durable.

Owns the order "log first, then memory, then the answer" for offsets. Refuses to know generations
(`broker.groups.classic.group` decides who may commit) and the wire. A change shows in the table
only when it is durable, so no client reads a position that a crash could take back.

Source: Kafka's `OffsetMetadataManager`, `GroupMetadataManager.storeOffsets`.
Read next: `broker.groups.internal_topic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from broker.groups.internal_topic import InternalTopic, KeyValue
from broker.groups.offsets.records import CommittedOffset, encode_offset_key, encode_offset_value
from broker.groups.offsets.table import OffsetTable, TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

WhenDone: TypeAlias = Callable[[ErrorCode], object]


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


class OffsetStore:
    """The committed offsets of all groups, in memory and in the offsets topic."""

    def __init__(self, topic: InternalTopic) -> None:
        """Store into `topic`, which its owner opens and replays."""
        self.table = OffsetTable()
        self._topic = topic

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
            when_done(error)

        self._topic.append(
            self._topic.partition_of(group_id),
            records,
            stored,
            producer_id=commit.producer_id,
            producer_epoch=commit.producer_epoch,
        )

    def forget(
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
