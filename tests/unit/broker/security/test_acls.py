"""Access rules: decisions against brute force, filters, and rules that cannot be."""

import itertools
import os
import random

import pytest

from broker.principal import ANONYMOUS, Principal, parse_principal, user
from broker.security import acls
from broker.security.acls import Access, complaint_about, format_acl, parse_acl
from protocol.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

TOPIC = ResourceType.TOPIC
ALICE, BOB = user("alice"), user("bob")


def acl(
    name: str = "t",
    *,
    to: str = "User:alice",
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, to, host, operation, permission)


def may(access: Access, operation: Operation, name: str = "t", who: Principal = ALICE) -> bool:
    return access.allows(who, "127.0.0.1", operation, TOPIC, name)


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not may(Access(), Operation.DESCRIBE)
    assert may(Access(allow_if_no_acl=True), Operation.DESCRIBE)


def test_a_rule_of_another_user_ends_the_default() -> None:
    for other in (acl(to="User:bob"), acl("*", to="User:bob"), acl("", to="User:bob")):
        access = Access([other], allow_if_no_acl=True)
        expected = other.name == ""
        assert may(access, Operation.READ) is expected
    assert may(Access([acl("u")], allow_if_no_acl=True), Operation.READ)


def test_super_users_pass_every_deny() -> None:
    deny = acl("*", to="User:*", operation=Operation.ALL, permission=Permission.DENY)
    access = Access([deny], super_users=[ALICE])
    assert may(access, Operation.DELETE)
    assert not may(access, Operation.DELETE, who=BOB)


def test_a_prefixed_deny_beats_a_literal_allow() -> None:
    access = Access(
        [
            acl("team.a"),
            acl("team.", permission=Permission.DENY, pattern=PatternType.PREFIXED),
        ]
    )
    assert not may(access, Operation.READ, "team.a")
    assert may(access, Operation.DESCRIBE, "team.a")


def test_addresses_compare_however_they_are_written() -> None:
    access = Access([acl(host="0:0:0:0:0:0:0:1"), acl("u", host="10.0.0.1")])
    assert access.allows(ALICE, "::1", Operation.READ, TOPIC, "t")
    assert access.allows(ALICE, "::ffff:10.0.0.1", Operation.READ, TOPIC, "u")
    assert not access.allows(ALICE, "10.0.0.2", Operation.READ, TOPIC, "u")
    deny = acl(host="fe80:0:0:0:0:0:0:1%eth0", permission=Permission.DENY)
    assert not Access([acl(), deny]).allows(ALICE, "fe80::1", Operation.READ, TOPIC, "t")
    assert not Access([acl(host="10.0.0.0/8")]).allows(
        ALICE, "10.0.0.1", Operation.READ, TOPIC, "t"
    )


def test_every_user_is_also_the_anonymous_one() -> None:
    assert may(Access([acl(to="User:*")]), Operation.READ, who=ANONYMOUS)
    assert not may(Access([acl(to="User:*")]), Operation.READ, who=Principal("Group", "x"))


def test_decisions_equal_brute_force() -> None:
    """`ACL_DECISIONS=1000000` makes more of them, of other rules."""
    wanted = int(os.environ.get("ACL_DECISIONS", "50000"))
    rng = random.Random(wanted)
    names = ["a", "ab", "abc", "b", "*"]
    made = 0
    while made < wanted:
        rules = [
            acl(
                rng.choice(names),
                to=rng.choice(["User:alice", "User:bob", "User:ANONYMOUS", "User:*"]),
                operation=rng.choice(
                    [Operation.ALL, Operation.READ, Operation.ALTER_CONFIGS, Operation.DESCRIBE]
                ),
                permission=rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
                pattern=rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                host=rng.choice(["*", "10.0.0.1", "::1"]),
            )
            for _ in range(rng.choice([rng.randrange(8), rng.randrange(41)]))
        ]
        default = rng.random() < 0.3
        access = Access(rules, allow_if_no_acl=default)
        for who, host, name, operation in itertools.product(
            (ALICE, BOB, ANONYMOUS),
            ("10.0.0.1", "10.0.0.2", "::1"),
            ("a", "ab", "abcd", "b", "c"),
            (
                Operation.READ,
                Operation.DESCRIBE,
                Operation.DESCRIBE_CONFIGS,
                Operation.ALTER_CONFIGS,
            ),
        ):
            expected = _brute_force(rules, who, host, operation, name, default=default)
            made += 1
            for _ in range(2):  # the second time from the kept decisions
                assert access.allows(who, host, operation, TOPIC, name) is expected


def test_rules_put_in_force_one_by_one_decide_like_those_from_the_start() -> None:
    rng = random.Random(11)
    names = ["a", "ab", "abc", "b", "*"]
    pool = [
        acl(name, to=to, permission=permission, pattern=pattern, host=host)
        for name, to, permission, pattern, host in itertools.product(
            names,
            ("User:alice", "User:*"),
            (Permission.ALLOW, Permission.DENY),
            (PatternType.LITERAL, PatternType.PREFIXED),
            ("*", "10.0.0.1"),
        )
    ]
    changed = Access()
    for _ in range(2_000):
        some = rng.sample(pool, rng.randrange(4))
        (changed.add if rng.random() < 0.4 else changed.remove)(some)
        fresh = Access(changed)
        assert len(fresh) == len(changed)
        for who, name in itertools.product((ALICE, BOB), ("a", "abcd", "b", "c", "*")):
            asked = (who, "10.0.0.1", Operation.READ, TOPIC, name)
            assert changed.allows(*asked) is fresh.allows(*asked)
        any_of = (ALICE, "10.0.0.1", Operation.READ, TOPIC)
        assert changed.allows_any(*any_of) is fresh.allows_any(*any_of)


