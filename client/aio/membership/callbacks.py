"""What a membership calls: its consumer, which gets partitions at rebalances."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from client.errors import ClientBroken, ClientError, ListenerFailed
from client.types import TopicPartition

logger = logging.getLogger("tidelog.client.aio.membership.callbacks")

PartitionsCallback = Callable[[frozenset[TopicPartition]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a consumer does for its membership, of either protocol.

    Attributes:
        on_revoked: returns once the partitions are released and their positions committed.
        on_lost: gets partitions that others may own already.
        on_assigned: gets the whole share.
        on_failure: gets the errors that no further round or heartbeat cures.
        on_defect: is called when a defect ended the membership.
    """

    on_revoked: PartitionsCallback
    on_lost: PartitionsCallback
    on_assigned: PartitionsCallback
    on_failure: Callable[[ClientError], None]
    on_defect: Callable[[ClientBroken], None]

    async def call(
        self,
        callback: PartitionsCallback,
        partitions: frozenset[TopicPartition],
        group_id: str,
    ) -> None:
        """Call one of the first three; a user's listener that fails there goes to `on_failure`."""
        try:
            await callback(partitions)
        except ListenerFailed as error:
            logger.error("group %s: %s", group_id, error, exc_info=error.__cause__)
            self.on_failure(error)
