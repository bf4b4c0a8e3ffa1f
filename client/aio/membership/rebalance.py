"""A rebalance as one consumer sees it: partitions revoked and assigned, and its listeners.

The bridge between a membership, which knows when, and `fetching` and `positions`, which know the
partitions and their offsets. A user's listener that fails is reported; the partitions still go to
their new member.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from client.aio.fetching import Fetcher
from client.aio.listeners import Listener, call_listener
from client.aio.positions import Positions
from client.errors import ClientBroken, ClientError, ListenerFailed
from client.types import TopicPartition

logger = logging.getLogger("tidelog.client.aio.membership.rebalance")

PartitionsListener = Listener[frozenset[TopicPartition]]
"""A user's listener for assignments."""


class Listeners(NamedTuple):
    """Those of a consumer; without `on_lost`, `on_revoked` gets lost partitions as well."""

    on_assigned: PartitionsListener | None
    on_revoked: PartitionsListener | None
    on_lost: PartitionsListener | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """What a consumer does for its membership, of either protocol. Made for one start.

    Attributes:
        group_id: the group, for messages.
        is_auto_commit: processed offsets are committed before partitions are revoked.
        on_failure: gets the errors that no further round or heartbeat cures.
    """

    group_id: str
    fetcher: Fetcher
    positions: Positions
    listeners: Listeners
    is_auto_commit: bool
    on_failure: Callable[[ClientError], None]

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit and stop reading these; none of their records is handed out meanwhile."""
        fetcher = self.fetcher
        readers = [fetcher.readers[tp] for tp in partitions if tp in fetcher.readers]
        for reader in readers:
            reader.is_paused = True
        try:
            await self._call("on_revoked", self.listeners.on_revoked, partitions)
        finally:
            if self.is_auto_commit:
                await self.positions.commit_consumed(readers)
            fetcher.set_partitions(fetcher.readers.keys() - partitions)

    async def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop reading these, which the group has taken away: others may have them already."""
        self.fetcher.set_partitions(self.fetcher.readers.keys() - partitions)
        name, listener = "on_lost", self.listeners.on_lost
        if listener is None:
            name, listener = "on_revoked", self.listeners.on_revoked
        await self._call(name, listener, partitions)

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Read exactly these, the whole share."""
        self.fetcher.set_partitions(partitions)
        await self._call("on_assigned", self.listeners.on_assigned, partitions)

    def broken(self, defect: ClientBroken) -> None:
        """A defect has ended the membership: every poll says so."""
        self.fetcher.break_off(defect)

    async def _call(
        self, name: str, listener: PartitionsListener | None, partitions: frozenset[TopicPartition]
    ) -> None:
        """Call a listener; one that fails does not end the rebalance."""
        try:
            await call_listener(name, listener, partitions)
        except ListenerFailed as error:
            logger.error("group %s: %s", self.group_id, error, exc_info=error.__cause__)
            self.on_failure(error)
