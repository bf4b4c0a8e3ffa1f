"""The frozen clock moves only when a test moves it, and fires timers in order."""

from broker.clocks.clock import SteadyTime, SystemClock
from tests.support.clock import FrozenClock


def test_frozen_clock_stands_still() -> None:
    clock = FrozenClock(wall_ms=5, monotonic_ms=7)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (5, 7)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (5, 7)


def test_advance_fires_timers_in_order_of_their_time() -> None:
    clock = FrozenClock(monotonic_ms=0)
    fired: list[tuple[str, int]] = []
    clock.call_later(20, lambda: fired.append(("late", clock.monotonic_ms())))
    clock.call_later(10, lambda: fired.append(("early", clock.monotonic_ms())))
    clock.advance(30)
    assert fired == [("early", 10), ("late", 20)]
    assert clock.monotonic_ms() == 30


def test_timer_set_by_a_timer_fires_in_the_same_advance() -> None:
    clock = FrozenClock(monotonic_ms=0)
    fired: list[int] = []
    clock.call_later(5, lambda: clock.call_later(5, lambda: fired.append(clock.monotonic_ms())))
    clock.advance(10)
    assert fired == [10]


def test_cancelled_timer_never_fires() -> None:
    clock = FrozenClock()
    fired: list[int] = []
    clock.call_later(1, lambda: fired.append(1)).cancel()
    clock.advance(10)
    assert fired == []


def test_wall_jump_leaves_timers_alone() -> None:
    clock = FrozenClock(wall_ms=0, monotonic_ms=0)
    fired: list[int] = []
    clock.call_later(1000, lambda: fired.append(1))
    clock.jump_wall(10**12)
    assert (fired, clock.wall_ms(), clock.monotonic_ms()) == ([], 10**12, 0)


async def test_system_clock_calls_later_on_the_loop() -> None:
    import asyncio

    clock = SystemClock()
    done = asyncio.Event()
    before_ms = clock.monotonic_ms()
    clock.call_later(5, done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert clock.monotonic_ms() - before_ms >= 4
    assert clock.wall_ms() > 1_600_000_000_000


def test_does_it_follow_time_but_not_jumps() -> None:
    clock = FrozenClock(wall_ms=1_000_000)
    steady = SteadyTime(clock)
    clock.advance(500)
    clock.jump_wall(10 * 365 * 86_400_000)
    clock.advance(500)
    assert steady.now_ms() == 1_001_000
