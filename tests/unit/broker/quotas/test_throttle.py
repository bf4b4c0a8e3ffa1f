"""Throttling by itself: how much memory it may take, and the timer of the muted connections."""

import gc
from types import SimpleNamespace
from typing import Any, cast

from broker.metrics import Metrics
from broker.quotas.book import QuotaBook, checked_entity
from broker.quotas.throttle import BUCKETS_MAX, IDLE_MS, MUTE_MAX_MS, Mutes, Throttle, Windows
from broker.requests.context import RequestContext
from broker.security.session import Session
from protocol.api_keys import ApiKey
from tests.support.clock import FrozenClock

WINDOWS = Windows(count=11, size_ms=1_000, controller_count=11, controller_size_ms=1_000)


class Channel:
    """A connection that notes when it may continue."""

    def __init__(self, clock: FrozenClock) -> None:
        self.muted_until_ms = 0
        self.woken_ms: list[int] = []
        self._clock = clock

    def unmute(self) -> None:
        self.muted_until_ms = 0
        self.woken_ms.append(self._clock.monotonic_ms())


class Scene:
    """A throttle with quotas of a client id each, by default for every one."""

    def __init__(self, **limits: float) -> None:
        self.clock = FrozenClock(monotonic_ms=0)
        self.book = QuotaBook({})
        self.book.put(checked_entity([("client-id", None)]), limits)
        self.metrics = Metrics()
        self.mutes = Mutes(self.clock)
        self.throttle = Throttle(
            self.book, WINDOWS, self.mutes, clock=self.clock, metrics=self.metrics
        )

    def produce(self, client_id: str, size_bytes: int) -> int:
        answer = SimpleNamespace(throttle_time_ms=0)
        request = RequestContext(ApiKey.PRODUCE, 9, 0, client_id, "h", 1, Session())
        context = cast(Any, None)
        self.throttle.serve(lambda *_: answer, context, request, None, size_bytes, 0)
        return int(answer.throttle_time_ms)


def test_a_client_cannot_exhaust_memory_by_varying_its_id() -> None:
    scene = Scene(producer_byte_rate=1_000.0)
    for number in range(BUCKETS_MAX + 500):
        scene.produce(f"client-{number}", 1)
    assert scene.throttle.buckets <= BUCKETS_MAX + 1
    # Those that came too late share a bucket, and so its bound.
    assert scene.produce("late-1", 100_000) > 0
    assert scene.produce("late-2", 1) > 0


def test_buckets_that_are_unused_for_an_hour_are_dropped() -> None:
    scene = Scene(producer_byte_rate=1_000.0, controller_mutation_rate=1.0)
    scene.produce("a", 1)
    assert scene.throttle.buckets == 2
    scene.clock.advance(IDLE_MS - 1)
    scene.produce("b", 1)
    assert scene.throttle.buckets == 4
    scene.clock.advance(61_000)
    scene.produce("c", 1)
    assert scene.throttle.buckets == 4


def test_a_changed_bound_counts_at_once_and_keeps_what_was_used() -> None:
    scene = Scene(producer_byte_rate=1_000.0)
    assert scene.produce("a", 5_000) == 0
    scene.book.put(checked_entity([("client-id", None)]), {"producer_byte_rate": 100.0})
    scene.throttle.quotas_changed()
    assert scene.produce("a", 1) > 0


def test_delays_are_counted_by_kind() -> None:
    scene = Scene(producer_byte_rate=1_000.0)
    scene.produce("a", 20_000)
    assert sum(scene.metrics.throttle_ms["produce"].counts) == 1


def test_muted_connections_wake_in_their_order() -> None:
    clock = FrozenClock(monotonic_ms=0)
    mutes = Mutes(clock)
    early, late, longer = Channel(clock), Channel(clock), Channel(clock)
    mutes.mute(late, 500)
    mutes.mute(early, 200)
    mutes.mute(longer, 100)
    mutes.mute(longer, 900)
    mutes.mute(longer, 300)  # an earlier end changes nothing
    mutes.mute(cast(Any, Channel(clock)), 10)  # and is gone
    gc.collect()
    assert len(mutes) == 3
    clock.advance(2_000)
    assert (early.woken_ms, late.woken_ms, longer.woken_ms) == ([200], [500], [900])
    assert len(mutes) == 0
    mutes.mute(early, 10**9)
    clock.advance(MUTE_MAX_MS)
    assert early.woken_ms == [200, 2_000 + MUTE_MAX_MS]
