"""Kerberos principals to names of users, by the rules of `sasl.kerberos.principal.to.local.rules`.

    RULE:[1:$1@$0](.*@PLANT.EXAMPLE)s/@.*///L, DEFAULT

A principal is `service/host@REALM` or `user@REALM`. A rule is for principals with `n` parts in
front of the realm: `[n:format]` writes the text to work on (`$0` is the realm, `$1` and `$2` the
parts), `(pattern)` has to match all of it, and `s/pattern/replacement/` replaces the first match,
with `g` all of them. `/L` and `/U` change the letters' case. The first rule that applies gives the
name. `DEFAULT` is the first part of a principal of the broker's own realm. A principal that no rule
names is refused, and so is a name that still has a `/` or `@`.

Patterns are RE2's, so that none takes forever.

Differs from Kafka: a rule that names a part or a group which does not exist is refused at start;
there it fails when a principal comes. Patterns have no look-around and no back-references.

Source: Kafka `KerberosName`, `KerberosShortNamer`, `KerberosRule`.
"""

import re
from collections.abc import Iterable
from typing import Final

from broker.security.tls.principal_mapping import CASES, RuleRefused, bad_reference, expanded
from protocol.patterns import Pattern, PatternRefused, compile_pattern
from values.dataclasses import dataclass

_SETTING: Final = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL: Final = re.compile(r"(?P<first>[^/@\\]+)(?:/(?P<second>[^/@\\]+))?@(?P<realm>[^/@\\]+)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<parts>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g?))?/?(?P<case>[LU]?)"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")


class NoRuleMatches(ValueError):
    """No rule gives this principal a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    parts: int
    format: str
    match: Pattern | None
    replaced: Pattern | None
    replacement: str
    is_global: bool
    case: str

    def name_of(self, parts: list[str]) -> str | None:
        """The name for a principal, its realm first; None if the rule is not for it."""
        if len(parts) - 1 != self.parts:
            return None
        text = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and not self.match.matches(text):
            return None
        if self.replaced is not None:
            text = self.replaced.replace(
                text, lambda groups: expanded(self.replacement, groups), once=not self.is_global
            )
        return CASES[self.case](text)


class LocalNames:
    """The rules of one listener, in order; None stands for DEFAULT."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        """Read the rules; `default_realm` is the broker's own.

        Raises:
            RuleRefused: one of them is no rule.
        """
        self._realm = default_realm
        self._rules = [None if text == "DEFAULT" else _rule(text) for text in rules]

    def name_of(self, principal: str) -> str:
        """The name of the user with this principal.

        Raises:
            NoRuleMatches: no rule names it, or the name is not a simple one.
        """
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise NoRuleMatches(f"{principal} is no principal of a user")
        parts: list[str] = [found["realm"], found["first"], *filter(None, [found["second"]])]
        for rule in self._rules:
            if rule is None:
                name = parts[1] if parts[0] == self._realm else None
            else:
                name = rule.name_of(parts)
            if name is not None:
                if not name or re.search("[/@]", name):
                    raise NoRuleMatches(f"a rule of {_SETTING} makes {name!r} of {principal}")
                return name
        raise NoRuleMatches(f"no rule of {_SETTING} names {principal}")


def _rule(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise RuleRefused(
            f"{_SETTING}: {text!r} is no rule; write DEFAULT or RULE:[n:format](pattern)"
            "s/pattern/replacement/g, with /L or /U at the end for the letters' case"
        )
    parts = int(found["parts"])
    for number in _PARAMETER.findall(found["format"]):
        if not number or int(number) > parts:
            raise RuleRefused(
                f"{_SETTING}: ${number} in {text!r} names no part; write $0 to ${parts}"
            )
    replaced, replacement = _pattern(found["from"], text), found["to"] or ""
    problem = bad_reference(replacement, replaced) if replaced is not None else None
    if problem is not None:
        raise RuleRefused(f"{_SETTING}: in {text!r} {problem}")
    return _Rule(
        parts=parts,
        format=found["format"],
        match=_pattern(found["match"], text),
        replaced=replaced,
        replacement=replacement,
        is_global=bool(found["all"]),
        case=found["case"],
    )


def _pattern(pattern: str | None, rule: str) -> Pattern | None:
    try:
        return None if pattern is None else compile_pattern(pattern, has_groups=True)
    except PatternRefused as error:
        raise RuleRefused(f"{_SETTING}: {pattern!r} in {rule!r} is refused: {error}") from error
