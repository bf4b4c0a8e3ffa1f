"""Patterns of clients: what they mean, by the judgement of `re`, and how long that takes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from protocol.patterns import PatternRefused, compile_pattern

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
        reject()  # it is too large
    for text in texts:
        is_meant = re.fullmatch(pattern, text, re.ASCII) is not None
        assert ours.matches(text) == is_meant, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("", "", "a"),
        ("^orders(-[a-z]+)?$", "orders-eu", "orders-"),
        (r"^a$|\Ab\z", "b", "ab"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?s).", "\n", ""),
        (".", "x", "\n"),
        ("(?P<name>a|)b", "b", "a"),
        (r"\\pL", r"\pL", "p"),
        ("[[:alpha:]]+", "topic", "topic1"),
        (r"orders\b.*", "orders-eu", "orderseu"),
        ("^.|(^a)+$", "a", "aa"),
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
        ("(", r"missing \)"),
        ("a)", r"unexpected \)"),
        ("*a", "no argument for repetition"),
        ("(*a)", "no argument for repetition"),
        ("a{3,2}", "invalid repetition size"),
        ("[b-a]", "invalid character class range: b-a"),
        ("(?=a)b", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("a*+", "bad repetition operator"),
        ("a{1001}", "invalid repetition size"),
        (".{999}.{999}", "larger than 128 KiB"),
        ("a" * 1_001, "longer than 1000 characters"),
        (r"\pL", r"\\p is not supported"),
        (r"a\\\P{Greek}", r"\\p is not supported"),
    ],
)
def test_a_pattern_that_is_not_taken_is_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternRefused, match=reason):
        compile_pattern(pattern)


def test_without_re2_every_pattern_is_refused_with_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after an installation on Alpine without a compiler."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PatternRefused, match=r"need the package google-re2.*C\+\+ compiler"):
        compile_pattern("not-compiled-before")
    monkeypatch.undo()
    assert compile_pattern("not-compiled-before").matches("not-compiled-before")


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


def test_compiling_takes_milliseconds_at_the_bounds() -> None:
    """Each of these is the worst of its kind: refused or not, it costs one turn of the loop."""
    for pattern in (r"\pL" * 333, ".?" * 500, "(.?){1000}", "[^x]" * 250, "(?i)[k-\u212a]" * 166):
        begin = time.process_time()
        with suppress(PatternRefused):
            compile_pattern(pattern)
        assert time.process_time() - begin < 1


def test_libraries_for_later_are_not_imported_before_the_broker_listens() -> None:
    late = {"re2", "h11", "prometheus_client"}
    probe = f"import sys, broker.node; print({late} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
