"""Names of certificates by rules: Kafka's own class and ours, line by line."""

import itertools
import subprocess
from pathlib import Path

import pytest

from broker.security.principal_mapping import NoRuleMatches, PrincipalMapping, RuleRefused
from tests.compat.programs import jars
from tests.support import toolchains

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


@pytest.mark.jvm
def test_every_rule_names_every_subject_as_kafka_does() -> None:
    library = jars("kafka-clients")
    source = Path(__file__).parent / "applications" / "PrincipalMapper.java"
    classes = toolchains.java_classes([source], library)
    done = subprocess.run(
        [toolchains.java(), "-cp", f"{classes}:{library}/*", "PrincipalMapper"],
        input="".join(f"{rules}\t{subject}\n" for rules, subject in cases()),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(cases())
    different = [
        (case, answer, ours(*case))
        for case, answer in zip(cases(), theirs, strict=True)
        if ours(*case) != answer
    ]
    assert different == []
