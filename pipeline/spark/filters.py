"""The limits in Spark's pushed-down filters on offsets, partitions, topics and times.

Reads comparisons with constants on four columns; everything else is left to Spark. The result only
excludes rows that the filters exclude too, so Spark may (and does) evaluate all of them again. The
filters of a list are combined with "and".
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pipeline.plan.offsets import Narrowing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def narrow_by(filters: Iterable[Filter]) -> Narrowing:
    """The limits that all of `filters` together leave."""
    narrowing = Narrowing()
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) != 1:
            continue
        if column[0] == "timestamp":
            _narrow_time(narrowing, one)
        elif column[0] == "offset":
            _narrow_offset(narrowing, one)
        elif column[0] in ("partition", "topic"):
            _narrow_set(narrowing, one, column[0])
    return narrowing


def _narrow_time(narrowing: Narrowing, one: Filter) -> None:
    lowest, highest = _bounds(one, _milliseconds)
    if lowest is not None:
        narrowing.oldest_ms = max(narrowing.oldest_ms, lowest)
    if highest is not None:
        # A filter may mean a part of the last millisecond: keep all of it.
        narrowing.newest_ms = min(narrowing.newest_ms, highest + 1)


def _narrow_offset(narrowing: Narrowing, one: Filter) -> None:
    lowest, highest = _bounds(one, int)
    if lowest is not None:
        narrowing.first_offset = max(narrowing.first_offset, lowest)
    if highest is not None:
        narrowing.end_offset = min(narrowing.end_offset, highest + 1)


def _narrow_set(narrowing: Narrowing, one: Filter, column: str) -> None:
    if isinstance(one, In):
        allowed = frozenset(one.value)
    elif isinstance(one, EqualTo):
        allowed = frozenset({one.value})
    else:
        return
    if column == "topic":
        known = narrowing.topics
        narrowing.topics = allowed if known is None else known & allowed
    else:
        known_partitions = narrowing.partitions
        narrowing.partitions = allowed if known_partitions is None else known_partitions & allowed


def _bounds(one: Filter, number: Any) -> tuple[int | None, int | None]:
    """(lowest, highest) value that can pass, both inclusive and generous."""
    if isinstance(one, EqualTo):
        return number(one.value), number(one.value)
    if isinstance(one, In):
        values = [number(value) for value in one.value if value is not None]
        return (min(values), max(values)) if values else (None, None)
    if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        return number(one.value), None
    if isinstance(one, (LessThan, LessThanOrEqual)):
        return None, number(one.value)
    return None, None


def _milliseconds(moment: datetime) -> int:
    """Whole milliseconds since the epoch, rounded down."""
    if moment.tzinfo is None:
        moment = moment.astimezone(UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
