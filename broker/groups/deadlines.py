"""Deadlines of group state machines: ms on the group's clock, or None for no deadline."""

from collections.abc import Iterable


def is_due(deadline_ms: int | None, now_ms: int) -> bool:
    """Whether there is a deadline and it has passed."""
    return deadline_ms is not None and deadline_ms <= now_ms


def earliest(deadlines_ms: Iterable[int | None]) -> int | None:
    """The first of the deadlines that there are; None when there is none."""
    return min((due_ms for due_ms in deadlines_ms if due_ms is not None), default=None)
