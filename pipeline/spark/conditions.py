"""What a condition in SQL says about offsets, partitions, topics and times.

Only comparisons of one of these columns with constants are understood, joined by AND at the top of
the condition; all other parts are left to Spark, which evaluates the whole condition again. What is
not surely understood excludes nothing: an OR or a CASE at the top, a comment, an escape.

A constant time is evaluated by the session: a text without a zone is in the session's zone.

Source: Spark SQL reference, "Literals" and "Operators" (AND binds tighter than OR).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.options.narrowing import NO_LIMITS, Narrowing
from protocol.records.layout import INT64_MAX

_TOKEN: Final = re.compile(
    r"""\s+|(?P<text>'[^'\\]*'|"[^"\\]*")|(?P<name>`[^`]+`|[A-Za-z_]\w*)|(?P<number>\d+\b(?!\.))
    |(?P<sign><=>|>=|<=|<>|!=|==|[^\s'"`\\])""",
    re.VERBOSE,
)
_COLUMNS: Final = ("offset", "partition", "topic", "timestamp")
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_TIME_WORDS: Final = ("TIMESTAMP", "TIMESTAMP_LTZ", "DATE")
_TIME_FUNCTIONS: Final = ("TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "TIMESTAMP_SECONDS")
_UNSURE: Final = ("OR", "CASE")
_US: Final = 1000


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of a condition; `word` is in capitals, or empty for constants."""

    text: str
    word: str = ""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A column, an operator among `= < <= > >=`, and constants: several only for `=`."""

    column: str
    sign: str
    constants: tuple[str, ...]


Times = Callable[[Sequence[str]], Sequence[int]]
"""From constant times in SQL to us since the epoch; to none where one of them is no time."""


def narrowing_of(condition: str, times: Times) -> Narrowing:
    """The limits that all rows which meet `condition` are within."""
    limits, found = _Limits(), comparisons(condition)
    constants = [text for one in found if one.column == "timestamp" for text in one.constants]
    # All at once, since each question costs the session as much as a small query.
    known = dict(zip(constants, times(constants), strict=False)) if constants else {}
    for one in found:
        if one.column == "timestamp":
            micros = [known[text] for text in one.constants] if known else times(one.constants)
            limits.add_time(one.sign, micros)
        else:
            limits.add(one)
    return limits.narrowing()


def comparisons(condition: str) -> list[_Comparison]:
    """The comparisons all of which a row has to pass to meet `condition`."""
    tokens = _tokens(condition)
    return [] if tokens is None else list(_comparisons(tokens))


class _Limits:
    """Limits that get narrower with each comparison."""

    def __init__(self) -> None:
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}
        self._sets: dict[str, frozenset[str]] = {}

    def add(self, one: _Comparison) -> None:
        """A comparison of the offset, the partition or the topic."""
        if one.column != "topic" and not all(text.isdigit() for text in one.constants):
            return
        if one.column == "offset":
            self._bound("offset", one.sign, [int(text) for text in one.constants])
        elif one.sign == "=":
            if one.column == "topic" and not all(map(_is_text, one.constants)):
                return
            allowed = frozenset(text[1:-1] if _is_text(text) else text for text in one.constants)
            self._sets[one.column] = self._sets.get(one.column, allowed) & allowed

    def add_time(self, sign: str, micros: Sequence[int]) -> None:
        """A comparison of the time; of none where the constants have no meaning."""
        if micros:
            self._bound("timestamp", sign, micros)

    def _bound(self, column: str, sign: str, numbers: Sequence[int]) -> None:
        """Both ends stay inclusive: a bound that is one too wide excludes no row."""
        if sign in ("=", ">", ">="):
            self._low[column] = max(self._low.get(column, min(numbers)), min(numbers))
        if sign in ("=", "<", "<="):
            self._high[column] = min(self._high.get(column, max(numbers)), max(numbers))

    def narrowing(self) -> Narrowing:
        """The limits of all comparisons so far."""
        partitions = self._sets.get("partition")
        low, high = self._low.get("timestamp"), self._high.get("timestamp")
        last = self._high.get("offset", INT64_MAX)
        return Narrowing(
            # A time may be a part of the last millisecond: all of it is kept.
            oldest_ms=NO_LIMITS.oldest_ms if low is None else low // _US,
            newest_ms=NO_LIMITS.newest_ms if high is None else high // _US + 1,
            first_offset=self._low.get("offset", 0),
            end_offset=NO_LIMITS.end_offset
            if last is None
            else min(last + 1, NO_LIMITS.end_offset),
            partitions=None if partitions is None else frozenset(map(int, partitions)),
            topics=self._sets.get("topic"),
        )


def _tokens(condition: str) -> list[_Token] | None:
    """The words of `condition`; None where a comment or an escape makes them uncertain."""
    tokens, place = [], 0
    while place < len(condition):
        match = _TOKEN.match(condition, place)
        if match is None or condition.startswith(("--", "/*"), place):
            return None
        if match["name"]:
            quoted = match["name"].startswith("`")
            tokens.append(_Token(match["name"].strip("`"), "" if quoted else match["name"].upper()))
        elif match.lastgroup is not None:
            is_sign = match["sign"] is not None
            tokens.append(_Token(match[0], match[0] if is_sign else ""))
        if match["text"] and len(tokens) > 1 and _is_text(tokens[-2].text):
            return None
        place = match.end()
    return tokens


def _comparisons(tokens: Sequence[_Token]) -> Iterator[_Comparison]:
    tokens = _without_parentheses(tokens)
    parts = _conjuncts(tokens)
    if parts is None:
        return
    if len(parts) > 1:
        for part in parts:
            yield from _comparisons(part)
    else:
        yield from _comparison(tokens)


def _without_parentheses(tokens: Sequence[_Token]) -> Sequence[_Token]:
    """`tokens` without the parentheses around all of them."""
    while len(tokens) > 2 and tokens[0].word == "(" and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing(tokens: Sequence[_Token], opening: int) -> int:
    """The place of the parenthesis that closes the one at `opening`; -1 if there is none."""
    depth = 0
    for place in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[place].word, 0)
        if depth == 0:
            return place
    return -1


