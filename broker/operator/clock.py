"""The settable clock over HTTP, on the operators' port: read it, set it, let time pass.

    GET /clock                                    where it stands
    POST /clock?rate=0&set_ms=1767225600000       freeze it, at a time

| parameter  | meaning                                                                           |
|------------|-----------------------------------------------------------------------------------|
| rate       | its speed as a multiple of real time; 0 freezes it, 1 resumes it                  |
| set_ms     | advance to this time since the epoch, or jump back to it                          |
| advance_ms | let so much time pass                                                             |
| jump_ms    | move the wall clock alone, also back, as a clock that is set wrong does           |

They are applied in the order of the table. The answer comes when the jobs that fell due have run
and what they wrote is durable, so that a test sees their effect at once:

    {"wall_ms": 1767225600000, "elapsed_ms": 812345, "rate": 0.0, "fired": 4,
     "segments_deleted": 2, "groups_expired": 0}

`fired` is the number of jobs, of session deadlines with ``--clock-sessions settable``, and the two
others are their effects. Who may send a POST: `broker.operator.http`. The path exists only with
``serve --clock settable``.

Read next: `broker.clocks.settable_clock`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from broker.clocks.settable_clock import RATE_MAX, SettableClock
from broker.operator.queries import encode
from values.dataclasses import dataclass
from values.limits import CLOCK_STEP_MAX_MS

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.metrics import Metrics

WALL_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "rate": (0, RATE_MAX),
    "set_ms": (0, WALL_MAX_MS),
    "advance_ms": (0, CLOCK_STEP_MAX_MS),
    "jump_ms": (-CLOCK_STEP_MAX_MS, CLOCK_STEP_MAX_MS),
}

Reply = tuple[int, bytes]


@dataclass(eq=False)
class ClockControl:
    """Commands to a settable clock, one at a time; each saves it and settles what fell due."""

    clock: SettableClock
    groups: "GroupCoordinator"
    metrics: "Metrics"
    settle: Callable[[], Awaitable[None]]
    save: Callable[[], object]
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)

    def show(self, _query: str, _viewer: object) -> Reply:
        """The answer to GET: where the clock stands."""
        return 200, encode(self._reading())

    async def change(self, query: str) -> Reply:
        """The answer to POST: apply `query`, run what falls due, report."""
        try:
            changes = _parse(query)
            async with self.alone:
                return 200, encode(await self._apply(changes))
        except ValueError as error:
            return 400, encode({"error": str(error)})

    async def _apply(self, changes: Mapping[str, float]) -> dict[str, float]:
        clock = self.clock
        target_ms = changes.get("set_ms", clock.wall_ms())
        if abs(target_ms - clock.wall_ms()) > CLOCK_STEP_MAX_MS:
            raise ValueError(
                f"set_ms={target_ms:.0f} is more than ten years from {clock.wall_ms()}, where the "
                "clock stands; go there in several steps"
            )
        deleted = sum(self.metrics.segments_deleted.values())
        expired = self.groups.cleanup.deleted
        fired = 0
        if "rate" in changes:
            clock.set_rate(changes["rate"])
        if "set_ms" in changes:
            fired += clock.set_wall(int(target_ms))
        if "advance_ms" in changes:
            fired += clock.advance(int(changes["advance_ms"]))
        if "jump_ms" in changes:
            clock.jump(int(changes["jump_ms"]))
        self.save()
        await self.settle()
        return self._reading() | {
            "fired": fired,
            "segments_deleted": sum(self.metrics.segments_deleted.values()) - deleted,
            "groups_expired": self.groups.cleanup.deleted - expired,
        }

    def _reading(self) -> dict[str, float]:
        clock = self.clock
        return {
            "wall_ms": clock.wall_ms(),
            "elapsed_ms": clock.monotonic_ms(),
            "rate": clock.rate,
        }


def _parse(query: str) -> dict[str, float]:
    """The changes that `query` asks for.

    Raises:
        ValueError: an unknown parameter, or a value out of range.
    """
    changes: dict[str, float] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in _RANGES:
            raise ValueError(f"{name} is not a parameter; there are {', '.join(_RANGES)}")
        low, high = _RANGES[name]
        try:
            value = float(text) if name == "rate" else int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            cure = "; jump_ms moves the wall clock back" if name == "advance_ms" else ""
            raise ValueError(f"{name}={text} is not a number from {low} to {high}{cure}")
        changes[name] = value
    if not changes:
        raise ValueError(f"give at least one of {', '.join(_RANGES)}")
    return changes
