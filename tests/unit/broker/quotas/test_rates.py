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
