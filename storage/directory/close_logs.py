"""Closing many logs at once: their last syncs share the wait.

Owns only the order: begin, sync, complete, close, some dozens of logs at a time, because each log
that is being synced holds several descriptors. The caller chooses whether the syncs run one after
the other or in threads: storage knows no threads.

Read next: `storage.log.flush`, `storage.directory.data_dir`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from storage.errors import StorageError
from storage.log.flush import FlushTicket
from storage.log.log import Log

RunAll = Callable[[Sequence[FlushTicket]], None]
"""Runs every ticket, in any order and in any threads, and returns when all are done."""

CLOSED_TOGETHER: Final = 64
"""Logs whose last syncs are waited for together."""


def run_in_order(tickets: Sequence[FlushTicket]) -> None:
    """Run the tickets one after the other, in this thread."""
    for ticket in tickets:
        ticket.run()


def close_logs(logs: Sequence[Log], now_ms: int, run_all: RunAll) -> list[StorageError]:
    """Close every log; the failures, in which case the caller must not report a clean stop."""
    failures: list[StorageError] = []
    for start in range(0, len(logs), CLOSED_TOGETHER):
        together = logs[start : start + CLOSED_TOGETHER]
        tickets: list[tuple[Log, FlushTicket]] = []
        for log in together:
            try:
                ticket = log.begin_close(now_ms)
            except StorageError as error:
                failures.append(error)
                continue
            if ticket is not None:
                tickets.append((log, ticket))
        run_all([ticket for _, ticket in tickets])
        for log, ticket in tickets:
            try:
                log.complete_flush(ticket)
            except StorageError as error:
                failures.append(error)
        for log in together:
            log.abandon()
    return failures
