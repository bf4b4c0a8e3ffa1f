"""What a membership calls: its consumer, which gets partitions at rebalances."""

import logging
from collections.abc import Awaitable, Callable

from client.errors import ClientError, ListenerFailed
from client.types import TopicPartition

logger = logging.getLogger("tidelog.client.aio.membership.callbacks")

PartitionsCallback = Callable[[frozenset[TopicPartition]], Awaitable[None]]


async def call_back(
    callback: PartitionsCallback,
    partitions: frozenset[TopicPartition],
    group_id: str,
    on_failure: Callable[[ClientError], None],
) -> None:
    """Call the consumer; a listener of the user's that fails there is reported to `on_failure`."""
    try:
        await callback(partitions)
    except ListenerFailed as error:
        logger.error("group %s: %s", group_id, error, exc_info=error.__cause__)
        on_failure(error)
