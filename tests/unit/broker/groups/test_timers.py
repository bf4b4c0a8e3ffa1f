"""One timer for many names."""

from broker.groups.timers import GroupTimers
from tests.support.clock import FrozenClock


def timers(clock: FrozenClock) -> tuple[GroupTimers[str], list[tuple[str, int]]]:
    rung: list[tuple[str, int]] = []
    return GroupTimers(clock, lambda name, now_ms: rung.append((name, now_ms))), rung


def test_each_name_is_woken_at_its_earliest_wish() -> None:
    clock = FrozenClock()
    start = clock.monotonic_ms()
    alarm, rung = timers(clock)
    alarm.set("b", start + 200)
    alarm.set("a", start + 300)
    alarm.set("a", start + 100)
    alarm.set("c", None)
    clock.advance(1_000)
    assert [name for name, _ in rung] == ["a", "b"]


def test_a_later_wish_does_not_put_off_an_earlier_one() -> None:
    clock = FrozenClock()
    alarm, rung = timers(clock)
    alarm.set("a", clock.monotonic_ms() + 100)
    alarm.set("a", clock.monotonic_ms() + 500)
    clock.advance(100)
    assert [name for name, _ in rung] == ["a"]


def test_no_callback_runs_after_all_is_cancelled() -> None:
    clock = FrozenClock()
    alarm, rung = timers(clock)
    alarm.set("a", clock.monotonic_ms() + 100)
    alarm.cancel_all()
    clock.advance(1_000)
    assert rung == []
