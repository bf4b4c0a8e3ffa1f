"""The request of ``tidelog consume``: where to begin, what to show, where to stop."""

import asyncio
import sys
from typing import TYPE_CHECKING

from cli.record_format import Render
from client.types import ConsumerRecord
from console.data.conditions import Condition, fulfils
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from cli.records.schemas import Schemas

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
    render: Render
    end: bytes = b"\n"
    condition: Condition | None = None
    schemas: "Schemas | None" = None

    async def decoded(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records with JSON in place of bytes that name a schema, if a registry is given.

        In a thread: a registry may take its time, and the loop sends the heartbeats of a member.
        """
        if self.schemas is None:
            return records
        return await asyncio.to_thread(self.schemas.applied, records)

    def is_shown(self, record: ConsumerRecord) -> bool:
        """Whether a record is in the window (without ``--until`` there is none) and selected."""
        if self.until_ms is not None:
            from_ms = self.start.time_ms or 0
            if not from_ms <= record.timestamp_ms < self.until_ms:
                return False
        return self.is_selected(record)

    def is_selected(self, record: ConsumerRecord) -> bool:
        """Whether a record fulfils ``--where``."""
        return fulfils(self.condition, record)

    def write(self, records: list[ConsumerRecord]) -> None:
        """All records at once, and out at once: who follows wants to see them now."""
        if records:
            sys.stdout.flush()
            sys.stdout.buffer.write(b"".join(self.render(r) + self.end for r in records))
            sys.stdout.buffer.flush()
