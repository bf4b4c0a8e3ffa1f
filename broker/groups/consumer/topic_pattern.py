"""Subscriptions by regular expression: the topics that a pattern means.

A pattern means the names that it matches from end to end, including those of internal topics; to
leave them out is the client's part, in its pattern. A pattern that `broker.patterns` does not
accept is refused with INVALID_REGULAR_EXPRESSION.

Source: KIP-848, KIP-1043; Kafka's `TopicRegexResolver`.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker import patterns
from broker.groups.consumer.values import HeartbeatRefused
from protocol.error_codes import ErrorCode


def compile_pattern(text: str) -> patterns.Pattern:
    """The pattern, ready to match whole names.

    Raises:
        HeartbeatRefused: it is not a pattern, or one that is refused.
    """
    try:
        return patterns.compile_pattern(text)
    except patterns.PatternRefused as refusal:
        raise HeartbeatRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression {text[:100]!r} cannot be used: {refusal}.",
        ) from refusal


def matching(pattern: patterns.Pattern, names: Iterable[str]) -> frozenset[str]:
    """The names that the pattern means."""
    return frozenset(name for name in names if pattern.matches(name))
