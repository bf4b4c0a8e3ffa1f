"""A rebalance as one consumer sees it: partitions revoked and assigned, and its listeners.

The bridge between a membership, which knows when, and `fetching` and `positions`, which know the
partitions and their offsets. A user's listener that fails is reported; the partitions still go to
their new member.
"""

from client.aio.fetching import Fetcher
from client.aio.listeners import Listener, call_listener
from client.aio.positions import Positions
from client.types import TopicPartition

PartitionsListener = Listener[frozenset[TopicPartition]]
"""A user's listener for assignments."""


class Rebalance:
    """Made for one start of a consumer; its methods are what its membership calls."""

    def __init__(
        self,
        fetcher: Fetcher,
        positions: Positions,
        *,
        on_assigned: PartitionsListener | None,
        on_revoked: PartitionsListener | None,
        on_lost: PartitionsListener | None = None,
        is_auto_commit: bool,
    ) -> None:
        """`is_auto_commit`: processed offsets are committed before partitions are revoked.

        Without `on_lost`, `on_revoked` gets lost partitions as well.
        """
        self._fetcher = fetcher
        self._positions = positions
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._is_auto_commit = is_auto_commit

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit and stop reading these; none of their records is handed out meanwhile.

        Raises:
            ListenerFailed: `on_revoked` raised; the partitions are revoked all the same.
        """
        fetcher = self._fetcher
        readers = [fetcher.readers[tp] for tp in partitions if tp in fetcher.readers]
        for reader in readers:
            reader.is_paused = True
        try:
            await call_listener("on_revoked", self._on_revoked, partitions)
        finally:
            if self._is_auto_commit:
                await self._positions.commit_consumed(readers)
            fetcher.set_partitions(fetcher.readers.keys() - partitions)

    async def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop reading these, which the group has taken away: others may have them already.

        Raises:
            ListenerFailed: the listener raised.
        """
        self._fetcher.set_partitions(self._fetcher.readers.keys() - partitions)
        name, listener = ("on_lost", self._on_lost)
        if listener is None:
            name, listener = ("on_revoked", self._on_revoked)
        await call_listener(name, listener, partitions)

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Read exactly these.

        Raises:
            ListenerFailed: `on_assigned` raised; the partitions are read all the same.
        """
        self._fetcher.set_partitions(partitions)
        await call_listener("on_assigned", self._on_assigned, partitions)
