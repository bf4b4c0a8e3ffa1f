"""The coordinator's deletions: expired offsets, deleted groups, offsets of deleted topics.

Owns the rules of when a group and its offsets end, and the order "tombstones first, then memory".
Refuses to know the clock: the time is a parameter.

Source: KIP-211, KIP-229, KIP-496; Kafka's `OffsetMetadataManager.cleanupExpiredOffsets`,
`GroupCoordinatorService.deleteGroups`. Read next: `broker.groups.coordinator`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from broker.groups import subscriptions
from broker.groups.classic.group import Group
from broker.groups.classic.values import GroupState
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer_coordinator import ConsumerGroups
from broker.groups.offsets.commits import OffsetStore
from broker.groups.offsets.records import encode_group_key
from broker.groups.offsets.table import ExpiryRule, TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_TIMESTAMP
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE

logger = logging.getLogger("tidelog.broker.groups.expiry")


class Forgetting:
    """The end of groups and offsets. Loop thread only; works on its coordinator's tables."""

    def __init__(
        self,
        groups: dict[str, Group],
        consumers: ConsumerGroups,
        offsets: OffsetStore,
        state_since_ms: dict[str, int],
        *,
        retention_ms: int,
    ) -> None:
        """Keep offsets for `retention_ms` after they began to age."""
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._state_since_ms = state_since_ms
        self._retention_ms = retention_ms

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
        group = self._groups.get(group_id)
        consumers = self._consumers.groups.get(group_id)
        if group is None and consumers is None:
            when_done(ErrorCode.GROUP_ID_NOT_FOUND, frozenset())
            return
        asked = list(partitions)
        refused: frozenset[TopicPartition] = frozenset()
        if consumers is not None:
            read = self._consumers.subscribed_topics(group_id)
            refused = frozenset(tp for tp in asked if tp[0] in read)
        elif group is not None and group.state is not GroupState.EMPTY:
            topics = subscriptions.subscribed_topics(group)
            if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                when_done(ErrorCode.NON_EMPTY_GROUP, frozenset())
                return
            refused = frozenset(tp for tp in asked if topics is None or tp[0] in topics)
        known = set(self._offsets.table.partitions_of(group_id))
        wanted = [tp for tp in asked if tp not in refused and tp in known]
        self._offsets.forget(group_id, wanted, lambda error: when_done(error, refused))

    def delete_group(self, group_id: str, when_done: Callable[[ErrorCode], object]) -> None:
        """Delete an empty group with its offsets, including those of open transactions."""
        group = self._groups.get(group_id)
        consumers = self._consumers.groups.get(group_id)
        if consumers is not None and consumers.members:
            when_done(ErrorCode.NON_EMPTY_GROUP)
        elif consumers is not None:
            partitions = self._offsets.table.partitions_of(group_id)
            self._forget_consumers(consumers, partitions, when_done)
        elif group is None:
            when_done(ErrorCode.GROUP_ID_NOT_FOUND)
        elif group.state is not GroupState.EMPTY:
            when_done(ErrorCode.NON_EMPTY_GROUP)
        else:
            partitions = self._offsets.table.partitions_of(group_id)
            self._forget(group, partitions, when_done)

    def topic_deleted(self, topic: str) -> None:
        """Delete every group's offsets of a deleted topic."""
        for group_id in list(self._offsets.table.groups()):
            known = self._offsets.table.partitions_of(group_id)
            partitions = [tp for tp in known if tp[0] == topic]
            self._offsets.forget(group_id, partitions, log_failure)

    def expire(self, now_ms: int) -> None:
        """Expire offsets and empty groups that are past their retention at `now_ms` (wall)."""
        for group in list(self._groups.values()):
            self._expire(group, now_ms)
        for group_id in list(self._consumers.groups):
            self._expire_consumers(group_id, now_ms)

    def _expire(self, group: Group, now_ms: int) -> None:
        group_id = group.group_id
        is_empty = group.state is GroupState.EMPTY
        topics = subscriptions.subscribed_topics(group) if group.protocol_type else frozenset()
        if not is_empty and topics is None:
            return
        ages_since_ms = NO_TIMESTAMP
        if is_empty and group.protocol_type:
            ages_since_ms = self._state_since_ms.get(group_id, NO_TIMESTAMP)
        rule = ExpiryRule(
            now_ms=now_ms,
            retention_ms=self._retention_ms,
            ages_since_ms=ages_since_ms,
            subscribed_topics=topics or frozenset(),
        )
        expired = self._offsets.table.find_expired(group_id, rule)
        is_done = is_empty and self._is_all(group_id, expired)
        if expired or is_done:
            logger.info("%s: %d offsets are past their retention", group_id, len(expired))
            if is_done:
                self._forget(group, expired, log_failure)
            else:
                self._offsets.forget(group_id, expired, log_failure)

    def _forget(
        self,
        group: Group,
        partitions: list[TopicPartition],
        when_done: Callable[[ErrorCode], object],
    ) -> None:
        """Delete offsets and the group itself, unless a member joins while that is written."""
        group_id = group.group_id

        def stored(error: ErrorCode) -> None:
            is_unused = group.state is GroupState.EMPTY and not self._offsets.table.has_offsets(
                group_id
            )
            if error is ErrorCode.NONE and is_unused and self._groups.get(group_id) is group:
                group.kill()
                del self._groups[group_id]
                self._state_since_ms.pop(group_id, None)
            when_done(error)

        is_stored = group.generation_id > 0
        tombstones = [(encode_group_key(group_id), None)] if is_stored else []
        self._offsets.forget(group_id, partitions, stored, also=tombstones)

    def _expire_consumers(self, group_id: str, now_ms: int) -> None:
        group = self._consumers.groups[group_id]
        rule = ExpiryRule(
            now_ms=now_ms,
            retention_ms=self._retention_ms,
            subscribed_topics=self._consumers.subscribed_topics(group_id),
        )
        expired = self._offsets.table.find_expired(group_id, rule)
        if not group.members and self._is_all(group_id, expired):
            self._forget_consumers(group, expired, log_failure)
        elif expired:
            self._offsets.forget(group_id, expired, log_failure)

    def _is_all(self, group_id: str, expired: list[TopicPartition]) -> bool:
        """Whether no offset would remain, nor return when a transaction commits."""
        table = self._offsets.table
        return len(expired) == len(table.of_group(group_id)) and not table.has_pending(group_id)

    def _forget_consumers(
        self,
        group: ConsumerGroup,
        partitions: list[TopicPartition],
        when_done: Callable[[ErrorCode], object],
    ) -> None:
        """Delete offsets and the empty consumer group itself, like `_forget`.

        A member that joins meanwhile stores the whole group, after the tombstones.
        """
        group_id = group.group_id

        def stored(error: ErrorCode) -> None:
            is_unused = not group.members and not self._offsets.table.has_offsets(group_id)
            is_known = self._consumers.groups.get(group_id) is group
            if error is ErrorCode.NONE and is_unused and is_known:
                self._consumers.forget(group_id)
            when_done(error)

        tombstones = self._consumers.erase(group_id)
        self._offsets.forget(group_id, partitions, stored, also=tombstones)


def log_failure(error: ErrorCode) -> None:
    """Log the failure of a change that no caller waits for: the next round tries again."""
    if error is not ErrorCode.NONE:
        logger.warning("groups or offsets could not be changed in the log now: %s", error.name)
