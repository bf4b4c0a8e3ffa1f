"""Names of certificates and of Kerberos principals by rules: Kafka's own classes and ours."""

import itertools
import subprocess
from pathlib import Path

import pytest

from broker.security.kerberos.names import LocalNames
from broker.security.kerberos.names import NoRuleMatches as NoLocalName
from broker.security.tls.principal_mapping import NoRuleMatches, PrincipalMapping, RuleRefused
from tests.compat.programs import jars
from tests.support import toolchains
from tests.unit.broker.security.test_kerberos_names import NAMES, REALM

BROKEN = ("default", "RULE:[1:$2]", "RULE:[1:$1]/X", "RULE:[:$1]", "RULE:[1:$1](()")
"""Kafka notices some of these when a principal comes."""

SUBJECTS = (
    "CN=kafka-1,OU=Devices,O=Example,C=DE",
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "O=Example\\, Inc.,CN=x",
    "CN=ops/admin,O=a",
    "CN=München",
    "CN=a",
    "",
)
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^CN=([^,]+).*$/$1/U",
    "RULE:CN=([^,]*),.*/$12-$0/",
    "RULE:CN=([^,]*).*/$1\\/x/",
    "RULE:^CN=([a-z]+)\\/([a-z]+),.*$/$2.$1/",
    "RULE:^.*CN=(a|x)?.*$/user-$1/",
    "RULE:CN=a/b",
    "RULE:CN=a/b/X",
    "RULE:CN=(/b/",
    "rule:CN=a/b/",
    "RULE:^CN=a$/fixed/  ",
    "  RULE:^CN=a$/fixed/",
)


def cases() -> list[tuple[str, str]]:
    pairs = (f"{one},{other}" for one, other in itertools.product(RULES, RULES))
    return [(rules, subject) for rules in (*RULES, *pairs) for subject in SUBJECTS]


def ours(rules: str, subject: str) -> str:
    try:
        return "=" + PrincipalMapping(rules).name_of(subject)
    except RuleRefused:
        return "refused"
    except NoRuleMatches:
        return "none"


def kafkas(program: str, arguments: list[str], lines: list[tuple[str, str]]) -> list[str]:
    """What Kafka's class answers to each line."""
    library = jars("kafka-clients")
    source = Path(__file__).parent / "applications" / f"{program}.java"
    classes = toolchains.java_classes([source], library)
    done = subprocess.run(
        [toolchains.java(), "-cp", f"{classes}:{library}/*", program, *arguments],
        input="".join(f"{rules}\t{name}\n" for rules, name in lines),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


@pytest.mark.jvm
def test_every_rule_names_every_subject_as_kafka_does() -> None:
    different = [
        (case, answer, ours(*case))
        for case, answer in zip(cases(), kafkas("PrincipalMapper", [], cases()), strict=True)
        if ours(*case) != answer
    ]
    assert different == []


def local_name(rules: str, principal: str) -> str:
    try:
        return "=" + LocalNames(rules.split(","), REALM).name_of(principal)
    except (RuleRefused, NoLocalName):
        return "none"


@pytest.mark.jvm
def test_every_rule_names_every_principal_as_kafka_does() -> None:
    own = [",".join(rules) for rules, _, _ in NAMES if rules]
    pairs = (f"{one},{other}" for one, other in itertools.product(own, own))
    principals = (
        *("Ann@EXAMPLE.COM", "ann@OTHER.COM", "ann/host@EXAMPLE.COM", "App.bob@OTHER.COM"),
        *("ServiceA/h@EXAMPLE.COM", "a/b/c@EXAMPLE.COM", "x@y@EXAMPLE.COM"),
    )
    asked = [(rules, name) for rules in (*own, *BROKEN, *pairs) for name in principals]
    different = [
        (case, answer, local_name(*case))
        for case, answer in zip(asked, kafkas("LocalNames", [REALM], asked), strict=True)
        if local_name(*case) != answer
    ]
    assert different == []
