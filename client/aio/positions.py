"""A consumer's positions: where it starts in each partition, and its committed offsets.

Decides between a group's committed offset and the start policy, and automatically commits the
offsets of processed records. The requests are `client.core.offsets`; who is a member is `group`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from client.aio.background import end_tasks, start_watched
from client.aio.fetching import Fetcher, PartitionReader
from client.aio.record_times import first_records
from client.core.cluster import Cluster
from client.core.offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    commit_offsets,
    fetch_committed,
    list_offsets,
)
from client.core.retry import Backoff
from client.errors import BrokerRefused, ClientError, InvalidTime
from client.times import to_ms
from client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from protocol.error_codes import ErrorCode

logger = logging.getLogger("tidelog.client.aio.positions")

_COMMIT_LATER = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The errors of a commit during a rebalance: the next round starts at the older offset. Or the
topic is gone, and with it its positions."""

_FIND_LATER = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""The member's epoch grows, or it joins again: its next heartbeat's answer says which."""


class Positions:
    """Finds and commits the positions of one consumer's readers."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: Isolation,
        start_at: int | None,
        group: Callable[[], GroupMetadata | None],
        on_failure: Callable[[ClientError], None],
    ) -> None:
        """`start_at` is a timestamp or end of `client.core.offsets`, None for an error instead.

        `group` returns the membership for commits, if there is a group; `on_failure` gets the error
        of a commit that no retry cures.
        """
        self._cluster = cluster
        self._isolation = isolation
        self._start_at = start_at
        self._group = group
        self._on_failure = on_failure
        self._committer: asyncio.Task[None] | None = None
        self._backoff = Backoff()

    async def find(self, readers: list[PartitionReader]) -> None:
        """Set the position of each reader that has none: the committed one, or by the policy.

        Raises:
            BrokerRefused: a lookup failed, or the policy is to fail.
        """
        group = self._group()
        fresh = [reader for reader in readers if not reader.is_out_of_range]
        if group is not None and fresh:
            try:
                committed = await fetch_committed(
                    self._cluster,
                    group.group_id,
                    [reader.partition for reader in fresh],
                    require_stable=self._isolation is Isolation.READ_COMMITTED,
                    member=group,
                )
            except BrokerRefused as error:
                if error.code not in _FIND_LATER or not group.has_epoch:
                    raise
                logger.info("the positions are asked for again: %s", error)
                await asyncio.sleep(self._backoff.next_s())
                return
            self._backoff.reset()
            for reader in fresh:
                stored = committed.get(reader.partition)
                if stored is not None and reader.position is None:
                    reader.seek(stored.offset)
        lost = [reader for reader in readers if reader.position is None]
        if lost:
            await self._start_over(lost)

    async def _start_over(self, readers: list[PartitionReader]) -> None:
        if self._start_at is None:
            names = ", ".join(str(reader.partition) for reader in readers)
            raise BrokerRefused(
                f"no committed offset that is in the log, and start='none': {names}",
                ErrorCode.OFFSET_OUT_OF_RANGE,
                cure="give start='earliest', 'latest' or a time, or set the group's offsets "
                "(tidelog group reset)",
            )
        partitions = [reader.partition for reader in readers]
        found = await find_offsets(self._cluster, partitions, self._start_at, self._isolation)
        for reader in readers:
            if reader.position is None:
                reader.seek(found[reader.partition])

    def commit_every(self, interval_s: float, fetcher: Fetcher) -> None:
        """Start to commit the processed offsets of `fetcher`'s readers, at intervals."""

        async def commit() -> None:
            while True:
                await asyncio.sleep(interval_s)
                await self.commit_consumed(fetcher.readers.values())

        self._committer = start_watched(commit(), "consumer.commit", fetcher.break_off)

    async def stop_committing(self) -> None:
        """End what `commit_every` began."""
        await end_tasks(self._committer)

    async def commit(
        self, group: GroupMetadata, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Store positions in the name of a member, in a newer epoch if its own has grown.

        Raises:
            BrokerRefused: as `commit_offsets`; STALE_MEMBER_EPOCH if the member has joined again,
                or no newer epoch comes within the client's timeout.
        """
        deadline = self._cluster.clock.now() + self._cluster.options.timeout_ms / 1000
        backoff = Backoff()
        while True:
            try:
                await commit_offsets(self._cluster, group, positions)
            except BrokerRefused as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                if self._cluster.clock.now() >= deadline:
                    raise
                await asyncio.sleep(backoff.next_s())
                newer = self._group()
                if newer is None or newer.joins_count != group.joins_count:
                    raise
                group = newer
            else:
                return

    async def commit_consumed(self, readers: Iterable[PartitionReader]) -> None:
        """Commit the offsets processed since the last commit."""
        group = self._group()
        due = [reader for reader in readers if reader.consumed != reader.committed]
        if group is None or not due:
            return
        positions = consumed_positions(due)
        try:
            await self.commit(group, positions)
        except BrokerRefused as error:
            if error.code not in _COMMIT_LATER:
                self._on_failure(error)
            return
        except ClientError as error:
            self._on_failure(error)
            return
        for reader in due:
            if reader.partition in positions:
                reader.committed = positions[reader.partition].offset


async def find_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, isolation: Isolation
) -> dict[TopicPartition, int]:
    """The offset of the first record at or after a time, or the end where there is none."""
    found = await first_records(cluster, dict.fromkeys(partitions, timestamp), isolation)
    missing = [partition for partition, hit in found.items() if hit is None]
    ends = await list_offsets(cluster, dict.fromkeys(missing, LATEST), isolation)
    hits = {partition: hit or ends[partition] for partition, hit in found.items()}
    return {partition: hit.offset for partition, hit in hits.items() if hit is not None}


def consumed_positions(
    readers: Iterable[PartitionReader],
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """The offsets that may be committed, by partition."""
    return {
        reader.partition: OffsetAndMetadata(reader.consumed, "", reader.leader_epoch)
        for reader in readers
        if reader.consumed is not None
    }


def to_timestamp(when: int | str | datetime) -> int:
    """Milliseconds of a time given as such, as text or as an aware `datetime`.

    Raises:
        InvalidTime: no time, or in the wrong unit.
    """
    return to_ms(when, now_ms=time.time_ns() // 1_000_000)


def start_timestamp(start: str | int | datetime) -> int | None:
    """The lookup's timestamp for a start policy: an end, a time, or None for an error.

    Raises:
        InvalidTime: neither a policy nor a time.
    """
    words = {"earliest": EARLIEST, "latest": LATEST, "none": None}
    if isinstance(start, str) and start in words:
        return words[start]
    try:
        return to_timestamp(start)
    except InvalidTime as error:
        raise InvalidTime(f"start: {error}; or give {', '.join(words)}") from None