def test_a_change_looks_at_the_rules_that_change_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def count(text: str) -> object:
        nonlocal looked_at
        looked_at += 1
        return text

    monkeypatch.setattr(acls, "_address", count)
    access = Access()
    rules = [acl(f"t{number}") for number in range(300)]
    for rule in rules:
        access.add([rule])
    for rule in rules:
        access.remove([rule])
    assert looked_at == len(rules)
    assert not len(access)


def _brute_force(
    rules: list[Acl], who: Principal, host: str, operation: int, name: str, *, default: bool
) -> bool:
    about = [
        rule
        for rule in rules
        if (rule.pattern == PatternType.LITERAL and rule.name in (name, "*"))
        or (rule.pattern == PatternType.PREFIXED and name.startswith(rule.name))
    ]
    mine = [
        rule
        for rule in about
        if rule.principal in (str(who), "User:*") and rule.host in ("*", host)
    ]
    if any(
        rule.permission == Permission.DENY and rule.operation in (Operation.ALL, operation)
        for rule in mine
    ):
        return False
    implying = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        implying |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        implying |= {Operation.ALTER_CONFIGS}
    if any(r.permission == Permission.ALLOW and r.operation in implying for r in mine):
        return True
    return default and not about


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([acl(operation=Operation.WRITE)], True),
        ([acl(operation=Operation.READ)], False),
        ([acl("*", operation=Operation.ALL)], True),
        ([acl("t", operation=Operation.WRITE), ("deny", "t", PatternType.LITERAL)], False),
        ([acl("t", operation=Operation.WRITE), ("deny", "u", PatternType.LITERAL)], True),
        ([acl("tt", operation=Operation.WRITE), ("deny", "t", PatternType.PREFIXED)], False),
        ([acl("*", operation=Operation.WRITE), ("deny", "t", PatternType.PREFIXED)], True),
        ([acl("*", operation=Operation.WRITE), ("deny", "*", PatternType.LITERAL)], False),
    ],
)
def test_a_right_on_any_name(rules: list[object], expected: bool) -> None:
    built = [
        rule
        if isinstance(rule, Acl)
        else acl(
            rule[1],  # type: ignore[index]
            pattern=rule[2],  # type: ignore[index]
            operation=Operation.WRITE,
            permission=Permission.DENY,
        )
        for rule in rules
    ]
    access = Access(built)
    assert access.allows_any(ALICE, "127.0.0.1", Operation.WRITE, TOPIC) is expected


def test_removing_a_rule_takes_effect_at_once() -> None:
    access = Access([acl()])
    assert may(access, Operation.READ)
    access.remove([acl()])
    assert not may(access, Operation.READ)
    access.add([acl()])
    assert may(access, Operation.READ)


def test_decisions_are_kept_for_a_request_and_forgotten_with_a_change() -> None:
    access = Access([acl()])
    kept = access.decided(ALICE, "127.0.0.1")
    assert may(access, Operation.READ)
    question = Operation.READ, TOPIC, "t"
    assert kept == {question: True}
    access.remove([acl()])
    assert kept == {question: True}
    assert not may(access, Operation.READ)
    assert access.decided(ALICE, "127.0.0.1") == {question: False}


def test_random_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "DECISIONS_KEPT", 10)
    access = Access([acl("t", pattern=PatternType.PREFIXED)])
    for number in range(35):
        who = user(f"u{number % 3}")
        assert not may(access, Operation.READ, f"t{number}", who)
        assert may(access, Operation.READ, f"t{number}")
        assert sum(len(access.decided(one, "127.0.0.1")) for one in (ALICE, who)) <= 10


def test_filters() -> None:
    literal, wildcard = acl("team.a"), acl("*")
    prefixed = acl("team.", pattern=PatternType.PREFIXED)
    access = Access([literal, wildcard, prefixed])
    match = AclFilter(name="team.a", pattern=PatternType.MATCH)
    assert access.select(match) == [literal, wildcard, prefixed]
    assert access.select(AclFilter(name="team.", pattern=PatternType.ANY)) == [prefixed]
    assert access.select(AclFilter(pattern=PatternType.LITERAL)) == [literal, wildcard]
    assert access.select(AclFilter(principal="User:bob")) == []
    assert AclFilter(operation=0).complaint() is not None
    assert AclFilter().complaint() is None


@pytest.mark.parametrize(
    "bad",
    [
        acl(""),
        acl(to="alice"),
        acl(kind=ResourceType.CLUSTER),
        acl(kind=ResourceType.ANY),
        acl(operation=Operation.ANY),
        acl(permission=Permission.ANY),
        acl(pattern=PatternType.MATCH),
    ],
)
def test_rules_that_cannot_be(bad: Acl) -> None:
    assert complaint_about(bad) is not None
    with pytest.raises(ValueError, match="not an access rule"):
        parse_acl(format_acl(bad))


def test_documents_of_rules() -> None:
    for good in (acl(), acl(CLUSTER_NAME, kind=ResourceType.CLUSTER), acl("a b/..")):
        assert complaint_about(good) is None
        assert parse_acl(format_acl(good)) == good


def test_bit_fields_are_kafkas() -> None:
    access = Access([acl(operation=Operation.READ)])
    assert access.bits(ALICE, "127.0.0.1", TOPIC, "t") == 264
    everything = Access([], super_users=[ALICE])
    assert everything.bits(ALICE, "h", TOPIC, "t") == 3576
    assert everything.bits(ALICE, "h", ResourceType.GROUP, "g") == 3400
    assert everything.bits(ALICE, "h", ResourceType.CLUSTER, CLUSTER_NAME) == 8096


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_principals_have_a_type_and_a_name(text: str) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        parse_principal(text)
    assert parse_principal("User:CN=a,O=b:c") == user("CN=a,O=b:c")
