"""The group of one consumer: the member that joins it, and the name under which offsets are stored.

A consumer without a group has one of these as well, which joins nothing and commits nowhere.
`client.aio.group` knows the protocol of a member, `client.aio.rebalance` what a rebalance changes.
"""

from collections.abc import Callable

from client.aio.fetching import Fetcher
from client.aio.group import GroupMember, GroupOptions
from client.aio.positions import Positions
from client.aio.rebalance import PartitionsListener, Rebalance
from client.core.cluster import Cluster
from client.core.offsets import Membership
from client.errors import ClientError, InvalidUse


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
        options: GroupOptions,
        *,
        on_assigned: PartitionsListener | None,
        on_revoked: PartitionsListener | None,
        commits_every_ms: int,
        on_failure: Callable[[ClientError], None],
    ) -> None:
        """Join nothing yet; 0 ms is no auto-commit.

        `on_failure` gets the errors that no further round of joining cures.
        """
        self.group_id = group_id
        self.member: GroupMember | None = None
        self.commits_every_s = commits_every_ms / 1000 if commits_every_ms and group_id else None
        self._cluster = cluster
        self._options = options
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_failure = on_failure

    def join(self, fetcher: Fetcher, positions: Positions, topics: tuple[str, ...]) -> None:
        """Become a member that reads a share of these topics."""
        rebalance = Rebalance(
            fetcher,
            positions,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            is_auto_commit=self.commits_every_s is not None,
        )
        self.member = GroupMember(
            self._cluster,
            self._options,
            on_revoked=rebalance.revoked,
            on_assigned=rebalance.assigned,
            on_failure=self._on_failure,
            on_defect=fetcher.break_off,
        )
        self.member.start(topics)

    async def close(self, fetcher: Fetcher, positions: Positions) -> None:
        """Leave the group, and commit what auto-commit may."""
        if self.member is not None:
            await self.member.close()
        elif self.commits_every_s is not None:
            await positions.commit_consumed(fetcher.readers.values())

    def membership(self) -> Membership | None:
        """Under which offsets are now committed and fetched; None without a group."""
        if self.member is not None:
            return self.member.membership
        return None if self.group_id is None else Membership(group_id=self.group_id)

    def for_commits(self) -> Membership:
        """The same. Raises InvalidUse without a group."""
        group = self.membership()
        if group is None:
            raise InvalidUse("this consumer has no group: give it a group_id to commit")
        return group
