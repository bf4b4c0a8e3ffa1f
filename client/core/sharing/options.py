"""How to be a member of a share group: values with their checks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from client.checks import check_choice, check_flags, check_numbers, check_text, check_topics
from client.errors import ClientError
from client.types import TopicPartition

IMPLICIT, EXPLICIT = "implicit", "explicit"

Refused = Callable[[TopicPartition, list[int], ClientError], object]
"""Gets the offsets of a partition whose acknowledgement had no effect, and why."""


class Ack(IntEnum):
    """What became of a record; the number is that of the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


ACKNOWLEDGEMENTS = {ack.name.lower(): ack for ack in (Ack.ACCEPT, Ack.RELEASE, Ack.REJECT)}
"""What a user says about a record; a renewal is a call of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """How a share consumer reads; sizes in bytes, times in milliseconds. See `ShareConsumer`."""

    topics: tuple[str, ...]
    group_id: str
    acknowledgement: str = IMPLICIT
    max_records: int = 500
    is_strict: bool = False
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 16 * 1024 * 1024
    check_crcs: bool = True
    on_refused: Refused | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid values, by the names that users give; raises InvalidUse."""
        check_text("group_id", self.group_id)
        check_topics(self.topics, "ShareConsumer")
        check_choice("acknowledgement", self.acknowledgement, (IMPLICIT, EXPLICIT))
        check_flags(strict=self.is_strict, check_crcs=self.check_crcs)
        check_numbers(
            0, fetch_max_wait_ms=self.fetch_max_wait_ms, fetch_min_bytes=self.fetch_min_bytes
        )
        check_numbers(1, max_records=self.max_records, fetch_max_bytes=self.fetch_max_bytes)
