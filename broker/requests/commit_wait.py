"""Waiting for the group commits of records that were acknowledged before they were on disk.

With acks=0 and acks=1 the producer's answer comes from the page cache, while a log under
`flush.policy=batch` shows only durable records. A client that has its acknowledgement and then
requests the log end would get the old end. So a request whose answer would be below an acknowledged
offset waits here for the group commit that covers it. That commit is already queued or running: the
append has put the log into the queue. No record is visible early.

`PATIENCE_MS` bounds the wait; the handler decides the answer after that.

Differs from Kafka: ListOffsets, DeleteRecords and Fetch may wait for the disk, and when it hangs
they answer OFFSET_NOT_AVAILABLE, REQUEST_TIMED_OUT or the data there is. In Kafka the end of a log
with one replica moves with the append.
"""

import asyncio
from collections.abc import Callable, Mapping

from broker.requests.context import Context
from storage.errors import StorageError
from storage.log.log import Log

ACKS_NONE = 0
ACKS_WRITTEN = 1
ACKS_DURABLE = -1
"""What a Produce request waits for: nothing, its records in the page cache, or on disk."""

PATIENCE_MS = 5_000
"""The longest wait of a request for the disk, unless it allows more.

A longer sync counts as hanging; clients give a request about thirty seconds.
"""


class CommitWait:
    """One request that waits until all its logs are durable up to the ends it needs."""

    __slots__ = ("_callback", "_missing", "_timer")

    def __init__(
        self, context: Context, ends: Mapping[Log, int], callback: Callable[[], object]
    ) -> None:
        """Call `callback` once, later.

        That is when everything below `ends` is durable, or `PATIENCE_MS` have passed. A log that
        was deleted or went offline is not waited for.
        """
        assert ends, "a request that misses nothing does not wait"
        self._callback: Callable[[], object] | None = callback
        self._missing = len(ends)
        self._timer = context.clock.call_later(PATIENCE_MS, self._finish)
        for log, end in ends.items():
            context.group_commit.when_durable(log, end, self._settle)

    def cancel(self) -> None:
        """The requester has gone: call nothing."""
        self._callback = None
        self._timer.cancel()

    def _settle(self, error: StorageError | None) -> None:
        assert self._missing > 0, "a log has settled twice"
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def _finish(self) -> None:
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()


async def committed(context: Context, ends: Mapping[Log, int]) -> set[Log]:
    """Wait as `CommitWait` does; return the logs that are still not durable up to their end."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    wait = CommitWait(context, ends, finish)
    try:
        await done
    finally:
        wait.cancel()
    return {
        log for log, end in ends.items() if log.high_watermark < end and log.offline_reason is None
    }
