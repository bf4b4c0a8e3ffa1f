"""A pending response is settled once and delivered once."""

import pytest

from broker.replies.pending import Pending


def test_subscriber_gets_a_later_value() -> None:
    pending: Pending[int] = Pending()
    seen: list[int] = []
    pending.subscribe(lambda settled: seen.append(settled.result()))
    pending.resolve(3)
    assert seen == [3]


def test_subscriber_gets_an_earlier_value_at_once() -> None:
    pending: Pending[int] = Pending()
    pending.resolve(3)
    seen: list[int] = []
    pending.subscribe(lambda settled: seen.append(settled.result()))
    assert seen == [3]


def test_second_settlement_is_ignored() -> None:
    pending: Pending[int] = Pending()
    seen: list[int] = []
    pending.subscribe(lambda settled: seen.append(settled.result()))
    pending.resolve(1)
    pending.resolve(2)
    pending.fail(ValueError())
    assert seen == [1]


def test_error_is_raised_by_result() -> None:
    pending: Pending[int] = Pending()
    pending.fail(ValueError("no"))
    assert isinstance(pending.error, ValueError)
    with pytest.raises(ValueError, match="no"):
        pending.result()


def test_abandon_tells_the_parker_and_drops_the_subscriber() -> None:
    calls: list[str] = []
    pending: Pending[int] = Pending(lambda: calls.append("parker"))
    pending.subscribe(lambda _: calls.append("subscriber"))
    pending.abandon()
    pending.resolve(1)
    assert calls == ["parker"]


def test_abandon_after_settlement_calls_nothing() -> None:
    calls: list[str] = []
    pending: Pending[int] = Pending(lambda: calls.append("parker"))
    pending.resolve(1)
    pending.abandon()
    assert calls == []
