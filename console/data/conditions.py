"""The filter language: conditions on records, parsed into a tree and never run as code.

    value.user.id = 17 and not (key ~ "test" or header.source = batch)
    time >= 2026-11-01T10:00Z and partition = 3 and size > 1000

Fields are ``key``, ``value``, ``time``, ``partition``, ``offset``, ``size`` (bytes of key and
value), ``header.NAME``, and paths into JSON or MessagePack: ``value.a.b[0]``, ``key.id``. The
operators are ``= != < <= > >=`` and ``~`` (contains). There are no functions and no regular
expressions. A field that a record lacks fulfils no comparison but ``!=``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final

from client.errors import InvalidTime, InvalidUse
from client.times import parse_time
from client.types import ConsumerRecord
from console.data.decoders import structure_of, text_of

LENGTH_MAX: Final = 1000
DEPTH_MAX: Final = 20

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<punct>[()]|!=|<=|>=|[=<>~])
    |"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<word>[^\s()=!<>~"']+))""",
    re.VERBOSE,
)
_PATH: Final = re.compile(r"[^.\[\]]+|\[\d{1,9}\]")
_FIELD: Final = re.compile(
    r"(?:(?:key|value)(?:\.[^.\[\]]+|\[\d{1,9}\])*|header\.\S+|time|partition|offset|size)"
)
# A filter may compare a field many times: a key and a value are decoded once for all of it.
_decoded_text: Final = lru_cache(maxsize=2)(text_of)
_decoded_structure: Final = lru_cache(maxsize=2)(structure_of)
# As JSON has them; identifiers of 64 bits have 19 digits.
_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE: Final = ("time", "partition", "offset", "size")
_OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=", "~")
_EXAMPLE: Final = 'write for example: value.user = "ann" and size > 100'

Literal = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison. `text` is the literal as written, `value` what it also may mean."""

    field: str
    operator: str
    text: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    inner: "Condition"


@dataclass(frozen=True, slots=True)
class Both:
    """``and`` of two conditions, or ``or``."""

    is_and: bool
    left: "Condition"
    right: "Condition"


Condition = Compare | Not | Both


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a condition demands of time and partition: records outside cannot fulfil it."""

    from_ms: int | None = None
    to_ms: int | None = None
    partitions: frozenset[int] | None = None


def parse_condition(text: str, *, now_ms: int, zone: tzinfo | None = None) -> Condition | None:
    """The tree of a filter; None for an empty one.

    Raises:
        InvalidUse: it does not parse; the message shows where and what to write.
    """
    if len(text) > LENGTH_MAX:
        raise InvalidUse(f"a filter has at most {LENGTH_MAX} characters, this one {len(text)}")
    if not text.strip():
        return None
    parser = _Parser(_tokens(text), now_ms, zone)
    condition = parser.either(0)
    if parser.peek() is not None:
        raise InvalidUse(f"'{parser.peek()}' is not expected there: join by and, or; {_EXAMPLE}")
    return condition


def _tokens(text: str) -> list[tuple[str, bool]]:
    """(text, whether it was quoted) of each token."""
    tokens = []
    position, rest = 0, text.rstrip()
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise InvalidUse(f"the filter is broken at '{rest[position:][:20]}': {_EXAMPLE}")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append((re.sub(r"\\(.)", r"\1", quoted), True))
        else:
            tokens.append((match["punct"] or match["word"], False))
    return tokens


class _Parser:
    def __init__(self, tokens: list[tuple[str, bool]], now_ms: int, zone: tzinfo | None) -> None:
        self._tokens = tokens
        self._next = 0
        self._now_ms = now_ms
        self._zone = zone

    def peek(self) -> str | None:
        """The next token that is not quoted, in small letters; a quoted one never is a word."""
        if self._next >= len(self._tokens):
            return None
        text, is_quoted = self._tokens[self._next]
        return f'"{text}"' if is_quoted else text

    def _take(self, what: str) -> tuple[str, bool]:
        if self._next >= len(self._tokens):
            raise InvalidUse(f"the filter ends where {what} is expected: {_EXAMPLE}")
        self._next += 1
        return self._tokens[self._next - 1]

    def _takes_word(self, word: str) -> bool:
        if (self.peek() or "").lower() == word:
            self._next += 1
            return True
        return False

    def either(self, depth: int) -> Condition:
        return self._chain("or", lambda: self._all(depth))

    def _all(self, depth: int) -> Condition:
        return self._chain("and", lambda: self._one(depth))

    def _chain(self, word: str, part: Callable[[], Condition]) -> Condition:
        condition, parts = part(), 1
        while self._takes_word(word):
            parts += 1
            if parts > DEPTH_MAX:
                raise InvalidUse(f"a filter joins at most {DEPTH_MAX} conditions by {word}")
            condition = Both(word == "and", condition, part())
        return condition

    def _one(self, depth: int) -> Condition:
        if depth >= DEPTH_MAX:
            raise InvalidUse(f"a filter nests at most {DEPTH_MAX} deep")
        if self._takes_word("not"):
            return Not(self._one(depth + 1))
        if self._takes_word("("):
            inner = self.either(depth + 1)
            if not self._takes_word(")"):
                raise InvalidUse(f"a ) is missing: {_EXAMPLE}")
            return inner
        return self._comparison()

    def _comparison(self) -> Compare:
        field, is_quoted = self._take("a field")
        if is_quoted or not is_field(field):
            raise InvalidUse(
                f"'{field}' is no field: choose key, value, value.PATH, key.PATH, header.NAME, "
                f"{', '.join(_WHOLE)}"
            )
        operator, _ = self._take("an operator")
        if operator not in _OPERATORS:
            raise InvalidUse(f"'{operator}' is no operator: choose {' '.join(_OPERATORS)}")
        text, is_quoted = self._take("a value")
        if not is_quoted and text in (*_OPERATORS, "(", ")"):
            raise InvalidUse(f"a value is expected instead of '{text}': {_EXAMPLE}")
        return Compare(field, operator, text, self._literal(field, text, is_quoted=is_quoted))

    def _literal(self, field: str, text: str, *, is_quoted: bool) -> Literal:
        if field == "time":
            try:
                return parse_time(text, now_ms=self._now_ms, zone=self._zone)
            except InvalidTime as error:
                raise InvalidUse(f"time: {error}") from None
        number = _number(text)
        if field in _WHOLE:
            if not isinstance(number, int):
                raise InvalidUse(f"{field} is compared with a whole number, not with '{text}'")
            return number
        words: dict[str, Literal] = {"true": True, "false": False, "null": None}
        if not is_quoted and text in words:
            return words[text]
        return text if is_quoted or number is None else number


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)


