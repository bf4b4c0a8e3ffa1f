"""The group of one consumer: the member that joins it, and the name under which offsets are stored.

A consumer without a group has one of these as well, which joins nothing and commits nowhere.
The protocols of a member are `client.aio.membership.classic` and `consumer`; what a rebalance
changes is `rebalance`.
"""

from collections.abc import Callable

from client.aio.fetching import Fetcher
from client.aio.membership.classic import ClassicMember
from client.aio.membership.consumer import ConsumerProtocolMember, check_support
from client.aio.membership.options import ClassicOptions
from client.aio.membership.rebalance import Listeners, Rebalance
from client.aio.positions import Positions
from client.aio.topics import Subscribed
from client.core.cluster import Cluster
from client.core.membership.options import ConsumerGroupOptions
from client.errors import ClientError, InvalidUse
from client.types import GroupMetadata


class OwnGroup:
    """Owned by one consumer; ended by `close`.

    Attributes:
        group_id: the group, None without one.
        member: the membership while there is one.
        commits_every_s: the interval of auto-commit, None without it.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str | None,
        options: ClassicOptions | ConsumerGroupOptions,
        listeners: Listeners,
        *,
        commits_every_ms: int,
        on_failure: Callable[[ClientError], None],
    ) -> None:
        """Join nothing yet; 0 ms is no auto-commit.

        `on_failure` gets the errors that no further round of joining cures.
        """
        self.group_id = group_id
        self.member: ClassicMember | ConsumerProtocolMember | None = None
        self.commits_every_s = commits_every_ms / 1000 if commits_every_ms and group_id else None
        self._cluster = cluster
        self._options = options
        self._listeners = listeners
        self._on_failure = on_failure

    @property
    def broker_matches(self) -> bool:
        """Whether the broker finds the topics that match a pattern."""
        return isinstance(self._options, ConsumerGroupOptions)

    async def check_support(self) -> None:
        """Raises UnsupportedByBroker if the broker lacks the protocol that was chosen."""
        if isinstance(self._options, ConsumerGroupOptions):
            await check_support(self._cluster)

    def join(
        self,
        fetcher: Fetcher,
        positions: Positions,
        subscribed: Subscribed,
        names: tuple[str, ...],
    ) -> None:
        """Become a member that reads a share of these topics."""
        rebalance = Rebalance(
            group_id=self._options.group_id,
            fetcher=fetcher,
            positions=positions,
            listeners=self._listeners,
            is_auto_commit=self.commits_every_s is not None,
            on_failure=self._on_failure,
        )
        if isinstance(self._options, ConsumerGroupOptions):
            self.member = ConsumerProtocolMember(self._cluster, self._options, rebalance)
        else:
            self.member = ClassicMember(self._cluster, self._options, rebalance)
        self.member.start(subscribed, names)

    async def close(self, fetcher: Fetcher, positions: Positions) -> None:
        """Leave the group, and commit what auto-commit may."""
        if self.member is not None:
            await self.member.close()
        elif self.commits_every_s is not None:
            await positions.commit_consumed(fetcher.readers.values())

    def metadata(self) -> GroupMetadata | None:
        """Under which offsets are now committed and fetched; None without a group."""
        if self.member is not None:
            return self.member.metadata
        return None if self.group_id is None else GroupMetadata(group_id=self.group_id)

    def for_commits(self) -> GroupMetadata:
        """The same. Raises InvalidUse without a group."""
        group = self.metadata()
        if group is None:
            raise InvalidUse("this consumer has no group: give it a group_id to commit")
        return group
