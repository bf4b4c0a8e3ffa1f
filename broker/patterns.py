r"""Regular expressions that clients send, matched in time linear in the text.

Clients write RE2 patterns and rely on its promise: no pattern takes forever. Python's `re` tries
one way after the other, and some patterns, even without any repetition, would keep it and the loop
busy for hours. So this module splits a pattern into its positions, each of which matches one
character. It matches a text by following all ways at once.

```
 pattern       ( a | b ) *  c        state      the positions where the text so far may have ended
 positions   0   1   2      3        follow     of 0, 1 and 2: 1, 2, 3; of 3: none
                                     matching   a state with 3 in it when the text is at its end
```

Owns the structure: alternatives, groups, repetition. `re` decides the meaning of one character,
class or escape, in ASCII as in RE2. Does not match parts of a text. Refuses syntax that only one of
`re` and RE2 understands, with a sentence that names the position.

Invariant: a step looks at each position at most once, and there are at most `_POSITIONS_MAX`. Steps
are cached, so that most of them are one look-up.

Differs from Kafka: a pattern has at most 1,000 characters and 500 positions, and groups are at most
50 deep. Only the flags i and s are accepted. `\b`, `\p` and classes like `[[:alpha:]]` are refused;
`^` and `$` must be at an end. RE2/J has no such limits.

Source: V. Glushkov, "The abstract theory of automata", 1961; RE2's syntax.
Read next: `broker.groups.consumer.subscribed_topics`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

_LENGTH_MAX: Final = 1_000
_DEPTH_MAX: Final = 50
_POSITIONS_MAX: Final = 500
_STEPS_MAX: Final = 1_024
_PATTERNS_MAX: Final = 200

_TOKEN: Final = re.compile(
    r"""(?P<open>\((?:\?(?:P<\w+>|(?P<scoped>[is]*):|(?P<rest>[is]+)\)))?)
    | (?P<close>\))
    | (?P<bar>\|)
    | (?P<repeat>(?:[*+?]|\{(?P<least>\d{1,4})(?P<comma>,(?P<most>\d{0,4}))?\})\??)
    | (?P<start>\^|\\A)
    | (?P<end>\$|\\[zZ])
    | (?P<one>\\x[0-9a-fA-F]{2}|\\[dDwWsSaftrnv]|\\[^a-zA-Z0-9]
            |\[\^?\]?(?:\\.|[^]\\[])*\]|[^\\\[{])
    """,
    re.VERBOSE | re.DOTALL,
)
_NO_END: Final = -1
_BEGIN: Final = 1
"""The state before the first character: position 0, which matches no character."""


class PatternRefused(ValueError):
    """A text that is not a regular expression, or one that is not supported; says why."""


@dataclass(frozen=True, slots=True)
class _One:
    """One character, as `re` understands `text`."""

    text: str
    flags: re.RegexFlag


@dataclass(frozen=True, slots=True)
class _Edge:
    """The beginning or the end of the text."""

    is_start: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A sequence of items."""

    items: Sequence[_Node]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice between alternatives."""

    ways: Sequence[_Node]


@dataclass(frozen=True, slots=True)
class _Repeat:
    """An item that repeats; `most` may be `_NO_END`."""

    item: _Node
    least: int
    most: int


_Node: TypeAlias = _One | _Edge | _Row | _Choice | _Repeat


@functools.lru_cache(maxsize=_PATTERNS_MAX)
def compile_pattern(text: str) -> Pattern:
    """The pattern, ready to match whole texts.

    Raises:
        PatternRefused: `text` is not a regular expression, or not a supported one.
    """
    if len(text) > _LENGTH_MAX:
        raise PatternRefused(f"it is longer than {_LENGTH_MAX} characters")
    tree = _Reader(text).read()
    _check_edges(tree, at_start=True, at_end=True)
    return Pattern(tree)


class Pattern:
    """A regular expression. Loop thread only: matching fills its caches."""

    def __init__(self, tree: _Node) -> None:
        """Split `tree` into positions. Raises: PatternRefused when there are too many."""
        self._leaves: list[_One] = []
        self._follow = [0]
        is_optional, first, last = self._place(tree)
        self._follow[0] = first
        self._matching = last | (_BEGIN if is_optional else 0)
        self._tests = [_test(leaf) for leaf in self._leaves]
        self._accepting: dict[str, int] = {}
        self._steps: dict[tuple[int, str], int] = {}

    def matches(self, text: str) -> bool:
        """Whether the pattern matches this text, from end to end."""
        state = _BEGIN
        for character in text:
            step = self._steps.get((state, character))
            state = self._step(state, character) if step is None else step
            if not state:
                return False
        return state & self._matching != 0

    def _step(self, state: int, character: str) -> int:
        reached, left = 0, state
        while left:
            lowest = left & -left
            reached |= self._follow[lowest.bit_length() - 1]
            left ^= lowest
        after = reached & self._accepted_by(character)
        if len(self._steps) >= _STEPS_MAX:
            self._steps.clear()
        self._steps[state, character] = after
        return after

    def _accepted_by(self, character: str) -> int:
        """The positions that match `character`."""
        found = self._accepting.get(character)
        if found is None:
            if len(self._accepting) >= _STEPS_MAX:
                self._accepting.clear()
            found = 0
            for position, test in enumerate(self._tests, 1):
                if test.fullmatch(character):
                    found |= 1 << position
            self._accepting[character] = found
        return found

    # -- splitting: whether it is optional, its first and its last positions -----------------------

    def _place(self, node: _Node) -> tuple[bool, int, int]:
        if isinstance(node, _One):
            if len(self._leaves) >= _POSITIONS_MAX:
                raise PatternRefused(f"it stands for more than {_POSITIONS_MAX} characters")
            self._leaves.append(node)
            self._follow.append(0)
            bit = 1 << len(self._leaves)
            return False, bit, bit
        if isinstance(node, _Edge):
            return True, 0, 0
        if isinstance(node, _Choice):
            placed = [self._place(way) for way in node.ways]
            first = functools.reduce(int.__or__, (each[1] for each in placed))
            last = functools.reduce(int.__or__, (each[2] for each in placed))
            return any(each[0] for each in placed), first, last
        if isinstance(node, _Row):
            return self._place_row(self._place(item) for item in node.items)
        return self._place_repeat(node)

    def _place_row(self, items: Iterator[tuple[bool, int, int]]) -> tuple[bool, int, int]:
        is_optional, first, last = True, 0, 0
        for item_is_optional, item_first, item_last in items:
            self._join(last, item_first)
            first |= item_first if is_optional else 0
            last = item_last | (last if item_is_optional else 0)
            is_optional = is_optional and item_is_optional
        return is_optional, first, last

    def _place_repeat(self, node: _Repeat) -> tuple[bool, int, int]:
        """As many copies as allowed; the last one may loop when there is no upper bound."""

        def copies() -> Iterator[tuple[bool, int, int]]:
            count = max(node.least, 1) if node.most == _NO_END else node.most
            for index in range(count):
                is_optional, first, last = self._place(node.item)
                if not first:
                    return  # it matches nothing, however often
                if node.most == _NO_END and index == count - 1:
                    self._join(last, first)
                yield is_optional or index >= node.least, first, last

        return self._place_row(copies())

    def _join(self, before: int, after: int) -> None:
        while before:
            lowest = before & -before
            self._follow[lowest.bit_length() - 1] |= after
            before ^= lowest


class _Reader:
    """Reads a pattern from left to right, once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> _Node:
        """The whole pattern. Raises: PatternRefused."""
        tree = self._choice(re.NOFLAG)
        if self._at < len(self._text):
            raise self._refused(self._at)
        return tree

    def _choice(self, flags: re.RegexFlag) -> _Node:
        """The alternatives up to the end of the group."""
        ways: list[list[_Node]] = [[]]
        may_repeat = False
        while self._at < len(self._text) and self._text[self._at] != ")":
            found = self._token()
            kind = found.lastgroup
            row = ways[-1]
            if kind == "bar":
                ways.append([])
            elif kind == "repeat":
                if not may_repeat:
                    raise self._refused(found.start())
                row.append(_Repeat(row.pop(), *_bounds(found)))
            elif kind in ("start", "end"):
                row.append(_Edge(kind == "start"))
            elif kind == "one":
                row.append(_One(found["one"], flags))
            elif found["rest"]:
                flags |= _flags(found["rest"])
            else:
                row.append(self._group(flags | _flags(found["scoped"] or "")))
            may_repeat = kind == "one" or (kind == "open" and not found["rest"])
        return _Choice([_Row(row) for row in ways])

    def _group(self, flags: re.RegexFlag) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternRefused(f"its groups stand more than {_DEPTH_MAX} deep in each other")
        inside = self._choice(flags)
        self._depth -= 1
        if self._at == len(self._text):
            raise PatternRefused("a group has no end")
        self._at += len(")")
        return inside

    def _token(self) -> re.Match[str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._refused(self._at)
        self._at = found.end()
        return found

    def _refused(self, position: int) -> PatternRefused:
        what = self._text[position : position + 10]
        return PatternRefused(f"{what!r} at position {position} is not supported")


def _bounds(repeat: re.Match[str]) -> tuple[int, int]:
    """The bounds of a repetition.

    Raises:
        PatternRefused: the upper bound is below the lower one, or a bound is above
        `_POSITIONS_MAX`.
    """
    if repeat["least"] is None:
        return {"*": (0, _NO_END), "+": (1, _NO_END), "?": (0, 1)}[repeat["repeat"][0]]
    least = int(repeat["least"])
    most = least if repeat["comma"] is None else int(repeat["most"] or _NO_END)
    if _NO_END < most < least:
        raise PatternRefused(f"{repeat['repeat']} has its least above its most")
    if max(least, most) > _POSITIONS_MAX:
        raise PatternRefused(f"it repeats something more than {_POSITIONS_MAX} times")
    return least, most


def _test(leaf: _One) -> re.Pattern[str]:
    try:
        return re.compile(leaf.text, leaf.flags | re.ASCII)
    except re.error as error:
        raise PatternRefused(f"{leaf.text} means no characters: {error}") from error


def _flags(letters: str) -> re.RegexFlag:
    flags = re.NOFLAG
    for letter in letters:
        flags |= re.IGNORECASE if letter == "i" else re.DOTALL
    return flags


def _check_edges(node: _Node, *, at_start: bool, at_end: bool) -> None:
    """Accept `^` and `$` only at the ends of the pattern, where they change nothing.

    Raises: PatternRefused.
    """
    if isinstance(node, _Edge):
        if not (at_start if node.is_start else at_end):
            raise PatternRefused("^ must be at its beginning and $ at its end")
    elif isinstance(node, _Choice):
        for way in node.ways:
            _check_edges(way, at_start=at_start, at_end=at_end)
    elif isinstance(node, _Row):
        edges = [isinstance(item, _Edge) for item in node.items]
        for i, item in enumerate(node.items):
            is_first, is_last = all(edges[:i]), all(edges[i + 1 :])
            _check_edges(item, at_start=at_start and is_first, at_end=at_end and is_last)
    elif isinstance(node, _Repeat):
        _check_edges(node.item, at_start=False, at_end=False)
