"""Subscriptions by regular expression: which topics a pattern means.

Clients write RE2 patterns, which run in linear time; ours run on Python's `re`, which does not.
So a pattern that could take forever on a name, or that RE2 would not have, is refused with
INVALID_REGULAR_EXPRESSION: repetition inside of repetition, more than a few open-ended ones, look
around and back references. What people write for topic names passes.

A pattern means the names that it matches from end to end; internal topics are never meant.

Differs from Kafka: a pattern must not repeat a repetition and has at most three open-ended ones;
Kafka takes what RE2/J takes.

Source: KIP-848, KIP-1043; Kafka's `TopicRegexResolver`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final

from broker.groups.consumer_values import HeartbeatRefused
from broker.topics import is_internal
from protocol.error_codes import ErrorCode

_LENGTH_MAX: Final = 1_000
_REPEATS_MAX: Final = 3
_OPTIONAL_MAX: Final = 8
_NOT_RE2: Final = re.compile(r"\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9]")
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
_OPEN_ENDED: Final = re.compile(r"[*+]|\{\d*,\}")


@functools.lru_cache(maxsize=1_000)
def compile_pattern(text: str) -> re.Pattern[str]:
    """The pattern, ready to match whole names.

    Raises:
        HeartbeatRefused: it is not a pattern, or one that is refused.
    """
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise _refused(text, str(error)) from error
    if len(text) > _LENGTH_MAX:
        raise _refused(text, f"it is longer than {_LENGTH_MAX} characters")
    if _NOT_RE2.search(text):
        raise _refused(text, "look-around and back references are not supported")
    _check_repeats(text)
    return pattern


def matching(pattern: re.Pattern[str], names: Iterable[str]) -> frozenset[str]:
    """The names that the pattern means."""
    return frozenset(name for name in names if pattern.fullmatch(name) and not is_internal(name))


def _check_repeats(text: str) -> None:
    """Bound the repetitions, and see that none stands inside of a repeated group."""
    inside = [0]
    closed = open_ended = optional = 0
    before = ""
    for token in _TOKEN.findall(text):
        is_repeat = _OPEN_ENDED.fullmatch(token) is not None or token.startswith("{")
        is_optional = token == "?" and before != "("
        if is_repeat and closed:
            raise _refused(text, "a repetition stands inside of another")
        inside[-1] += is_repeat or is_optional
        open_ended += _OPEN_ENDED.fullmatch(token) is not None
        optional += is_optional
        closed = 0
        if token == "(":
            inside.append(0)
        elif token == ")":
            closed = inside.pop()
            inside[-1] += closed
        before = token
    if open_ended > _REPEATS_MAX or optional > _OPTIONAL_MAX:
        raise _refused(
            text,
            f"it has more than {_REPEATS_MAX} open-ended repetitions or {_OPTIONAL_MAX} options",
        )


def _refused(text: str, reason: str) -> HeartbeatRefused:
    return HeartbeatRefused(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"The regular expression {text[:100]!r} cannot be used: {reason}.",
    )
