"""Which patterns are taken, and what they mean."""

import pytest

from broker.groups.consumer.subscribed_topics import compile_pattern, matching
from broker.groups.consumer.values import HeartbeatRefused
from protocol.error_codes import ErrorCode

NAMES = ["orders", "orders-eu", "orders-us", "invoices", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu", "orders-us"}),
        ("orders-(eu|us)", {"orders-eu", "orders-us"}),
        ("^orders(-[a-z]+)?$", {"orders", "orders-eu", "orders-us"}),
        ("(?i)ORDERS", {"orders"}),
        (".*", set(NAMES)),
        ("__.*", {"__consumer_offsets"}),
        ("order", set()),
    ],
)
def test_a_pattern_means_whole_names_and_internal_ones_too(pattern: str, meant: set[str]) -> None:
    assert matching(compile_pattern(pattern), NAMES) == meant


@pytest.mark.parametrize("pattern", ["(", "*a", "(?=a)b", r"(a)\1", "a" * 1001])
def test_a_pattern_that_is_none_or_is_not_taken_is_refused(pattern: str) -> None:
    with pytest.raises(HeartbeatRefused) as refusal:
        compile_pattern(pattern)
    assert refusal.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION
