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

from typing import Final

MS_PER_S: Final = 1000


class _Sample:
    __slots__ = ("begin_ms", "last_ms", "value")

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = self.last_ms = begin_ms
        self.value = 0.0


class Rate:
    """Values per second over the last `count` windows of `size_ms`."""

    __slots__ = ("_count", "_samples", "_size_ms", "_total", "used_ms")

    def __init__(self, count: int, size_ms: int, now_ms: int) -> None:
        """Begin with nothing recorded."""
        assert count >= 1
        assert size_ms >= 1
        self._count = count
        self._size_ms = size_ms
        # In the order of time, never empty.
        self._samples = [_Sample(now_ms)]
        self._total = 0.0
        self.used_ms = now_ms
        """When a value was recorded last."""

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back what was added before."""
        sample = self._samples[-1]
        if now_ms - sample.begin_ms >= self._size_ms:
            sample = _Sample(now_ms)
            self._samples.append(sample)
            self._drop_old(now_ms)
        sample.value += value
        self._total += value
        sample.last_ms = self.used_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate per second."""
        self._drop_old(now_ms)
        return self._total * MS_PER_S / self._window_ms(now_ms)

    def window_ms(self, now_ms: int) -> int:
        """The time over which the rate is measured now; at least 1."""
        self._drop_old(now_ms)
        return self._window_ms(now_ms)

    def delay_ms(self, bound: float, now_ms: int) -> int:
        """How long the client has to wait until its rate is `bound` again; 0 when it is below."""
        self._drop_old(now_ms)
        window_ms = self._window_ms(now_ms)
        rate = self._total * MS_PER_S / window_ms
        if rate <= bound:
            return 0
        return round((rate - bound) / bound * window_ms)

    def _window_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._samples[0].begin_ms
        missing = self._count - 1 - elapsed_ms // self._size_ms
        if missing > 0:
            elapsed_ms += missing * self._size_ms
        return max(1, elapsed_ms)

    def _drop_old(self, now_ms: int) -> None:
        expired_ms = now_ms - self._count * self._size_ms
        if self._samples[0].last_ms > expired_ms:
            return
        self._samples = [s for s in self._samples if s.last_ms > expired_ms] or [_Sample(now_ms)]
        self._total = sum(sample.value for sample in self._samples)


class TokenBucket:
    """Tokens that come at `rate` per second, up to `burst` of them."""

    __slots__ = ("_burst", "_rate", "tokens", "used_ms")

    def __init__(self, rate: float, burst: float, now_ms: int) -> None:
        """Begin with a full bucket."""
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
