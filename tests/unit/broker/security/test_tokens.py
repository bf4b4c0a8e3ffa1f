"""Delegation tokens by themselves: lifetimes, who may change them, and what is kept."""

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any

import pytest

from broker.principal import Principal, user
from broker.security.mechanism import AuthenticationFailed
from broker.security.scram import ScramExchange, ScramMechanism, unknown_user_credential
from broker.security.tokens import RENEWERS_MAX, TOKENS_MAX, Token, TokenRefused, Tokens
from protocol.error_codes import ErrorCode
from tests.unit.broker.security.test_scram import Client

ANN, BOB, CARL = user("ann"), user("bob"), user("carl")
NOW, LONGEST, EXPIRY = 1_000_000, 10_000, 4_000
FOR_EVER = 2**63 - 1


class Journal:
    """Keeps documents as the journal does: as JSON."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.fails = False

    def keep(self, changes: Mapping[str, Any]) -> None:
        if self.fails:
            raise OSError("no space left")
        for key, document in changes.items():
            if document is None:
                del self.documents[key]
            else:
                self.documents[key] = json.loads(json.dumps(document))

    def tokens(self, secret_key: str = "key", longest: int = LONGEST) -> Tokens:
        return Tokens(
            self.documents,
            self.keep,
            secret_key=secret_key,
            max_lifetime_ms=longest,
            expiry_time_ms=EXPIRY,
        )


@pytest.fixture
def journal() -> Journal:
    return Journal()


def made(tokens: Tokens, *renewers: Principal, lifetime_ms: int = -1, now_ms: int = NOW) -> Token:
    return tokens.create(
        owner=BOB, requester=ANN, renewers=renewers, max_lifetime_ms=lifetime_ms, now_ms=now_ms
    )


def refused(call: Any) -> ErrorCode:
    with pytest.raises(TokenRefused) as raised:
        call()
    return raised.value.code


@pytest.mark.parametrize(
    ("lifetime_ms", "expires_ms", "max_ms"),
    [
        (-1, EXPIRY, LONGEST),
        (0, EXPIRY, LONGEST),
        (1, 1, 1),
        (EXPIRY, EXPIRY, EXPIRY),
        (EXPIRY + 1, EXPIRY, EXPIRY + 1),
        (LONGEST + 1, EXPIRY, LONGEST),
        (FOR_EVER, EXPIRY, LONGEST),
    ],
)
def test_the_lifetime(journal: Journal, lifetime_ms: int, expires_ms: int, max_ms: int) -> None:
    token = made(journal.tokens(), lifetime_ms=lifetime_ms)
    assert (token.expires_ms - NOW, token.max_ms - NOW) == (expires_ms, max_ms)


def test_no_id_looks_like_an_option_of_a_command(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tidelog token renew -AbC...` would be refused: one id of 64 began so."""
    given = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x04" + bytes(15)])
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(given))
    assert made(journal.tokens()).id == "BAAAAAAAAAAAAAAAAAAAAA"


def test_times_do_not_overflow(journal: Journal) -> None:
    tokens = journal.tokens(longest=FOR_EVER)
    token = made(tokens)
    assert token.max_ms == FOR_EVER
    secret = tokens.secret_of(token.id)
    assert tokens.expire(secret, FOR_EVER, by=BOB, now_ms=NOW).expires_ms == FOR_EVER


def test_a_restart_keeps_tokens_and_their_secrets(journal: Journal) -> None:
    before = journal.tokens()
    tokens = [made(before), made(before, CARL)]
    after = journal.tokens()
    assert list(after) == tokens
    assert [after.secret_of(t.id) for t in tokens] == [before.secret_of(t.id) for t in tokens]
    assert len(before.secret_of(tokens[0].id)) == 64


def test_the_journal_has_no_secret(journal: Journal) -> None:
    tokens = journal.tokens()
    secret = tokens.secret_of(made(tokens).id)
    tokens.credential(ScramMechanism.SCRAM_SHA_256, next(iter(tokens)).id)
    kept = json.dumps(journal.documents)
    assert base64.b64encode(secret).decode() not in kept
    assert secret.hex() not in kept
    assert "salt" not in kept


def test_another_key_makes_tokens_worthless(journal: Journal) -> None:
    old = journal.tokens()
    secret = old.secret_of(made(old).id)
    other = journal.tokens("other key")
    assert refused(lambda: other.renew(secret, -1, by=BOB, now_ms=NOW)) == (
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    )


