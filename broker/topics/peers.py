"""What worker 1 needs to know of the other workers, and to ask of them.

Source: docs/adr/0016. `broker.workers.first` implements it.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from protocol.error_codes import ErrorCode

UNKNOWN_EPOCH = -1
"""The leader epoch of a partition whose worker has not opened it yet."""


class Measured(NamedTuple):
    """A partition as seen from a committed offset.

    `timestamp` is that of the first record at or after the offset, None if there is none.
    """

    log_start_offset: int
    high_watermark: int
    timestamp: int | None


class Peers(Protocol):
    """The other workers, seen from worker 1. Loop thread only."""

    count: int
    """How many workers there are, worker 1 included."""

    def address(self, worker: int, listener: str) -> tuple[str, int] | None:
        """Host and port of a listener of another worker; None until they are known."""

    def leader_epoch(self, topic_id: bytes, partition: int) -> int:
        """The leader epoch of another worker's partition, `UNKNOWN_EPOCH` until it is known."""

    async def topic_settled(self, name: str) -> str | None:
        """Wait until every worker that accepts clients has applied the change of this topic.

        Returns why one of them could not, or None.
        """

    def measure(
        self,
        worker: int,
        positions: list[tuple[str, int, int]],
        found: Callable[[dict[tuple[str, int, int], Measured]], object],
    ) -> None:
        """Ask a worker how far groups are behind in its partitions.

        A position is a topic, a partition and a committed offset; `found` is called once, with
        nothing if the worker is not there.
        """

    def drop_share_group(self, group_id: str) -> None:
        """Let the other workers forget the share partitions of a group."""

    def write_marker(
        self,
        worker: int,
        topic: str,
        partition: int,
        marker: bytes,
        when_done: Callable[[ErrorCode], object],
    ) -> None:
        """Let another worker write the end of a transaction into its partition."""
