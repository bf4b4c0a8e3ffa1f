"""Trying again: how often, how long, and when not."""

import pytest

from client.core.retry import is_retriable, retrying
from client.errors import BrokerRefused, BrokerUnreachable, UnsupportedByBroker
from protocol.error_codes import ErrorCode

BUSY = BrokerRefused("x", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses.append(seconds)


class Attempts:
    """Fails with the given errors, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_retriable_errors_are_tried_again() -> None:
    attempts = Attempts(BUSY, BrokerUnreachable("gone"))
    heard: list[Exception] = []
    assert await retrying(Clock(), attempts, timeout_ms=5000, on_failure=heard.append) == "done"
    assert attempts.count == 3
    assert len(heard) == 2


async def test_other_errors_end_it_at_once() -> None:
    attempts = Attempts(BrokerRefused("x", ErrorCode.INVALID_CONFIG))
    with pytest.raises(BrokerRefused):
        await retrying(Clock(), attempts, timeout_ms=5000)
    assert attempts.count == 1


async def test_time_ends_it_with_the_last_error() -> None:
    attempts = Attempts(BUSY, BUSY)
    with pytest.raises(BrokerRefused):
        await retrying(Clock(), attempts, timeout_ms=0)
    assert attempts.count == 1


async def test_a_fact_ends_it_although_its_code_usually_passes() -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    attempts = Attempts(BrokerRefused("x", code), BrokerRefused("x", code, is_final=True))
    with pytest.raises(BrokerRefused):
        await retrying(Clock(), attempts, timeout_ms=5000)
    assert attempts.count == 2


async def test_pauses_double_up_to_a_limit_and_never_pass_the_deadline() -> None:
    clock = Clock()
    with pytest.raises(BrokerUnreachable):
        await retrying(clock, Attempts(*[BrokerUnreachable("gone")] * 99), timeout_ms=5000)
    assert 5 <= clock.seconds <= 6.2
    assert clock.pauses[0] == pytest.approx(0.05, rel=0.21)
    assert clock.pauses[-1] == pytest.approx(1, rel=0.21)


def test_what_the_broker_does_not_offer_is_never_tried_again() -> None:
    assert not is_retriable(UnsupportedByBroker("x"))
