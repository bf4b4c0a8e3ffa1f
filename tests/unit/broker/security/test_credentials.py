"""Users' credentials: Kafka's refusals, all or nothing for each user, and documents."""

from collections import Counter
from collections.abc import Callable

import pytest

from broker.security.credentials import (
    Credentials,
    Deletion,
    UnreadableCredential,
    Upsertion,
    format_credential,
    parse_credential,
)
from broker.security.scram import ScramCredential, ScramMechanism, new_credential
from protocol.error_codes import ErrorCode

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SECRET = b"s" * 32


def upsertion(
    name: str = "alice", mechanism: int = SHA_512, iterations: int = 4096, salted: bytes = b"x" * 64
) -> Upsertion:
    return Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=salted,
    )


def with_users(*names: str) -> Credentials:
    documents = {
        f"SCRAM-SHA-512/{name}": format_credential(
            new_credential(SHA_512, name, iterations=4096, salt=b"salt")
        )
        for name in names
    }
    return Credentials(documents, secret=SECRET)


def codes(
    credentials: Credentials, deletions: list[Deletion], upsertions: list[Upsertion]
) -> dict[str, int]:
    plan = credentials.plan_alterations(deletions, upsertions)
    changed = {key.partition("/")[2] for key in plan.documents}
    assert changed == {outcome.name for outcome in plan.outcomes if outcome.code == 0}
    return {outcome.name: outcome.code for outcome in plan.outcomes}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(), ErrorCode.NONE),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(salted=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_what_may_be_set(change: Upsertion, code: int) -> None:
    assert codes(with_users(), [], [change]) == {change.name: code}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Deletion(name="alice", mechanism=SHA_512), ErrorCode.NONE),
        (Deletion(name="alice", mechanism=SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (Deletion(name="bob", mechanism=SHA_512), ErrorCode.RESOURCE_NOT_FOUND),
        (Deletion(name="", mechanism=SHA_512), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion(name="alice", mechanism=9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_may_be_removed(change: Deletion, code: int) -> None:
    assert codes(with_users("alice"), [change], []) == {change.name: code}


def test_a_user_has_one_change_per_request() -> None:
    twice = [upsertion(), upsertion(mechanism=SHA_256)]
    assert codes(with_users(), [], twice) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    gone = Deletion(name="alice", mechanism=SHA_512)
    assert codes(with_users("alice"), [gone], [upsertion()]) == {
        "alice": ErrorCode.DUPLICATE_RESOURCE
    }
    assert codes(with_users(), [gone], [upsertion()]) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert codes(with_users(), [], [*twice, upsertion("bob")])["bob"] == 0


def test_a_change_is_in_force_once_it_is_applied() -> None:
    credentials = with_users("alice")
    plan = credentials.plan_alterations(
        [Deletion(name="alice", mechanism=SHA_512)], [upsertion("bob")]
    )
    assert credentials.has_user("alice")
    assert not credentials.has_user("bob")
    credentials.apply(plan.documents)
    assert credentials.users() == {"bob": [(SHA_512, 4096)]}
    assert len(credentials) == 1


def test_passwords_are_checked_against_the_stronger_mechanism() -> None:
    credentials = with_users("alice")
    weak = format_credential(new_credential(SHA_256, "x", iterations=4096))
    credentials.apply({"SCRAM-SHA-256/alice": weak, "SCRAM-SHA-256/carol": weak})
    assert credentials.for_password("alice")[0] is SHA_512
    assert credentials.for_password("carol")[0] is SHA_256
    mechanism, unknown = credentials.for_password("nobody")
    assert unknown == credentials.of(mechanism, "nobody")


class TestNamesThatNobodyHas:
    """What a client sees or measures does not say that a user is unknown."""

    def shown(
        self, credentials: Credentials, mechanism: ScramMechanism
    ) -> Counter[tuple[int, int]]:
        found = (credentials.of(mechanism, f"stranger-{n}") for n in range(2000))
        return Counter((one.iterations, len(one.salt)) for one in found)

    def test_they_look_like_the_only_kind_of_user(self) -> None:
        credentials = with_users()
        assert self.shown(credentials, SHA_512) == {(4096, 24): 2000}
        assert credentials.for_password("nobody")[0] is SHA_512
        usual = format_credential(new_credential(SHA_256, "x", iterations=8192, salt=b"s" * 20))
        credentials.apply({"SCRAM-SHA-256/alice": usual})
        assert self.shown(credentials, SHA_256) == {(8192, 20): 2000}
        assert self.shown(credentials, SHA_512) == {(4096, 24): 2000}
        mechanism, unknown = credentials.for_password("nobody")
        assert (mechanism, unknown.iterations) == (SHA_256, 8192)
        credentials.apply({"SCRAM-SHA-256/alice": None})
        assert self.shown(credentials, SHA_256) == {(4096, 24): 2000}

    def test_they_look_like_the_kinds_there_are_as_often_as_users(self) -> None:
        documents = {
            f"SCRAM-SHA-512/user-{n}": format_credential(
                new_credential(SHA_512, "x", iterations=4096 if n < 5 else 8192, salt=b"s" * 24)
            )
            for n in range(20)
        }
        credentials = Credentials(documents, secret=SECRET)
        found = self.shown(credentials, SHA_512)
        assert 400 < found[4096, 24] < 600
        assert found[4096, 24] + found[8192, 24] == 2000
        assert credentials.of(SHA_512, "x") == credentials.of(SHA_512, "x")
        before = {n: credentials.of(SHA_512, f"stranger-{n}") for n in range(2000)}
        one_more = format_credential(new_credential(SHA_512, "x", iterations=4096, salt=b"s" * 24))
        credentials.apply({"SCRAM-SHA-512/new": one_more})
        moved = sum(credentials.of(SHA_512, f"stranger-{n}") != was for n, was in before.items())
        assert moved < 120


def test_documents() -> None:
    credential = new_credential(SHA_256, "x", iterations=8192)
    document = format_credential(credential)
    assert parse_credential("SCRAM-SHA-256/a/b", document) == (SHA_256, "a/b", credential)


@pytest.mark.parametrize(
    ("key", "document"),
    [
        ("SCRAM-SHA-256/", {"salt": "", "stored": "", "server": "", "iterations": 1}),
        ("MD5/alice", {"salt": "", "stored": "", "server": "", "iterations": 1}),
        ("SCRAM-SHA-256/alice", {"salt": "?", "stored": "", "server": "", "iterations": 1}),
        ("SCRAM-SHA-256/alice", {"salt": "", "stored": "", "server": "", "iterations": 0}),
        ("SCRAM-SHA-256/alice", {"salt": ""}),
        ("SCRAM-SHA-256/alice", None),
    ],
)
def test_what_is_no_credential_refuses_the_start(key: str, document: object) -> None:
    with pytest.raises(UnreadableCredential, match="unreadable"):
        Credentials({key: document}, secret=SECRET)


@pytest.mark.parametrize(
    "look_up",
    [lambda known, name: known.of(SHA_512, name), lambda known, name: known.for_password(name)],
)
def test_a_look_up_frees_as_much_for_a_known_user_as_for_an_unknown_one(
    look_up: Callable[[Credentials, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is freed takes time: it must not say whether there is such a user."""
    freed = 0

    class Counted(ScramCredential):
        def __del__(self) -> None:
            nonlocal freed
            freed += 1

    def decoy(*_: object) -> ScramCredential:
        return Counted(salt=b"salt", stored_key=b"s", server_key=b"v", iterations=4096)

    monkeypatch.setattr("broker.security.credentials.unknown_user_credential", decoy)
    credentials = with_users("alice")
    look_up(credentials, "before")
    counts = []
    for name in ("alice", "eve", "eve", "alice", "alice"):
        before = freed
        found = look_up(credentials, name)  # kept, as an exchange keeps it until its end
        counts.append(freed - before)
        del found
    assert counts == [1] * 5
