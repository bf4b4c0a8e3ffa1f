"""Patterns of clients: what they mean, by the judgement of `re`, and how long that takes."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from broker.patterns import Pattern, PatternRefused, compile_pattern

_ONE = st.sampled_from(["a", "B", ".", "[ab]", "[^a]", "[]a-c]", r"\w", r"\.", r"[\]\d]", r"\x61"])
_REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{0}"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        st.tuples(inner, _REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda each: f"(?i:{each})"),
    )


_PATTERNS = st.recursive(_ONE, _grown, max_leaves=12)


@given(_PATTERNS, st.lists(st.text("abc.]1\n", max_size=8), max_size=8))
def test_a_pattern_means_what_re_says(pattern: str, texts: list[str]) -> None:
    try:
        ours = compile_pattern(pattern)
    except PatternRefused:
        reject()  # it stands for more than 500 characters
    for text in texts:
        is_meant = re.fullmatch(pattern, text, re.ASCII) is not None
        assert ours.matches(text) == is_meant, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("", "", "a"),
        ("^orders(-[a-z]+)?$", "orders-eu", "orders-"),
        (r"^a$|\Ab\Z", "b", "ab"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?s).", "\n", ""),
        (".", "x", "\n"),
        ("(?P<name>a|)b", "b", "a"),
        ("((){500}){500}b", "b", ""),
        (r"([*+?{]|\+\*)+", "*+?", "a"),
        (r"\d", "1", "\N{ARABIC-INDIC DIGIT ONE}"),
    ],
)
def test_a_pattern_means_whole_texts(pattern: str, meant: str, not_meant: str) -> None:
    ours = compile_pattern(pattern)
    assert ours.matches(meant)
    assert not ours.matches(not_meant)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "no end"),
        ("a)", "position 1"),
        ("*a", "position 0"),
        ("(*a)", "position 1"),
        ("a{3,2}", "least above"),
        ("[b-a]", "bad character range"),
        ("(?=a)b", "position 1"),
        (r"(a)\1", "position 3"),
        (r"\bword", "position 0"),
        ("[[:alpha:]]", "position 0"),
        ("a*+", "position 2"),
        ("a{,3}", "position 1"),
        ("(?m)a", "position 1"),
        ("a^b", "beginning"),
        ("(^a)*", "beginning"),
        ("a$b", "end"),
        ("a{501}", "500 times"),
        ("(a{30}){30}", "500 characters"),
        ("a" * 1_001, "1000 characters"),
        ("(" * 51 + ")" * 51, "50 deep"),
    ],
)
def test_a_pattern_that_is_not_taken_is_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternRefused, match=reason):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+", "a" * 30_000 + "!"),
        ("(aa|a)" * 40 + "b", "a" * 70),
        ("a{0,60}" * 5, "a" * 400),
        (".*.*.*.*b", "a" * 30_000),
        ("a?" * 200 + "a" * 200, "a" * 199),
    ],
)
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    """By other means than ours each of these takes hours."""
    begin = time.process_time()
    assert not compile_pattern(pattern).matches(text)
    assert time.process_time() - begin < 2


def test_what_is_learned_is_bounded() -> None:
    ours: Pattern = compile_pattern(".*x")
    assert not ours.matches("".join(chr(0x4E00 + i) for i in range(5_000)))
    assert len(ours._steps) <= 1_024
    assert len(ours._accepting) <= 1_024
