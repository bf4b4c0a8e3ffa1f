"""Being a member of a group of the consumer protocol (KIP-848): heartbeats, and steps meanwhile.

Owns two tasks: one sends the heartbeats, at the coordinator's interval and whenever there is
something new to say, the other carries out the steps towards the target. A listener may therefore
take its time while the heartbeats go on. What is said and done is decided by
`client.core.membership.member`.
"""

import asyncio
import logging
from typing import Final

from client.aio.background import end_tasks, start_watched
from client.aio.membership.rebalance import Rebalance
from client.aio.topics import Subscribed
from client.core.cluster import Cluster, CoordinatorType
from client.core.membership.member import ConsumerMember, StepKind
from client.core.membership.options import ConsumerGroupOptions
from client.core.parts import check
from client.core.retry import Backoff
from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    UnsupportedByBroker,
)
from client.types import NO_GENERATION, GroupMetadata
from protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode

logger = logging.getLogger("tidelog.client.aio.membership.consumer")

VERSION: Final = 1
"""The first version in which a member chooses its id, and in which patterns are sent."""

_NAMES_AGAIN_MS: Final = 500
"""How soon a topic of the target is looked up again that has no name yet."""

_CURES: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "a group of another type has this name: give another group_id, or group_protocol='classic' "
        "for members of the classic protocol"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker has not enabled the consumer protocol: give group_protocol='classic'"
    ),
}
"""The cures for a member that does not fit the group or the broker."""


async def check_support(cluster: Cluster) -> None:
    """Find out whether the brokers have the consumer protocol.

    Raises:
        UnsupportedByBroker: they have not; with the cure.
        BrokerUnreachable: none answers.
    """
    connection = await cluster.any_connection()
    try:
        connection.version_of(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, max_version=VERSION, min_version=VERSION
        )
    except UnsupportedByBroker as error:
        raise UnsupportedByBroker(
            f"group_protocol='consumer' needs Apache Kafka 4.0 or a newer broker: {error}, or give "
            "group_protocol='classic'",
            broker=error.broker,
        ) from None


