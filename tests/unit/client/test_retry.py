"""Trying again: how often, how long, and when not."""

import pytest

from client.errors import BrokerRefused, BrokerUnreachable, UnsupportedByBroker
from client.retry import is_retriable, retrying
from protocol.error_codes import ErrorCode

BUSY = BrokerRefused("x", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
NO_TOPIC = BrokerRefused("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


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
    assert await retrying(attempts, timeout_ms=5000, on_failure=heard.append) == "done"
    assert attempts.count == 3
    assert len(heard) == 2


async def test_other_errors_end_it_at_once() -> None:
    attempts = Attempts(BrokerRefused("x", ErrorCode.INVALID_CONFIG))
    with pytest.raises(BrokerRefused):
        await retrying(attempts, timeout_ms=5000)
    assert attempts.count == 1


async def test_time_ends_it_with_the_last_error() -> None:
    attempts = Attempts(BUSY, BUSY)
    with pytest.raises(BrokerRefused):
        await retrying(attempts, timeout_ms=0)
    assert attempts.count == 1


async def test_a_caller_may_name_codes_that_end_it() -> None:
    attempts = Attempts(NO_TOPIC)
    with pytest.raises(BrokerRefused):
        await retrying(
            attempts,
            timeout_ms=5000,
            except_for=frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        )
    assert attempts.count == 1


def test_what_the_broker_does_not_offer_is_never_tried_again() -> None:
    assert not is_retriable(UnsupportedByBroker("x"))
