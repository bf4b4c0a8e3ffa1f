"""The coordinator's deletions: expired offsets, deleted groups, offsets of deleted topics.

Owns the rules of when a group and its offsets end, and the order "tombstones first, then memory".
Refuses to know the clock: the time is a parameter.

Source: KIP-211, KIP-229, KIP-496; Kafka's `OffsetMetadataManager.cleanupExpiredOffsets`,
`GroupCoordinatorService.deleteGroups`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.subscription import subscribed_topics
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer_coordinator import ConsumerGroupCoordinator
from broker.groups.internal_topic import KeyValue, WhenDone
from broker.groups.offsets.records import encode_group_key
from broker.groups.offsets.store import ExpiryRule, OffsetStore, TopicPartition, log_failure
from broker.groups.share_coordinator import ShareGroupCoordinator
from broker.groups.streams_coordinator import StreamsGroupCoordinator
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from protocol.time_windows import MARK
from storage.disk.steps import Steps
from values.dataclasses import dataclass
from values.words import format_count

if TYPE_CHECKING:  # loaded with the first group of that kind
    from broker.groups.streams.group import StreamsGroup

logger = logging.getLogger("tidelog.broker.groups.cleanup")

AnyGroup: TypeAlias = "ClassicGroup | ConsumerGroup | StreamsGroup"


@dataclass(eq=False)
class GroupCleanup:
    """The end of groups and offsets. Loop thread only; works on its coordinator's tables.

    `deleted` counts the groups that it removed; offsets are kept for `retention_ms` after they
    began to age.
    """

    classic_groups: dict[str, ClassicGroup]
    consumers: ConsumerGroupCoordinator
    offsets: OffsetStore
    state_since_ms: dict[str, int]
    shares: ShareGroupCoordinator
    streams: StreamsGroupCoordinator
    retention_ms: int
    deleted: int = 0

    def delete_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        when_done: Callable[[ErrorCode, frozenset[TopicPartition]], object],
    ) -> None:
        """Delete offsets of topics that the group does not read now.

        `when_done` gets the error for all, and the partitions that were refused because the group
        is subscribed to their topic.
        """
        group = self._find(group_id)
        if group is None:
            when_done(ErrorCode.GROUP_ID_NOT_FOUND, frozenset())
            return
        if (
            isinstance(group, ClassicGroup)
            and not group.is_empty
            and group.protocol_type != CONSUMER_PROTOCOL_TYPE
        ):
            when_done(ErrorCode.NON_EMPTY_GROUP, frozenset())
            return
        asked = list(partitions)
        topics = self._subscribed_topics(group)
        refused = frozenset(tp for tp in asked if topics is None or tp[0] in topics)
        known = set(self.offsets.table.partitions_of(group_id))
        wanted = [tp for tp in asked if tp not in refused and tp in known]
        self.offsets.delete(group_id, wanted, lambda error: when_done(error, refused))

    def delete_group(self, group_id: str, when_done: WhenDone) -> None:
        """Delete an empty group with its offsets, including those of open transactions."""
        if group_id in self.shares.groups:
            self.shares.delete_group(group_id, when_done)
            return
        group = self._find(group_id)
        if group is None:
            when_done(ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            when_done(ErrorCode.NON_EMPTY_GROUP)
        else:
            self._delete(group, self.offsets.table.partitions_of(group_id), when_done)

    def topic_deleted(self, topic: str) -> Steps[None]:
        """Delete every group's offsets of a deleted topic, in a step for each group.

        Groups may come and go between the steps. The topic may not come back before the end.
        """
        for group_id in list(self.offsets.table.groups()):
            known = self.offsets.table.partitions_of(group_id)
            partitions = [
                tp
                for tp in known
                if tp[0] == topic
                # A window ends with its topic.
                or (tp[0].rpartition(MARK)[0] == topic and not self.offsets.has_topic(tp[0]))
            ]
            self.offsets.delete(group_id, partitions, log_failure)
            yield None

    def expire(self, now_ms: int) -> None:
        """Expire offsets and empty groups that are past their retention at `now_ms` (wall)."""
        groups: list[AnyGroup] = [
            *self.classic_groups.values(),
            *self.consumers.groups.values(),
            *self.streams.groups.values(),
        ]
        for group in groups:
            self._expire(group, now_ms)

    def _expire(self, group: AnyGroup, now_ms: int) -> None:
        group_id = group.group_id
        topics = self._subscribed_topics(group)
        if topics is None:
            return
        ages_since_ms = NO_TIMESTAMP
        if isinstance(group, ClassicGroup) and group.is_empty and group.protocol_type:
            ages_since_ms = self.state_since_ms.get(group_id, NO_TIMESTAMP)
        rule = ExpiryRule(
            now_ms=now_ms,
            retention_ms=self.retention_ms,
            ages_since_ms=ages_since_ms,
            subscribed_topics=topics,
        )
        table = self.offsets.table
        expired = table.find_expired(group_id, rule)
        # No offset would remain, nor return when a transaction commits.
        are_all = len(expired) == len(table.of_group(group_id)) and not table.has_pending(group_id)
        if group.is_empty and are_all:
            self._delete(group, expired, log_failure)
        elif expired:
            self.offsets.delete(group_id, expired, log_failure)
        else:
            return
        removed = "it is empty and removed, " if are_all and group.is_empty else ""
        past = format_count(len(expired), "offset")
        logger.info("group %s: %s%s past the retention", group_id, removed, past)

    def _find(self, group_id: str) -> "AnyGroup | None":
        return (
            self.classic_groups.get(group_id)
            or self.consumers.groups.get(group_id)
            or self.streams.groups.get(group_id)
        )

    def _subscribed_topics(self, group: AnyGroup) -> frozenset[str] | None:
        """The topics that members read now; None when that is unknown."""
        if isinstance(group, ConsumerGroup):
            return self.consumers.subscribed_topics(group.group_id)
        if isinstance(group, ClassicGroup):
            return frozenset() if group.is_empty else subscribed_topics(group)
        return group.source_topics()

    def _delete(
        self, group: AnyGroup, partitions: list[TopicPartition], when_done: WhenDone
    ) -> None:
        """Delete offsets and the empty group itself, unless a member joins while that is written.

        A member of the consumer protocol that joins meanwhile stores the whole group, after the
        tombstones.
        """
        group_id = group.group_id

        def stored(error: ErrorCode) -> None:
            is_unused = group.is_empty and not self.offsets.table.has_offsets(group_id)
            if error is ErrorCode.NONE and is_unused and self._find(group_id) is group:
                self._remove(group)
            when_done(error)

        tombstones: list[KeyValue] = []
        if isinstance(group, ConsumerGroup):
            tombstones = self.consumers.erase(group_id)
        elif not isinstance(group, ClassicGroup):
            tombstones = self.streams.erase(group_id)
        elif group.generation_id:
            tombstones = [(encode_group_key(group_id), None)]
        self.offsets.delete(group_id, partitions, stored, also=tombstones)

    def _remove(self, group: AnyGroup) -> None:
        self.deleted += 1
        if isinstance(group, ConsumerGroup):
            self.consumers.remove(group.group_id)
        elif not isinstance(group, ClassicGroup):
            self.streams.remove(group.group_id)
        else:
            group.kill()
            del self.classic_groups[group.group_id]
            self.state_since_ms.pop(group.group_id, None)
