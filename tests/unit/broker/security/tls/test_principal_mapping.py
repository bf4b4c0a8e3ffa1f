"""Names of users from names of certificates; `tests.compat` compares more of them with Kafka."""

import pytest

from broker.security.tls.principal_mapping import NoRuleMatches, PrincipalMapping, RuleRefused

SUBJECT = "CN=Device-7,OU=Devices,O=Example"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),.*$/$1/", "Device-7"),
        ("RULE:^CN=(.*?),.*$/$1/L", "device-7"),
        ("RULE:^CN=(.*?),.*$/$1/U", "DEVICE-7"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2.$1/", "Devices.Device-7"),
        ("RULE:CN=x/y/, RULE:^CN=(.*?),.*$/$12/ ,DEFAULT", "Device-72"),
        ("RULE:^CN=(.*?),.*$/\\$1\\/$0/", f"$1/{SUBJECT}"),
        ("RULE:CN=x/y/,DEFAULT", SUBJECT),
        ("RULE:CN=(z)?.*/a$1b/", "ab"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(rules: str, name: str) -> None:
    assert PrincipalMapping(rules).name_of(SUBJECT) == name


@pytest.mark.parametrize("rules", ["RULE:CN=Device/x/", "RULE:.*(y)?$/$1/"])
def test_a_certificate_without_a_name_is_refused(rules: str) -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalMapping(rules).name_of(SUBJECT)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("", "empty"),
        ("default", "is no rule"),
        ("RULE:a/b", "is no rule"),
        ("RULE:a/b/X", "is no rule"),
        ("DEFAULT RULE:a/b/", "is no rule"),
        ("RULE:(/b/", "missing"),
        ("RULE:(?=a)/b/", "refused"),
        (r"RULE:(a)\1/b/", "refused"),
        ("RULE:(a)/$2/", "none of the 1 groups"),
        ("RULE:(a)/$x/", "none of the 1 groups"),
    ],
)
def test_what_is_no_rule_is_explained(rules: str, complaint: str) -> None:
    with pytest.raises(RuleRefused, match=complaint):
        PrincipalMapping(rules)


def test_no_subject_takes_long() -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalMapping("RULE:(CN=)?((a+)+)+$/x/").name_of("CN=" + "a" * 20_000 + "!")