def test_without_a_key_everything_is_off(journal: Journal) -> None:
    made(journal.tokens())
    off = journal.tokens("")
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert refused(lambda: made(off)) == code
    assert refused(lambda: off.renew(b"", 1, by=BOB, now_ms=NOW)) == code
    assert refused(lambda: off.expire(b"", 1, by=BOB, now_ms=NOW)) == code
    assert not off.are_enabled


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_an_unknown_id_looks_like_that_of_a_token(
    journal: Journal, mechanism: ScramMechanism
) -> None:
    """Before there is a token of the id, while there is one, and after it was removed."""
    tokens = journal.tokens()
    token = made(tokens)
    live, bearer = tokens.credential(mechanism, token.id)
    assert bearer == (BOB, token.expires_ms)
    tokens.expire(tokens.secret_of(token.id), -1, by=BOB, now_ms=NOW)
    for unknown_to in (tokens, Journal().tokens()):
        unknown, bearer = unknown_to.credential(mechanism, token.id)
        assert bearer is None
        assert (unknown.iterations, unknown.salt) == (live.iterations, live.salt)
        assert len(unknown.stored_key) == len(live.stored_key)
        assert unknown.stored_key != live.stored_key
    other, _ = tokens.credential(mechanism, "another id")
    assert (other.iterations, len(other.salt)) == (live.iterations, len(live.salt))
    assert other.salt != live.salt


class TestChanges:
    def test_owner_and_renewers_only(self, journal: Journal) -> None:
        tokens = journal.tokens()
        secret = tokens.secret_of(made(tokens, CARL).id)
        for principal in (BOB, CARL):
            assert tokens.renew(secret, 10, by=principal, now_ms=NOW).expires_ms == NOW + 10
            assert tokens.expire(secret, 20, by=principal, now_ms=NOW).expires_ms == NOW + 20
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        # The one who asked for it is neither.
        for stranger in (ANN, Principal("Group", "bob")):
            for call in (tokens.renew, tokens.expire):
                assert (
                    refused(lambda c=call, s=stranger: c(secret, 1, by=s, now_ms=NOW)) == mismatch
                )
            assert (
                refused(lambda s=stranger: tokens.expire(secret, -1, by=s, now_ms=NOW)) == mismatch
            )
        assert len(list(tokens)) == 1

    def test_renewal_is_bounded_by_both_lifetimes(self, journal: Journal) -> None:
        tokens = journal.tokens()
        secret = tokens.secret_of(made(tokens).id)
        late = NOW + EXPIRY
        assert tokens.renew(secret, FOR_EVER, by=BOB, now_ms=late).expires_ms == late + EXPIRY
        late += EXPIRY
        assert tokens.renew(secret, -1, by=BOB, now_ms=late).expires_ms == NOW + LONGEST

    def test_an_expired_one_can_only_be_removed(self, journal: Journal) -> None:
        tokens = journal.tokens()
        secret = tokens.secret_of(made(tokens, CARL).id)
        last = NOW + EXPIRY
        tokens.renew(secret, 0, by=BOB, now_ms=NOW)
        tokens.expire(secret, EXPIRY, by=BOB, now_ms=NOW)
        assert not next(iter(tokens)).has_expired(last)
        expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert refused(lambda: tokens.renew(secret, 1, by=ANN, now_ms=last + 1)) == expired
        assert refused(lambda: tokens.expire(secret, 1, by=BOB, now_ms=last + 1)) == expired
        assert tokens.expire(secret, -1, by=CARL, now_ms=last + 1).expires_ms == last + 1
        assert (len(list(tokens)), journal.documents) == (0, {})
        not_found = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert refused(lambda: tokens.expire(secret, -1, by=BOB, now_ms=NOW)) == not_found

    def test_a_failed_write_changes_nothing(self, journal: Journal) -> None:
        tokens = journal.tokens()
        token = made(tokens)
        secret = tokens.secret_of(token.id)
        journal.fails = True
        for call in (
            lambda: made(tokens),
            lambda: tokens.renew(secret, 1, by=BOB, now_ms=NOW),
            lambda: tokens.expire(secret, -1, by=BOB, now_ms=NOW),
            lambda: tokens.remove_expired(NOW + LONGEST),
        ):
            with pytest.raises(OSError, match="no space"):
                call()
        assert list(tokens) == [token]


