"""The collaborators of the group and transaction coordinators, before a `Context` exists.

The coordinators are members of `Context`, so they cannot receive one. They get this smaller bundle
at construction. The server drives them: `start()` once the logs are open and before it accepts any
client, `tick()` about once a second from housekeeping, `stop()` when no request is left.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.clocks.clock import Clock
from broker.clocks.trusted_clock import TrustedClock

if TYPE_CHECKING:
    from broker.group_commit import GroupCommit
    from broker.topics.registry import TopicRegistry
    from config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorServices:
    """The collaborators of a coordinator."""

    config: "BrokerConfig"
    clock: Clock
    time: TrustedClock
    random: random.Random
    topics: "TopicRegistry"
    group_commit: "GroupCommit"


class Coordinator(Protocol):
    """The life cycle the server drives."""

    async def start(self) -> None:
        """Load state from the internal topics; runs before the first connection."""

    def tick(self) -> None:
        """Run the work due by the clock: expire offsets, transactions, tombstones."""

    async def stop(self) -> None:
        """Release every parked request; runs after the last connection has gone."""
