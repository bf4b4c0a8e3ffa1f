"""Values of share groups: delivery states, acknowledgements, acquired ranges, limits.

Offsets are inclusive at both ends, as on the wire. Times are ms of one monotonic clock.

Source: KIP-932; Kafka's `RecordState`, `AcknowledgeType`, `ShareAcquireMode`.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass

UNKNOWN_START: Final = -1
"""The start offset of a share partition that no member has read yet."""


class Delivery(enum.IntEnum):
    """The state of a record for a group; the number is stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never stored: after a restart the record is available again."""

    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_done(self) -> bool:
        """Whether the record is never delivered again."""
        return self >= Delivery.ACKNOWLEDGED


class Ack(enum.IntEnum):
    """What a member says about records; the number is that of the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckBatch(NamedTuple):
    """An acknowledgement: one type for the whole range, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """A range that a member holds now."""

    first: int
    last: int
    deliveries: int


class StateBatch(NamedTuple):
    """A range of offsets in one state, as stored."""

    first: int
    last: int
    state: Delivery
    deliveries: int


class Extent(NamedTuple):
    """The offsets of a record batch of the log; `is_aborted` if its transaction was aborted."""

    first: int
    last: int
    is_aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The settings that a share partition obeys now; times in ms."""

    lock_duration_ms: int = 30_000
    delivery_count: int = 5
    record_locks: int = 2_000
    may_renew: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireWish:
    """What a fetch asks for.

    Attributes:
        records: how many to acquire; the last batch may exceed it unless `is_strict`.
        batch_records: the fewest records of a range, before the next batch begins another one.
        is_strict: whether `records` is never exceeded; then one new range is acquired.
    """

    records: int
    batch_records: int = 1
    is_strict: bool = False


class AckRefused(Exception):
    """The acknowledgements of a partition are refused with `error`, and nothing changes."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        super().__init__(message)
