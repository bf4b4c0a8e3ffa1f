"""Being a member of a group of the classic protocol: joining, sharing, staying alive, leaving.

Owns the member id, the generation and the one task that talks to the group's coordinator. It
reports revoked, lost and assigned partitions to its consumer's `rebalance`, and knows nothing of
positions or records. Members of the consumer protocol are `client.aio.membership.consumer`.

One round: revoke (everything, or with a cooperative assignor nothing yet) · JoinGroup, which the
coordinator answers when all members have joined · the leader assigns · SyncGroup returns the
assignment · take it. The answers to heartbeats then report the next round. A cooperative member
that has to give up partitions does so after SyncGroup. It then joins again, so that other members
can get them.

Invariant: a member takes partitions only under the current generation.

Source: KIP-62, KIP-345 (static members), KIP-394 (member id first), KIP-429 (cooperative).
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from client.aio.background import end_tasks, start_watched
from client.aio.membership.options import ClassicOptions, assignors_named
from client.aio.membership.rebalance import Rebalance
from client.aio.topics import Subscribed
from client.assignors import Assignor, Subscription
from client.core.cluster import Cluster, CoordinatorType, Role
from client.core.parts import check
from client.core.retry import Backoff, is_retriable
from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    InvalidUse,
)
from client.subscription import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from client.types import NO_GENERATION, GroupMetadata, TopicPartition
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.error_codes import ErrorCode
from protocol.structs import ProtocolMetadata

logger = logging.getLogger("tidelog.client.aio.membership.classic")

JOIN_GRACE_MS = 5000
"""How much longer than the rebalance a JoinGroup may take before the connection is given up."""

_NEXT_ROUND = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)


class ClassicMember:
    """One consumer's membership. Started by `start`, ended by `close`, which leaves."""

    def __init__(self, cluster: Cluster, options: ClassicOptions, rebalance: Rebalance) -> None:
        """No member yet."""
        self._cluster = cluster
        self._options = options
        self._assignors = assignors_named(options.assignors)
        self._rebalance = rebalance
        self._loop = asyncio.get_running_loop()
        self._topics: tuple[str, ...] = ()
        self._joined_for: tuple[str, ...] = ()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._assignor: Assignor | None = None
        self._owned: frozenset[TopicPartition] = frozenset()
        self._counts: dict[str, int] | None = None
        self._must_join = True
        self._polled_at = self._loop.time()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """In whose name offsets are committed now."""
        return GroupMetadata(
            group_id=self._options.group_id,
            generation=self._generation,
            member_id=self._member_id,
            instance_id=self._options.instance_id,
        )

    def start(self, _subscribed: Subscribed, names: tuple[str, ...]) -> None:
        """Join for the topics of these names."""
        self._topics = tuple(sorted(set(names)))
        self._task = start_watched(self._run(), "consumer.group", self._rebalance.broken)

    def subscribe(self, _subscribed: Subscribed, names: tuple[str, ...]) -> None:
        """Share these topics from the next round on, which begins at once if they are others."""
        self._topics = tuple(sorted(set(names)))
        if self._topics != self._joined_for:
            self._must_join = True
            self._wake.set()

    def polled(self) -> None:
        """The consumer is alive and was polled."""
        self._polled_at = self._loop.time()
        if self._must_join:
            self._wake.set()

    async def close(self) -> None:
        """Release all partitions and leave; a static member stays a member until it times out."""
        if self._task is None:
            return
        await end_tasks(self._task)
        self._task = None
        await self._release(self._owned)
        await self._leave("the consumer was closed")

    # The loop.

    async def _run(self) -> None:
        backoff = Backoff(first_ms=100, limit_ms=1000)
        while True:
            try:
                if not self._is_polled():
                    await self._step_aside()
                elif self._must_join:
                    await self._join_round()
                else:
                    await self._heartbeat()
                    await self._watch_topics()
                backoff.reset()
                await self._wait()
            except (BrokerRefused, BrokerUnreachable) as error:
                if not await self._cure(error):
                    self._rebalance.on_failure(error)
                await asyncio.sleep(backoff.next_s())
            except ClientError as error:
                self._rebalance.on_failure(error)
                await asyncio.sleep(backoff.next_s())

    def _is_polled(self) -> bool:
        idle_s = self._loop.time() - self._polled_at
        return idle_s * 1000 < self._options.max_poll_interval_ms

    async def _wait(self) -> None:
        if self._must_join and self._is_polled():
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(self._options.heartbeat_interval_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step_aside(self) -> None:
        """The consumer is not polled: leave once, and join again with the next poll."""
        if self._generation == NO_GENERATION:
            return
        logger.warning(
            "group %s: no poll for %d ms, leaving; poll more often or raise max_poll_interval_ms",
            self._options.group_id,
            self._options.max_poll_interval_ms,
        )
        await self._release(self._owned)
        await self._leave("no poll within max.poll.interval.ms")

    async def _cure(self, error: BrokerRefused | BrokerUnreachable) -> bool:
        """Prepare another attempt; False if none can help."""
        group_id = self._options.group_id
        logger.info("group %s: %s", group_id, error)
        if isinstance(error, BrokerUnreachable):
            self._cluster.forget_coordinator(CoordinatorType.GROUP, group_id)
            return True
        if error.code in _NEXT_ROUND:
            self._must_join = True
            if error.code != ErrorCode.REBALANCE_IN_PROGRESS:
                # Others may own these partitions already: this member must not commit for them.
                self._generation = NO_GENERATION
                lost, self._owned = self._owned, frozenset()
                if lost:
                    await self._rebalance.lost(lost)
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            return True
        if error.code == ErrorCode.MEMBER_ID_REQUIRED:
            return True
        self._cluster.forget_coordinator(CoordinatorType.GROUP, group_id)
        return is_retriable(error)

    async def _release(self, partitions: frozenset[TopicPartition]) -> None:
        self._owned -= partitions
        if partitions:
            await self._rebalance.revoked(partitions)

    # One round.

    async def _join_round(self) -> None:
        if not self._is_cooperative():
            await self._release(self._owned)
        joined, address = await self._join()
        self._member_id = joined.member_id
        check(self._what("joining"), joined, address)
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise InvalidUse(
                f"group {self._options.group_id} uses the assignor {joined.protocol_name!r}, "
                f"which this consumer did not offer"
            )
        self._generation, self._assignor = joined.generation_id, assignor
        shares: list[SyncGroupRequestAssignment] = []
        self._counts = None
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = await self._share(joined, assignor)
        await self._take(await self._sync(joined, shares))

    def _is_cooperative(self) -> bool:
        """Whether partitions are kept while joining: the last round's assignor decides."""
        return self._assignor is not None and self._assignor.is_cooperative

    async def _join(self) -> tuple[Any, str]:
        self._joined_for = self._topics
        subscription = Subscription(
            topics=self._topics, owned=tuple(self._owned), generation=self._generation
        )
        metadata = encode_subscription(subscription)
        request = JoinGroupRequest(
            group_id=self._options.group_id,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=self._options.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[ProtocolMetadata(name=name, metadata=metadata) for name in self._assignors],
        )
        response = await self._call(
            request,
            role=Role.JOIN,
            min_version=5 if self._options.instance_id is not None else 0,
            timeout_ms=self._options.max_poll_interval_ms + JOIN_GRACE_MS,
        )
        if response[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = response[0].member_id
            response = await self._call(
                request,
                role=Role.JOIN,
                timeout_ms=self._options.max_poll_interval_ms + JOIN_GRACE_MS,
            )
        return response

    async def _share(self, joined: Any, assignor: Assignor) -> list[SyncGroupRequestAssignment]:
        """The leader's work: every member's share, from all subscriptions."""
        members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in joined.members
        }
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        counts = await self._partition_counts(topics)
        self._counts = counts
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
            for member_id, share in assignor.assign(members, counts).items()
        ]

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        counts = {}
        for name in topics:
            try:
                counts[name] = len((await self._cluster.topic(name)).partitions)
            except BrokerRefused as error:
                logger.info(
                    "group %s: topic %s is left out: %s", self._options.group_id, name, error
                )
        return counts

    async def _sync(
        self, joined: Any, shares: list[SyncGroupRequestAssignment]
    ) -> frozenset[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._options.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        response, address = await self._call(
            request,
            role=Role.JOIN,
            timeout_ms=self._options.max_poll_interval_ms + JOIN_GRACE_MS,
        )
        check(self._what("syncing"), response, address)
        return frozenset(decode_assignment(response.assignment))

    async def _take(self, share: frozenset[TopicPartition]) -> None:
        lost = self._owned - share
        await self._release(lost)
        self._owned = share
        # Released partitions can be given to others only in another round, and topics that changed
        # during this one were not in it.
        is_next_due = bool(lost) and self._is_cooperative()
        self._must_join = is_next_due or self._topics != self._joined_for
        logger.info(
            "group %s: generation %d, %d partitions",
            self._options.group_id,
            self._generation,
            len(share),
        )
        await self._rebalance.assigned(share)

    # Between rounds.

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._options.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
        )
        response, address = await self._call(request)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        else:
            check(self._what("heartbeat"), response, address)

    async def _watch_topics(self) -> None:
        """The leader starts another round when a topic appears, goes, or grows."""
        if self._counts is None:
            return
        if await self._partition_counts([*self._counts, *self._topics]) != self._counts:
            self._must_join = True

    async def _leave(self, reason: str) -> None:
        member_id, self._member_id = self._member_id, ""
        self._generation = NO_GENERATION
        self._must_join = True
        if not member_id or self._options.instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self._options.group_id,
            member_id=member_id,
            members=[MemberIdentity(member_id=member_id, reason=reason)],
        )
        try:
            await self._call(request)
        except ClientError as error:
            # The session timeout has the same effect, only later.
            logger.info("group %s: leaving failed: %s", self._options.group_id, error)

    async def _call(
        self,
        request: Any,
        *,
        role: Role = Role.GROUP,
        min_version: int = 0,
        timeout_ms: int | None = None,
    ) -> tuple[Any, str]:
        if self._options.instance_id is not None:
            min_version = max(min_version, 3)
        return await self._cluster.call_coordinator(
            CoordinatorType.GROUP,
            self._options.group_id,
            request,
            role=role,
            min_version=min_version,
            timeout_ms=timeout_ms,
        )

    def _what(self, doing: str) -> str:
        return f"{doing} group {self._options.group_id}"
