"""The request of ``tidelog consume``: where to begin, what to show, where to stop."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from client.types import ConsumerRecord

POLL_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin: an end of the log, an offset in every partition, or a time."""

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The records to show, and their form."""

    start: Start
    until_ms: int | None
    exit_at_end: bool
    limit: int | None
    render: Callable[[ConsumerRecord], str]

    def is_shown(self, record: ConsumerRecord) -> bool:
        """Whether a record is in the window; without ``--until`` there is none."""
        if self.until_ms is None:
            return True
        from_ms = self.start.time_ms or 0
        return from_ms <= record.timestamp_ms < self.until_ms

    def write(self, records: list[ConsumerRecord]) -> None:
        """All lines at once, and out at once: who follows wants to see them now."""
        if records:
            sys.stdout.write("".join(f"{self.render(record)}\n" for record in records))
            sys.stdout.flush()
