"""Rates over sliding windows, and token buckets: the arithmetic of quotas.

A `Rate` keeps samples of `size_ms` each. Its value is the sum of the samples that overlap the last
`count` windows, divided by the time since the oldest of them began, but by at least `count - 1`
whole windows: a client that has just come is not measured over a moment. A value is recorded first
and compared then, so the request that passes a bound is accepted, and what follows waits:

    delay = (rate - bound) / bound x time

A `TokenBucket` fills at a rate up to a burst; a request is accepted while it is not empty, and may
take it below zero.

Pure: the time is an argument, in milliseconds of a clock that never goes back.

Source: KIP-13, KIP-599; Kafka `SampledStat`, `Rate`, `QuotaUtils`, `TokenBucket`.
"""

from typing import Final, NamedTuple

MS_PER_S: Final = 1000


class _Sample(NamedTuple):
    """A window that is over."""

    begin_ms: int
    last_ms: int
    value: float


class Rate:
    """Values per second over the last `count` windows of `size_ms`."""

    __slots__ = (
        "_begin_ms", "_count", "_end_ms", "_last_ms", "_least_window_ms", "_over", "_over_total",
        "_size_ms", "_total", "used_ms",
    )  # fmt: skip

    def __init__(self, count: int, size_ms: int, now_ms: int) -> None:
        assert count >= 1
        assert size_ms >= 1
        self._count = count
        self._size_ms = size_ms
        self._least_window_ms = (count - 1) * size_ms
        # Windows that are over, in the order of time, and their sum; then the one that is not.
        self._over: list[_Sample] = []
        self._over_total = 0.0
        self._begin_ms = self._last_ms = now_ms
        self._end_ms = now_ms + size_ms
        self._total = 0.0
        self.used_ms = now_ms
        """When a value was recorded last."""

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back what was added before."""
        if now_ms >= self._end_ms:
            self._begin_window(now_ms)
        self._total += value
        self._last_ms = self.used_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        self._drop_old(now_ms)
        return self._total * MS_PER_S / self._window_ms(now_ms)

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured now; at least 1."""
        self._drop_old(now_ms)
        return self._window_ms(now_ms)

    def is_certainly_below(self, bound: float) -> bool:
        """Whether the rate is at most `bound` over the shortest time that it is measured over.

        Needs no clock, and counts what is old too: True is certain, False says nothing.
        """
        return self._total * MS_PER_S <= bound * self._least_window_ms

    def delay_ms(self, bound: float, now_ms: int) -> int:
        """How long the client has to wait until its rate is `bound` again; 0 when it is below."""
        self._drop_old(now_ms)
        window_ms = self._window_ms(now_ms)
        rate = self._total * MS_PER_S / window_ms
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * window_ms)

    def _begin_window(self, now_ms: int) -> None:
        value = self._total - self._over_total
        self._over.append(_Sample(self._begin_ms, self._last_ms, value))
        self._over_total = self._total
        self._begin_ms = self._last_ms = now_ms
        self._end_ms = now_ms + self._size_ms
        self._drop_old(now_ms)

    def _window_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - (self._over[0].begin_ms if self._over else self._begin_ms)
        missing = self._count - 1 - elapsed_ms // self._size_ms
        if missing > 0:
            elapsed_ms += missing * self._size_ms
        return max(1, elapsed_ms)

    def _drop_old(self, now_ms: int) -> None:
        expired_ms = now_ms - self._count * self._size_ms
        if (self._over[0].last_ms if self._over else self._last_ms) > expired_ms:
            return
        value = self._total - self._over_total
        if self._last_ms <= expired_ms:
            value = 0.0
            self._begin_ms = self._last_ms = now_ms
            self._end_ms = now_ms + self._size_ms
        self._over = [sample for sample in self._over if sample.last_ms > expired_ms]
        self._over_total = sum(sample.value for sample in self._over)
        self._total = self._over_total + value


class TokenBucket:
    """Tokens that come at `rate` per second, up to `burst` of them."""

    __slots__ = ("_burst", "_rate", "tokens", "used_ms")

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        assert rate > 0
        self._rate = rate
        self._burst = burst
        self.tokens = burst
        self.used_ms = now_ms
        """When it was filled last."""

    def take(self, count: float, now_ms: int) -> int:
        """Take `count` tokens if the bucket is not below zero.

        Returns how long to wait: 0 when they were taken.
        """
        assert count >= 0, count
        self._fill(now_ms)
        if self.tokens < 0:
            return self._delay_ms()
        self.tokens -= count
        return 0

    def take_anyway(self, count: float, now_ms: int) -> int:
        """Take `count` tokens; how long the client should wait after that."""
        self._fill(now_ms)
        self.tokens -= count
        return self._delay_ms()

    def left(self, now_ms: int) -> float:
        """The tokens in the bucket."""
        self._fill(now_ms)
        return self.tokens

    def _delay_ms(self) -> int:
        return max(0, round(-self.tokens / self._rate * MS_PER_S))

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self.used_ms
        self.tokens = min(self._burst, self.tokens + elapsed_ms * self._rate / MS_PER_S)
        self.used_ms = now_ms
