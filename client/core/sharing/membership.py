"""The membership of a share group: joining, staying, leaving, and the partitions to read.

One heartbeat at a time, by whom a face lets call `beat`. Assignments name topics by id.

Source: KIP-932; Kafka ``ShareMembershipManager``.
"""

import logging
import uuid
from typing import Final

from client.core.cluster import Cluster, CoordinatorType
from client.core.parts import check
from client.core.retry import is_retriable
from client.errors import ClientError
from client.types import TopicPartition
from protocol.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.error_codes import ErrorCode
from protocol.structs import Assignment

logger = logging.getLogger("tidelog.client.core.sharing.membership")

_JOIN: Final = 0
_LEAVE: Final = -1
_REJOIN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
)
_NEXT_TRY_S: Final = 0.5


class ShareMembership:
    """One member. `assigned` are the partitions to read, with the ids of their topics."""

    def __init__(self, cluster: Cluster, group_id: str, topics: tuple[str, ...]) -> None:
        """No member yet."""
        self.group_id = group_id
        self.member_id = str(uuid.uuid4())
        self.assigned: dict[TopicPartition, bytes] = {}
        self.due = 0.0
        """When the next heartbeat is due, by the clock of the cluster."""

        self._cluster = cluster
        self._topics = topics
        self._epoch = _JOIN
        self._unknown: Assignment | None = None

    @property
    def what(self) -> str:
        """The membership, for messages."""
        return f"share group {self.group_id}"

    async def join(self) -> None:
        """Send the first heartbeat, again and again until the client's timeout.

        Raises:
            BrokerRefused: the group does not accept this member.
            BrokerUnreachable: no coordinator answers.
            UnsupportedByBroker: the broker has no share groups.
        """
        self.due = self._cluster.clock.now() + _NEXT_TRY_S
        answer = await self._cluster.retrying_at_coordinator(
            CoordinatorType.GROUP, self.group_id, self._attempt
        )
        await self._answered(*answer)

    async def beat(self) -> None:
        """Send a heartbeat if one is due; join again if this is no member any more.

        A failure that may pass is logged, and the next try is due soon: no poll waits for it.

        Raises:
            BrokerRefused: the group does not accept this member.
        """
        if self._cluster.clock.now() < self.due:
            return
        # One attempt at a time, even if it fails or another task calls meanwhile.
        self.due = self._cluster.clock.now() + _NEXT_TRY_S
        try:
            await self._answered(*await self._attempt())
        except ClientError as error:
            if not is_retriable(error):
                raise
            self._cluster.forget_coordinator(CoordinatorType.GROUP, self.group_id)
            logger.info("%s: %s", self.what, error)

    async def _answered(self, response: ShareGroupHeartbeatResponse, address: str) -> None:
        """Take what the coordinator says."""
        if response.error_code in _REJOIN and self._epoch != _JOIN:
            logger.info("%s: this member joins again", self.what)
            self._epoch = _JOIN
            self.assigned = {}
            self.due = 0.0
            return
        check(f"being a member of {self.what}", response, address)
        self._epoch = response.member_epoch
        self.due = self._cluster.clock.now() + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            await self._take(response.assignment)
        elif self._unknown is not None:
            await self._take(self._unknown)

    async def _attempt(self) -> tuple[ShareGroupHeartbeatResponse, str]:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=sorted(set(self._topics)) if self._epoch == _JOIN else None,
        )
        response: ShareGroupHeartbeatResponse
        response, address = await self._cluster.call_coordinator(
            CoordinatorType.GROUP, self.group_id, request, min_version=1
        )
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE and code.retriable:
            check(f"being a member of {self.what}", response, address)
        return response, address

    async def _take(self, assignment: Assignment) -> None:
        """Read these partitions from now on; those of topics that are not known yet, later."""
        ids = {bytes(each.topic_id) for each in assignment.topic_partitions}
        names = await self._cluster.topic_names(ids)
        self._unknown = None
        found = {}
        for each in assignment.topic_partitions:
            topic_id = bytes(each.topic_id)
            if topic_id not in names:
                self._unknown = assignment
                continue
            for index in each.partitions:
                found[TopicPartition(names[topic_id], index)] = topic_id
        self.assigned = found
        logger.info("%s: %d partitions", self.what, len(found))

    async def leave(self) -> None:
        """Leave the group; a failure is logged, since the session timeout has the same effect."""
        if self._epoch == _JOIN:
            return
        self._epoch = _JOIN
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=_LEAVE
        )
        try:
            await self._cluster.call_coordinator(
                CoordinatorType.GROUP, self.group_id, request, min_version=1
            )
        except ClientError as error:
            logger.info("%s: leaving failed: %s", self.what, error)
