"""Names of certificates to names of users, by the rules of `ssl.principal.mapping.rules`.

    RULE:^CN=(.*?),OU=Devices.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole subject gives the name; `DEFAULT` is the subject
itself. A certificate that no rule matches is refused. `L` and `U` after the last slash change the
letters to lower or upper case.

Patterns are RE2's, so that none takes forever. Java's look-around and back-references are refused
when the broker starts, and so is a `$n` without its group, at which Kafka fails later.

Source: Kafka `SslPrincipalMapper` (KIP-371); Java `Matcher.replaceAll`.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.patterns import Pattern, PatternRefused, compile_pattern

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
)
_REFERENCE: Final = re.compile(r"\\(?P<char>.)|\$(?P<digits>[0-9]*)", re.DOTALL)
CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class RuleRefused(ValueError):
    """A text that is no list of rules; says where and why."""


class NoRuleMatches(ValueError):
    """No rule gives this certificate a name."""


class _Rule(NamedTuple):
    pattern: Pattern
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of one listener, in order; None stands for DEFAULT."""

    def __init__(self, text: str) -> None:
        """Read the rules.

        Raises:
            RuleRefused: the text is no list of rules.
        """
        self._rules: list[_Rule | None] = []
        position = 0
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or text[found.end() : found.end() + 1] not in ("", ","):
                raise RuleRefused(
                    f"ssl.principal.mapping.rules: {text[position:]!r} is no rule; write DEFAULT "
                    "or RULE:pattern/replacement/, with L or U at the end for the letters' case"
                )
            self._rules.append(_rule(found))
            position = found.end() + 1
        if not self._rules:
            raise RuleRefused("ssl.principal.mapping.rules is empty; write DEFAULT")

    def name_of(self, subject: str) -> str:
        """The name of the user whose certificate has this subject.

        Raises:
            NoRuleMatches: no rule matches, or it gives an empty name.
        """
        for rule in self._rules:
            if rule is None:
                return subject
            found = rule.pattern.groups_of(subject)
            if found is not None:
                name = CASES[rule.case](expanded(rule.replacement, found))
                if name:
                    return name
                break
        raise NoRuleMatches("no rule of ssl.principal.mapping.rules names this certificate")


def _rule(found: re.Match[str]) -> _Rule | None:
    if found["default"]:
        return None
    try:
        pattern = compile_pattern(found["pattern"], has_groups=True)
    except PatternRefused as error:
        raise RuleRefused(
            f"ssl.principal.mapping.rules: the pattern {found['pattern']!r} is refused: {error}"
        ) from error
    problem = bad_reference(found["replacement"], pattern)
    if problem is not None:
        raise RuleRefused(f"ssl.principal.mapping.rules: in {found[0]!r} {problem}")
    return _Rule(pattern, found["replacement"], found["case"])


def bad_reference(replacement: str, pattern: Pattern) -> str | None:
    """What is wrong with the `$n` of a replacement for `pattern`; None if nothing is."""
    for reference in _REFERENCE.finditer(replacement):
        number = reference["digits"]
        if number is not None and (not number or int(number[0]) > pattern.groups):
            return (
                f"{reference[0]!r} names none of the {pattern.groups} groups of the pattern; a "
                r"dollar sign is written \$"
            )
    return None


def expanded(replacement: str, groups: list[str]) -> str:
    """`replacement` with `$n` as Java reads it: as many digits as still name a group."""

    def part(found: re.Match[str]) -> str:
        if found["char"]:
            return found["char"]
        digits = found["digits"]
        end = len(digits)
        while int(digits[:end]) >= len(groups):
            end -= 1
        return groups[int(digits[:end])] + digits[end:]

    return _REFERENCE.sub(part, replacement)
