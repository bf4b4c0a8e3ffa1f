"""The arithmetic of quotas, with delays that Apache Kafka 4.3.1 gave to the same requests."""

import random

from broker.quotas.rates import Rate, TokenBucket


def test_the_delays_of_kafka() -> None:
    """10,000 B/s and three windows of a second: measured at a real broker."""
    rate = Rate(3, 1000, 0)
    delays = []
    for at_ms, size in ((0, 8_000), (0, 8_000), (0, 20_000)):
        rate.record(size, at_ms)
        delays.append(rate.delay_ms(10_000, at_ms))
    assert delays[:2] == [0, 0]
    # 36,000 B in two windows are 18,000 B/s: 0.8 of the bound too much, for 2 s.
    assert delays[2] == 1_600


def test_a_client_below_its_bound_never_waits() -> None:
    rate = Rate(11, 1000, 0)
    for at_ms in range(0, 60_000, 100):
        rate.record(900, at_ms)
        assert rate.delay_ms(10_000, at_ms) == 0


def test_a_client_that_waits_as_it_must_keeps_to_its_bound() -> None:
    rng = random.Random(3)
    for _ in range(200):
        bound = rng.choice([100, 1_000, 50_000])
        rate = Rate(rng.choice([2, 3, 11]), 1000, 0)
        now_ms = sent = 0
        while now_ms < 120_000:
            size = rng.randrange(1, 3 * bound)
            rate.record(size, now_ms)
            sent += size
            now_ms += rate.delay_ms(bound, now_ms) + rng.randrange(20)
        # The window may begin with a younger sample while the client waits, as in Kafka.
        assert sent / (now_ms / 1000) <= 1.3 * bound


class Samples:
    """The same arithmetic as Kafka writes it: every window is a sample that is summed each time."""

    def __init__(self, count: int, size_ms: int, now_ms: int) -> None:
        self.count, self.size_ms = count, size_ms
        self.samples: list[list[float]] = [[now_ms, now_ms, 0.0]]

    def record(self, value: float, now_ms: int) -> None:
        if now_ms - self.samples[-1][0] >= self.size_ms:
            self.samples.append([now_ms, now_ms, 0.0])
            self.drop(now_ms)
        self.samples[-1][1] = now_ms
        self.samples[-1][2] += value

    def drop(self, now_ms: int) -> None:
        oldest_ms = now_ms - self.count * self.size_ms
        self.samples = [one for one in self.samples if one[1] > oldest_ms] or [
            [now_ms, now_ms, 0.0]
        ]

    def delay_ms(self, bound: float, now_ms: int) -> int:
        self.drop(now_ms)
        elapsed_ms = int(now_ms - self.samples[0][0])
        missing = max(0, self.count - 1 - elapsed_ms // self.size_ms)
        window_ms = max(1, elapsed_ms + missing * self.size_ms)
        rate = sum(value for _, _, value in self.samples) * 1000 / window_ms
        return round((rate - bound) / bound * window_ms) if rate > bound else 0


def test_delays_are_those_of_the_samples_of_kafka() -> None:
    rng = random.Random(4)
    compared = 0
    for _ in range(500):
        windows = rng.choice([1, 2, 3, 11]), rng.choice([1, 10, 1000])
        bound, now_ms = rng.choice([1, 100, 50_000]), rng.randrange(10**6)
        rate, samples = Rate(*windows, now_ms), Samples(*windows, now_ms)
        for _ in range(60):
            if rng.random() < 0.6:
                size = rng.randrange(3 * bound + 1)
                for value in (size, -size) if rng.random() < 0.1 else (size,):
                    rate.record(value, now_ms)
                    samples.record(value, now_ms)
            if rng.random() < 0.7:
                delay_ms = rate.delay_ms(bound, now_ms)
                assert delay_ms == samples.delay_ms(bound, now_ms)
                compared += delay_ms > 0
            now_ms += rng.choice([0, 0, 1, 5, 200, 999, 1000, 1001, 5000, 20_000])
    assert compared > 3_000


def test_what_is_certainly_below_its_bound_never_waits() -> None:
    """Which spares most requests the look at what is old."""
    rng = random.Random(5)
    certain = waiting = 0
    for _ in range(300):
        bound = rng.choice([1, 100, 50_000])
        rate = Rate(rng.choice([1, 2, 3, 11]), rng.choice([1, 1000]), 0)
        now_ms = 0
        for _ in range(100):
            rate.record(size := rng.randrange(2 * bound + 1), now_ms)
            if rng.random() < 0.1:
                rate.record(-size, now_ms)
            now_ms += rng.choice([0, 1, 100, 3_000])
            is_certain = rate.is_certainly_below(bound)
            waits = rate.delay_ms(bound, now_ms) > 0
            certain += is_certain
            waiting += waits
            assert not (is_certain and waits)
    assert min(certain, waiting) > 1_000


def test_old_values_do_not_count() -> None:
    rate = Rate(3, 1000, 0)
    rate.record(1_000_000, 0)
    assert rate.measure(100) > 0
    assert rate.measure(10_000) == 0


def test_a_value_can_be_taken_back() -> None:
    rate = Rate(3, 1000, 0)
    rate.record(5_000, 10)
    rate.record(-5_000, 10)
    assert rate.measure(20) == 0


def test_the_token_bucket_of_kafka() -> None:
    """One a second, a burst of 11: 1 + 10 + 1 pass, then the next waits; seen at a real broker."""
    bucket = TokenBucket(1, 11, 0)
    assert [bucket.take(count, 0) for count in (1, 10, 1)] == [0, 0, 0]
    assert bucket.take(1, 135) == 865
    assert bucket.take(1, 1_000) == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(5, 10, 0)
    bucket.take(10, 0)
    assert bucket.take_anyway(0, 1_000_000) == 0
    assert bucket.tokens == 10


def test_an_old_request_is_executed_and_waits() -> None:
    bucket = TokenBucket(1, 1, 0)
    assert bucket.take_anyway(3, 0) == 2_000