class ConsumerProtocolMember:
    """One consumer's membership. Started by `start`, ended by `close`, which leaves."""

    def __init__(
        self, cluster: Cluster, options: ConsumerGroupOptions, rebalance: Rebalance
    ) -> None:
        """No member yet."""
        self._cluster = cluster
        self._options = options
        self._member = ConsumerMember(options)
        self._rebalance = rebalance
        self._carry_out = {
            StepKind.REVOKE: rebalance.revoked,
            StepKind.LOST: rebalance.lost,
            StepKind.ASSIGN: rebalance.assigned,
        }
        self._loop = asyncio.get_running_loop()
        self._polled_at = self._loop.time()
        self._wake = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        self._steps: asyncio.Task[None] | None = None

    @property
    def metadata(self) -> GroupMetadata:
        """In whose name offsets are committed now."""
        member = self._member
        return GroupMetadata(
            group_id=self._options.group_id,
            generation=member.epoch if member.is_member else NO_GENERATION,
            member_id=member.member_id if member.is_member else "",
            instance_id=self._options.instance_id,
            has_epoch=member.is_member,
            joins_count=member.joins_count,
        )

    def start(self, subscribed: Subscribed, _names: tuple[str, ...]) -> None:
        """Join for these topics, or for those that match."""
        self._member.subscribe(subscribed.topics, subscribed.regex)
        self._heartbeats = start_watched(self._run(), "consumer.group", self._rebalance.broken)

    def subscribe(self, subscribed: Subscribed, _names: tuple[str, ...]) -> None:
        """Share these topics from now on."""
        self._member.subscribe(subscribed.topics, subscribed.regex)
        self._wake.set()

    def polled(self) -> None:
        """The consumer is alive and was polled."""
        self._polled_at = self._loop.time()
        if not self._member.is_member:
            self._wake.set()

    async def close(self) -> None:
        """Give back all partitions and leave; a static member's stay reserved for its return."""
        if self._heartbeats is None:
            return
        await end_tasks(self._heartbeats, self._steps)
        self._heartbeats = None
        self._member.release()
        await self._reconcile()
        await self._leave()

    # Heartbeats.

    async def _run(self) -> None:
        backoff = Backoff(first_ms=100, limit_ms=1000)
        while True:
            try:
                if self._is_polled():
                    await self._beat()
                else:
                    await self._step_aside()
                backoff.reset()
                await self._wait()
            except BrokerRefused as error:
                logger.info("group %s: %s", self._options.group_id, error)
                if not self._member.refused(error.code):
                    self._rebalance.on_failure(self._explained(error))
                self._cluster.forget_coordinator(CoordinatorType.GROUP, self._options.group_id)
                self._start_steps()
                await asyncio.sleep(backoff.next_s())
            except ClientError as error:
                logger.info("group %s: %s", self._options.group_id, error)
                self._member.unheard()
                if not isinstance(error, BrokerUnreachable):
                    self._rebalance.on_failure(error)
                await asyncio.sleep(backoff.next_s())

    def _is_polled(self) -> bool:
        idle_s = self._loop.time() - self._polled_at
        return idle_s * 1000 < self._options.max_poll_interval_ms

    async def _beat(self) -> None:
        response, address = await self._call(self._member.heartbeat())
        check(self._what, response, address)
        self._member.answered(response)
        if unknown := self._member.unknown_ids():
            self._member.learn(await self._cluster.topic_names(unknown))
        self._start_steps()

    async def _call(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupHeartbeatResponse, str]:
        response: ConsumerGroupHeartbeatResponse
        response, address = await self._cluster.call_coordinator(
            CoordinatorType.GROUP, self._options.group_id, request, min_version=VERSION
        )
        return response, address

    async def _wait(self) -> None:
        """Until the next heartbeat is due; for a consumer that is not polled, until it is."""
        is_polled = self._is_polled()
        if is_polled and self._member.is_due:
            return
        pause_ms = self._member.interval_ms
        if self._member.unknown_ids():
            pause_ms = min(pause_ms, _NAMES_AGAIN_MS)
        self._wake.clear()
        try:
            async with asyncio.timeout(pause_ms / 1000 if is_polled else None):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step_aside(self) -> None:
        """The consumer is not polled: leave once, and join again with the next poll."""
        if not self._member.is_member:
            return
        logger.warning(
            "group %s: no poll for %d ms, leaving; poll more often or raise max_poll_interval_ms",
            self._options.group_id,
            self._options.max_poll_interval_ms,
        )
        self._member.release()
        self._start_steps()
        if self._steps is not None:
            await asyncio.wait((self._steps,))
        await self._leave()

    async def _leave(self) -> None:
        request = self._member.leaving()
        self._member.left()
        if request is None:
            return
        try:
            response, address = await self._call(request)
            check(f"leaving group {self._options.group_id}", response, address)
        except ClientError as error:
            # The session timeout has the same effect, only later.
            logger.info("group %s: leaving failed: %s", self._options.group_id, error)

    @property
    def _what(self) -> str:
        return f"being a member of group {self._options.group_id}"

    def _explained(self, error: BrokerRefused) -> BrokerRefused:
        """The error, with the cure for a member that does not fit the group or the broker."""
        if error.code not in _CURES:
            return error
        return BrokerRefused(
            self._what,
            error.code,
            broker=error.broker,
            detail=error.detail,
            cure=_CURES[error.code],
        )

    # Steps.

    def _start_steps(self) -> None:
        if self._steps is None or self._steps.done():
            self._steps = start_watched(
                self._reconcile(), "consumer.rebalance", self._rebalance.broken
            )

    async def _reconcile(self) -> None:
        """Carry out the steps that are due. The heartbeat after them says what is owned."""
        group_id = self._options.group_id
        while (step := self._member.next_step()) is not None:
            kind, count = step.kind.name.lower(), len(step.partitions)
            logger.info("group %s: %s %d partitions", group_id, kind, count)
            await self._carry_out[step.kind](step.partitions)
            self._member.done(step)
        if self._member.is_due:
            self._wake.set()
