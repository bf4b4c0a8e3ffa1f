"""Kerberos principals to names: Kafka's rules as data. `tests/compat` asks Kafka the same."""

import pytest

from broker.security.kerberos.names import LocalNames, NoRuleMatches
from broker.security.tls.principal_mapping import RuleRefused

REALM = "EXAMPLE.COM"

NAMES: tuple[tuple[list[str], str, str | None], ...] = (
    # rules, principal, name or None
    (["DEFAULT"], "ann@EXAMPLE.COM", "ann"),
    (["DEFAULT"], "ann/host.example.com@EXAMPLE.COM", "ann"),
    (["DEFAULT"], "ann@OTHER.COM", None),
    (["RULE:[1:$1]"], "ann@OTHER.COM", "ann"),
    (["RULE:[1:$1]"], "ann/host@OTHER.COM", None),
    (["RULE:[2:$1]"], "ann/host@OTHER.COM", "ann"),
    (["RULE:[2:$2.$1]"], "ann/host@OTHER.COM", "host.ann"),
    (["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//"], "ann@OTHER.COM", "ann"),
    (["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//"], "ann@THIRD.COM", None),
    (["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "bob@EXAMPLE.COM", "bob"),
    (["RULE:[1:$1](a.)"], "ann@EXAMPLE.COM", None),  # the whole text has to match
    (["RULE:[1:$1]/L"], "Ann@EXAMPLE.COM", "ann"),
    (["RULE:[1:$1]/U"], "Ann@EXAMPLE.COM", "ANN"),
    (["RULE:[1:$1]s/n/m/"], "ann@EXAMPLE.COM", "amn"),
    (["RULE:[1:$1]s/n/m/g"], "ann@EXAMPLE.COM", "amm"),
    (["RULE:[1:$1]s/(n)(n)/$2-$1/g/U"], "ann@EXAMPLE.COM", "AN-N"),
    (["RULE:[1:$1]s/x/y/"], "ann@EXAMPLE.COM", "ann"),
    (["RULE:[1:App.$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT"], "ann@OTHER.COM", "ann"),
    (["RULE:[2:$1](ServiceA|ServiceB)s/.*/svc/"], "ServiceB/h@EXAMPLE.COM", "svc"),
    (["RULE:[1:$1@$0]"], "ann@EXAMPLE.COM", None),  # not a simple name
    (["RULE:[2:$1/$2]"], "ann/h@EXAMPLE.COM", None),
    (["RULE:[3:$1]", "DEFAULT"], "ann@EXAMPLE.COM", "ann"),
    ([], "ann@EXAMPLE.COM", None),
)


@pytest.mark.parametrize(("rules", "principal", "name"), NAMES)
def test_names(rules: list[str], principal: str, name: str | None) -> None:
    names = LocalNames(rules, REALM)
    if name is None:
        with pytest.raises(NoRuleMatches):
            names.name_of(principal)
    else:
        assert names.name_of(principal) == name


@pytest.mark.parametrize(
    "principal",
    ["", "ann", "ann@", "@EXAMPLE.COM", "a/b/c@EXAMPLE.COM", "a@b@EXAMPLE.COM", "ad\\/min@A"],
)
def test_what_is_no_principal_has_no_name(principal: str) -> None:
    with pytest.raises(NoRuleMatches, match="is no principal of a user"):
        LocalNames(["DEFAULT"], REALM).name_of(principal)


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(NoRuleMatches, match=r"makes '' of ann@EXAMPLE\.COM"):
        LocalNames(["RULE:[1:$1]s/.*//"], REALM).name_of("ann@EXAMPLE.COM")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("default", "'default' is no rule; write DEFAULT or RULE"),
        ("RULE:[:$1]", "is no rule"),
        ("RULE:[1:$1]s/a/b", "is no rule"),
        ("RULE:[1:$1]/X", "is no rule"),
        ("RULE:[1:$2]", r"\$2 in .* names no part; write \$0 to \$1"),
        ("RULE:[1:$x]", r"\$ in .* names no part"),
        ("RULE:[1:$1](()", "'\\(' in .* is refused"),
        ("RULE:[1:$1]s/(?=a)/b/", "is refused"),
        ("RULE:[1:$1]s/a/$1/", r"'\$1' names none of the 0 groups"),
    ],
)
def test_a_rule_that_could_not_work_is_refused(rule: str, complaint: str) -> None:
    with pytest.raises(RuleRefused, match=complaint):
        LocalNames([rule], REALM)