def test_expired_tokens_are_removed(journal: Journal) -> None:
    tokens = journal.tokens()
    brief, lasting = made(tokens, lifetime_ms=10), made(tokens)
    assert tokens.remove_expired(NOW + 10) == []
    assert tokens.remove_expired(NOW + 11) == [brief]
    assert list(tokens) == list(journal.tokens()) == [lasting]


def test_limits(journal: Journal) -> None:
    tokens = journal.tokens()
    policy = ErrorCode.POLICY_VIOLATION
    many = [user(str(number)) for number in range(RENEWERS_MAX + 1)]
    assert refused(lambda: made(tokens, *many)) == policy
    assert len(made(tokens, *many[1:], *many[1:]).renewers) == RENEWERS_MAX
    for _ in range(TOKENS_MAX - 1):
        last = made(tokens)
    assert refused(lambda: made(tokens)) == policy
    assert refused(lambda: made(journal.tokens())) == policy
    tokens.expire(tokens.secret_of(last.id), -1, by=BOB, now_ms=NOW)
    made(tokens)
    group = Principal("Group", "x")
    assert refused(lambda: made(tokens, group)) == ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"owner": "User:bob"},
        {"owner": ["User"], "requester": ["User", "a"], "renewers": []},
        {
            "owner": ["User", "b"], "requester": ["User", "a"], "renewers": [1],
            "issued_ms": 1, "expires_ms": 1, "max_ms": 1,
        },
    ],
)  # fmt: skip
def test_an_unreadable_document_is_named(journal: Journal, document: Any) -> None:
    journal.documents["some-id"] = document
    with pytest.raises(ValueError, match="delegation token 'some-id'"):
        journal.tokens()


class TestLogin:
    @pytest.fixture(params=list(ScramMechanism))
    def mechanism(self, request: pytest.FixtureRequest) -> ScramMechanism:
        assert isinstance(request.param, ScramMechanism)
        return request.param

    def log_in(
        self,
        tokens: Tokens,
        mechanism: ScramMechanism,
        name: str,
        secret: bytes,
        extension: str = ",tokenauth=true",
    ) -> Any:
        def unknown(of: ScramMechanism, who: str) -> Any:
            return unknown_user_credential(of, who, bytes(32), 4096, 16)

        exchange = ScramExchange(mechanism, unknown, tokens.credential)
        client = Client(name, base64.b64encode(secret).decode(), mechanism)
        client.bare += extension
        return exchange.step(client.final(exchange.step(client.first()).token))

    def test_the_bearer_is_the_owner_until_the_token_expires(
        self, journal: Journal, mechanism: ScramMechanism
    ) -> None:
        tokens = journal.tokens()
        token = made(tokens)
        for extension in (",tokenauth=true", ",x=y,tokenauth=TRUE"):
            step = self.log_in(tokens, mechanism, token.id, tokens.secret_of(token.id), extension)
            assert (step.principal, step.is_by_token) == (BOB, True)
            assert step.expires_ms == token.expires_ms

    @pytest.mark.parametrize(
        "case", ["wrong secret", "unknown id", "no extension", "extension is false", "removed"]
    )
    def test_nothing_else_opens_a_session(
        self, journal: Journal, mechanism: ScramMechanism, case: str
    ) -> None:
        tokens = journal.tokens()
        token = made(tokens)
        name, secret, extension = token.id, tokens.secret_of(token.id), ",tokenauth=true"
        if case == "wrong secret":
            secret = secret[1:]
        elif case == "unknown id":
            name = "bob"
        elif case == "no extension":
            extension = ""
        elif case == "extension is false":
            extension = ",tokenauth=false"
        else:
            self.log_in(tokens, mechanism, name, secret)
            tokens.expire(secret, -1, by=BOB, now_ms=NOW)
        with pytest.raises(AuthenticationFailed, match="credentials"):
            self.log_in(tokens, mechanism, name, secret, extension)

    def test_where_tokens_are_off_the_extension_is_refused(self) -> None:
        exchange = ScramExchange(ScramMechanism.SCRAM_SHA_512, unknown_user_credential)  # type: ignore[arg-type]
        with pytest.raises(AuthenticationFailed, match="off"):
            exchange.step(b"n,,n=id,r=abc,tokenauth=true")