def fulfils(condition: Condition | None, record: ConsumerRecord) -> bool:
    """Whether a record is what a filter selects; None selects every record."""
    if condition is None:
        return True
    if isinstance(condition, Not):
        return not fulfils(condition.inner, record)
    if isinstance(condition, Both):
        left = fulfils(condition.left, record)
        if left is not condition.is_and:
            return left
        return fulfils(condition.right, record)
    return _compare(condition, record)


def _compare(term: Compare, record: ConsumerRecord) -> bool:
    is_there, found = field_of_record(term.field, record)
    if not is_there:
        return term.operator == "!="
    if term.operator == "~":
        return term.text.lower() in _as_text(found).lower()
    if term.operator in ("=", "!="):
        return _equals(found, term) is (term.operator == "=")
    return _is_ordered(found, term)


def _equals(found: Any, term: Compare) -> bool:
    if isinstance(found, str):
        return found == term.text
    return type(found) is type(term.value) and found == term.value or _same_number(found, term)


def _same_number(found: Any, term: Compare) -> bool:
    return _is_number(found) and _is_number(term.value) and found == term.value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_ordered(found: Any, term: Compare) -> bool:
    left: Any = found
    right: Any = term.value
    if isinstance(found, str):
        right = term.text
    elif not (_is_number(found) and _is_number(right)):
        return False
    outcomes: dict[str, bool] = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    return outcomes[term.operator]


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else str(found)


def filter_by_key(key: bytes | None) -> str | None:
    """The filter for records with a key; None for none, and for one that is too long for a filter."""
    if key is None or len(key) > LENGTH_MAX:
        return None
    quoted = re.sub(r'[\\"]', r"\\\g<0>", text_of(key))
    text = f'key = "{quoted}"'
    return text if len(text) <= LENGTH_MAX else None


def is_field(name: str) -> bool:
    """Whether a record may have a field of this name or path."""
    return _FIELD.fullmatch(name) is not None


def field_of_record(name: str, record: ConsumerRecord) -> tuple[bool, Any]:
    """(whether the record has it, its value) of a field that `is_field` accepts."""
    if name in _WHOLE:
        size = len(record.key or b"") + len(record.value or b"")
        return True, {
            "time": record.timestamp_ms,
            "partition": record.partition,
            "offset": record.offset,
            "size": size,
        }[name]
    if name.startswith("header."):
        wanted = name.removeprefix("header.")
        for header, value in record.headers:
            if header == wanted:
                return True, None if value is None else text_of(value)
        return False, None
    data = record.key if name.startswith("key") else record.value
    if name in ("key", "value"):
        return True, None if data is None else _decoded_text(data)
    return _inside(_decoded_structure(data), _PATH.findall(name)[1:])


def _inside(tree: Any, steps: list[str]) -> tuple[bool, Any]:
    for step in steps:
        if step.startswith("["):
            index = int(step[1:-1])
            if not isinstance(tree, list) or index >= len(tree):
                return False, None
            tree = tree[index]
        elif isinstance(tree, dict) and step in tree:
            tree = tree[step]
        else:
            return False, None
    return True, tree


def bounds_of(condition: Condition | None) -> Bounds:
    """What must hold of time and partition wherever the condition holds."""
    if isinstance(condition, Both) and condition.is_and:
        left, right = bounds_of(condition.left), bounds_of(condition.right)
        return Bounds(
            from_ms=max((b for b in (left.from_ms, right.from_ms) if b is not None), default=None),
            to_ms=min((b for b in (left.to_ms, right.to_ms) if b is not None), default=None),
            partitions=_common(left.partitions, right.partitions),
        )
    if not isinstance(condition, Compare) or not isinstance(condition.value, int):
        return Bounds()
    value = condition.value
    if condition.field == "partition" and condition.operator == "=":
        return Bounds(partitions=frozenset((value,)))
    if condition.field != "time":
        return Bounds()
    return {
        "=": Bounds(from_ms=value, to_ms=value + 1),
        ">=": Bounds(from_ms=value),
        ">": Bounds(from_ms=value + 1),
        "<": Bounds(to_ms=value),
        "<=": Bounds(to_ms=value + 1),
    }.get(condition.operator, Bounds())


def _common(one: frozenset[int] | None, other: frozenset[int] | None) -> frozenset[int] | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other
