r"""Regular expressions that clients send, matched by RE2 in time linear in the text.

Kafka's clients write RE2 patterns and rely on its promise: no pattern takes forever. Python's `re`
tries one way after the other, and some patterns would keep it and the loop busy for hours.

Owns the bounds of one pattern. Within them, compiling takes a few milliseconds and matching a name
of 250 characters at most as long; beyond them a pattern is refused with a sentence that says why.
`re2` is imported after the start, or with the first pattern: a broker should be listening first.
An installation for musl may lack it (`setup.py`), and refuses every pattern.

Differs from Kafka: a pattern has at most 1,000 characters and may use 128 KiB when it is compiled,
and `\p` is refused, because each of its classes takes RE2 a part of a millisecond; names of topics
are ASCII. RE2/J has no such limits.

Source: RE2's syntax.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, Final

_LENGTH_MAX: Final = 1_000
_COMPILED_BYTES_MAX: Final = 128 * 1024
_PATTERNS_MAX: Final = 200
_UNICODE_CLASS: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[pP]")


NO_RE2: Final = (
    "patterns need the package google-re2, which is not installed: for musl (Alpine) it has no "
    "wheels, and pip install google-re2 needs a C++ compiler and the headers of RE2 and Abseil"
)


class PatternRefused(ValueError):
    """A text that is not a regular expression, or one that is not supported; says why."""


class Pattern:
    """A regular expression, compiled."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        """Match by what `re2.compile` returned."""
        self._compiled = compiled

    def matches(self, text: str) -> bool:
        """Whether the pattern matches this text, from end to end."""
        return self._compiled.fullmatch(text) is not None

    @property
    def groups(self) -> int:
        """How many groups the pattern has."""
        return int(self._compiled.groups)

    def groups_of(self, text: str) -> list[str] | None:
        """The text and what each group matched, if the pattern matches from end to end."""
        found = self._compiled.fullmatch(text)
        return None if found is None else [text, *(group or "" for group in found.groups())]

    def replace(self, text: str, by: Callable[[list[str]], str], *, once: bool) -> str:
        """`text` with its first match, or all of them, replaced by what `by` makes of the groups.

        The first of the groups is the match itself.
        """

        def replacement(found: Any) -> str:
            return by([found[0], *(group or "" for group in found.groups())])

        replaced: str = self._compiled.sub(replacement, text, 1 if once else 0)
        return replaced


@functools.lru_cache(maxsize=_PATTERNS_MAX)
def compile_pattern(text: str, *, has_groups: bool = False) -> Pattern:
    """The pattern, ready to match whole texts; without `has_groups` its groups are forgotten.

    Raises:
        PatternRefused: `text` is not a regular expression, or not a supported one; or RE2 is not
            installed.
    """
    if len(text) > _LENGTH_MAX:
        raise PatternRefused(f"it is longer than {_LENGTH_MAX} characters")
    if _UNICODE_CLASS.search(text):
        raise PatternRefused(r"\p is not supported; write the characters as a class such as [a-z]")
    try:
        import re2
    except ImportError as error:
        raise PatternRefused(NO_RE2) from error
    try:
        return Pattern(re2.compile(text, _options(has_groups)))
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if reason.startswith("pattern too large"):
            reason = f"compiled, it is larger than {_COMPILED_BYTES_MAX // 1024} KiB"
        raise PatternRefused(reason) from error


@functools.cache
def _options(has_groups: bool) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = not has_groups
    options.max_mem = _COMPILED_BYTES_MAX
    return options
