from __future__ import annotations

from broker.transactions.steady_time import SteadyTime
from tests.support.clock import FrozenClock


def test_does_it_follow_time_but_not_jumps() -> None:
    clock = FrozenClock(wall_ms=1_000_000)
    steady = SteadyTime(clock)
    clock.advance(500)
    clock.jump_wall(10 * 365 * 86_400_000)
    clock.advance(500)
    assert steady.now_ms() == 1_001_000