def _conjuncts(tokens: Sequence[_Token]) -> list[Sequence[_Token]] | None:
    """The parts that the top of the condition joins by AND; None where it is not only AND."""
    parts: list[Sequence[_Token]] = []
    depth = begin = betweens = 0
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if depth:
            continue
        if token.word in _UNSURE:
            return None
        if token.word == "BETWEEN":
            betweens += 1
        elif token.word == "AND" and betweens:
            betweens -= 1
        elif token.word == "AND":
            parts.append(tokens[begin:place])
            begin = place + 1
    return [*parts, tokens[begin:]]


def _comparison(tokens: Sequence[_Token]) -> Iterator[_Comparison]:
    """What one part compares, if all of it is a comparison with constants."""
    column = _column(tokens[0]) if tokens else ""
    if column and len(tokens) > 2:
        yield from _column_first(column, tokens[1].word, tokens[2:])
    elif not column and len(tokens) > 2 and (column := _column(tokens[-1])):
        sign = _FLIPPED.get(_sign(tokens[-2].word))
        constant = _constant(tokens[:-2])
        if sign and constant:
            yield _Comparison(column, sign, (constant,))


def _column_first(column: str, word: str, rest: Sequence[_Token]) -> Iterator[_Comparison]:
    if word == "BETWEEN":
        middle = next((place for place, one in enumerate(rest) if one.word == "AND"), 0)
        low, high = _constant(rest[:middle]), _constant(rest[middle + 1 :])
        if low and high:
            yield _Comparison(column, ">=", (low,))
            yield _Comparison(column, "<=", (high,))
    elif word == "IN" and rest[0].word == "(" and _closing(rest, 0) == len(rest) - 1:
        constants = [_constant(part) for part in _separated(rest[1:-1])]
        if all(constants):
            yield _Comparison(column, "=", tuple(constants))
    elif _sign(word) in _FLIPPED and (constant := _constant(rest)):
        yield _Comparison(column, _sign(word), (constant,))


def _sign(word: str) -> str:
    return "=" if word == "==" else word


def _column(token: _Token) -> str:
    """The name of a column that limits are about, or ''."""
    name = token.text.lower()
    return name if name in _COLUMNS else ""


def _is_text(constant: str) -> bool:
    """Whether a constant is a text in its quotes."""
    return constant[:1] in ("'", '"')


def _separated(tokens: Sequence[_Token]) -> list[Sequence[_Token]]:
    """The parts of a list between its commas, which have no commas of their own."""
    parts: list[Sequence[_Token]] = []
    begin = 0
    for place, token in enumerate(tokens):
        if token.word == ",":
            parts.append(tokens[begin:place])
            begin = place + 1
    return [*parts, tokens[begin:]]


def _constant(tokens: Sequence[_Token]) -> str:
    """The SQL of a constant: a number, a text, or a time with a fixed meaning. '' for others."""
    words = [token.word for token in tokens]
    texts = [token.text for token in tokens]
    if len(tokens) == 1 and (_is_text(texts[0]) or texts[0].isdigit()):
        return texts[0]
    if len(tokens) == 2 and words[0] in _TIME_WORDS and _is_text(texts[1]):
        return " ".join(texts)
    is_call = len(tokens) == 4 and words[0] in _TIME_FUNCTIONS and words[1::2] == ["(", ")"]
    return "".join(texts) if is_call and texts[2].isdigit() else ""
