"""Delegation tokens: secrets that let a process act as a user without that user's password.

A token has a random id; its secret is an HMAC of the id with `delegation.token.secret.key`. The
bearer logs in with SCRAM, the id as the name and the secret in base64 as the password, and is then
the token's *owner*. The owner and the *renewers* may make the token expire later, up to its longest
lifetime, or earlier. An expired token admits no login, and the sessions that it opened end.

A document of the metadata journal has the kind `token` and the token's id as its key. It has no
secret in it. So another key in the settings makes every token worthless, as in Kafka.

Differs from Kafka, which bounds none of them: a user has at most `TOKENS_MAX` tokens, with at most
`RENEWERS_MAX` renewers each, whose names have at most `NAME_MAX` characters.

Source: KIP-48, KIP-373; Kafka `DelegationTokenControlManager`, `DelegationTokenManager`.
"""

import base64
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from broker.principal import USER_TYPE, Principal, user
from broker.security.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    Bearer,
    ScramCredential,
    ScramMechanism,
    new_credential,
    unknown_user_credential,
)
from config.values import INT64_MAX
from protocol.error_codes import ErrorCode
from storage.directory.metadata import Json
from storage.disk.checkpoints import format_uuid, random_uuid
from values.dataclasses import dataclass

KIND_TOKEN: Final = "token"
TOKENS_MAX: Final = 1_000
"""Tokens that one user may have asked for and that have not been removed."""

NAME_MAX: Final = 512
"""Characters in the name of an owner or a renewer."""

RENEWERS_MAX: Final = 100
NO_TIME: Final = -1
"""The times in an answer to a client that may not ask."""

_HASH: Final = "sha512"

Keep = Callable[[Mapping[str, Json]], None]
"""Makes documents durable, all or none, by id of their token; None removes one."""


class TokenRefused(Exception):
    """A request about a token is refused.

    Attributes:
        code: the error code of the answer.
    """

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token, without its secret. Times are milliseconds of the wall clock.

    Attributes:
        id: the name that its bearer logs in with.
        owner: who the bearer is.
        requester: who asked for it.
        renewers: who may change its expiry, besides the owner.
        issued_ms: when it was made.
        expires_ms: the last moment at which it is valid.
        max_ms: the bound of `expires_ms`.
    """

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether `principal` is its owner or a renewer."""
        return principal == self.owner or principal in self.renewers

    def is_known_to(self, principal: Principal) -> bool:
        """Whether `principal` is its owner, a renewer, or asked for it."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def has_expired(self, now_ms: int) -> bool:
        """Whether it admits no login any more."""
        return self.expires_ms < now_ms


class Tokens:
    """The tokens of one broker. Loop thread only."""

    def __init__(
        self,
        documents: Mapping[str, Json],
        keep: Keep,
        *,
        secret_key: str,
        max_lifetime_ms: int,
        expiry_time_ms: int,
    ) -> None:
        """Index the documents of the journal.

        Args:
            documents: those of the kind `token`, by id.
            keep: makes a change durable.
            secret_key: derives the secrets of all tokens; empty turns tokens off.
            max_lifetime_ms: the longest lifetime of a token.
            expiry_time_ms: the time after which a token expires unless it is renewed.

        Raises:
            ValueError: a document is no token; the message names its key.
        """
        self._keep = keep
        self._key = secret_key.encode()
        self._max_lifetime_ms = max_lifetime_ms
        self._expiry_time_ms = expiry_time_ms
        self._known: dict[str, Token] = {}
        self._ids: dict[bytes, str] = {}
        self._requested: Counter[Principal] = Counter()
        self._credentials: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        for token_id, document in documents.items():
            self._add(parse_token(token_id, document))

    def __iter__(self) -> Iterator[Token]:
        """All tokens, expired ones that have not been removed yet too."""
        return iter(self._known.values())

    @property
    def are_enabled(self) -> bool:
        """Whether `delegation.token.secret.key` is set."""
        return bool(self._key)

    def secret_of(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._key, token_id.encode(), _HASH)

    def credential(
        self, mechanism: ScramMechanism, token_id: str
    ) -> tuple[ScramCredential, Bearer | None]:
        """What a bearer is checked against, and who it is.

        An unknown id has a credential that no secret fits and that a client cannot distinguish
        from that of a token: salt and iterations are the same, whether there is a token or not.

        The first call for a token takes some milliseconds.
        """
        unknown = unknown_user_credential(
            mechanism, token_id, self._key, ITERATIONS_MIN, SALT_BYTES
        )
        token = self._known.get(token_id)
        if token is None:
            return unknown, None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            credential = self._credentials[mechanism, token_id] = new_credential(
                mechanism,
                base64.b64encode(self.secret_of(token_id)).decode(),
                iterations=ITERATIONS_MIN,
                salt=unknown.salt,
            )
        return credential, Bearer(token.owner, token.expires_ms)

    def create(
        self,
        *,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> Token:
        """A new token, durably; a `max_lifetime_ms` below one is the longest.

        Raises:
            TokenRefused: tokens are off, a renewer is no user, a name is too long, or
                there are too many.
            StorageError: nothing has changed.
        """
        self._check_enabled()
        renewers = tuple(dict.fromkeys(renewers))
        if any(renewer.type != USER_TYPE for renewer in renewers):
            raise TokenRefused(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if any(len(renewer.name) > NAME_MAX for renewer in (owner, *renewers)):
            raise TokenRefused(ErrorCode.POLICY_VIOLATION)
        if len(renewers) > RENEWERS_MAX or self._requested[requester] >= TOKENS_MAX:
            raise TokenRefused(ErrorCode.POLICY_VIOLATION)
        lifetime_ms = self._max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        max_ms = _sum(now_ms, lifetime_ms)
        token = Token(
            id=format_uuid(random_uuid(secrets.token_bytes)),
            owner=owner,
            requester=requester,
            renewers=renewers,
            issued_ms=now_ms,
            expires_ms=min(max_ms, _sum(now_ms, self._expiry_time_ms)),
            max_ms=max_ms,
        )
        self._put(token)
        return token

    def renew(self, secret: bytes, period_ms: int, *, by: Principal, now_ms: int) -> Token:
        """A token with a later expiry, durably; a `period_ms` below one is the default.

        Raises:
            TokenRefused: tokens are off, there is none with this secret, it has expired, or it
                is not `by`'s.
            StorageError: nothing has changed.
        """
        token = self._with_secret(secret)
        if token.has_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_may_change(token, by)
        if period_ms > 0:
            period_ms = min(period_ms, self._expiry_time_ms)
        else:
            period_ms = self._expiry_time_ms
        return self._put(replace(token, expires_ms=min(token.max_ms, _sum(now_ms, period_ms))))

    def expire(self, secret: bytes, period_ms: int, *, by: Principal, now_ms: int) -> Token:
        """A token that expires after `period_ms`, durably; a negative number removes it.

        Raises:
            TokenRefused: tokens are off, there is none with this secret, it is not `by`'s, or it
                has expired already.
            StorageError: nothing has changed.
        """
        token = self._with_secret(secret)
        _check_may_change(token, by)
        if period_ms < 0:
            self._remove([token])
            return replace(token, expires_ms=now_ms)
        if token.has_expired(now_ms):
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return self._put(replace(token, expires_ms=min(token.max_ms, _sum(now_ms, period_ms))))

    def remove_expired(self, now_ms: int) -> list[Token]:
        """Remove the tokens that have expired, durably, and return them.

        Raises:
            StorageError: nothing has changed.
        """
        expired = [token for token in self if token.has_expired(now_ms)]
        self._remove(expired)
        return expired

    def _check_enabled(self) -> None:
        if not self.are_enabled:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _with_secret(self, secret: bytes) -> Token:
        self._check_enabled()
        token_id = self._ids.get(secret)
        if token_id is None:
            raise TokenRefused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._known[token_id]

    def _put(self, token: Token) -> Token:
        self._keep({token.id: format_token(token)})
        self._add(token)
        return token

    def _add(self, token: Token) -> None:
        if token.id not in self._known:
            self._requested[token.requester] += 1
            self._ids[self.secret_of(token.id)] = token.id
        self._known[token.id] = token

    def _remove(self, tokens: list[Token]) -> None:
        if not tokens:
            return
        self._keep({token.id: None for token in tokens})
        self._forget(tokens)

    def follow(self, documents: Mapping[str, Json]) -> None:
        """Take over changes that another process has made durable; None is a removed token.

        Raises:
            ValueError: a document is no token.
        """
        for token_id, document in documents.items():
            if document is not None:
                self._add(parse_token(token_id, document))
            elif token_id in self._known:
                self._forget([self._known[token_id]])

    def _forget(self, tokens: list[Token]) -> None:
        for token in tokens:
            del self._known[token.id]
            del self._ids[self.secret_of(token.id)]
            for mechanism in ScramMechanism:
                self._credentials.pop((mechanism, token.id), None)
            self._requested[token.requester] -= 1
            if not self._requested[token.requester]:
                del self._requested[token.requester]


def _check_may_change(token: Token, principal: Principal) -> None:
    if not token.may_be_changed_by(principal):
        raise TokenRefused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, INT64_MAX)


def format_token(token: Token) -> dict[str, Json]:
    """The document of a token in the metadata journal."""
    return {
        "owner": list(token.owner),
        "requester": list(token.requester),
        "renewers": [renewer.name for renewer in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }


def parse_token(token_id: str, document: Json) -> Token:
    """The token of a document.

    Raises:
        ValueError: it is none; the message names its key.
    """
    match document:
        case {
            "owner": [str(owner_type), str(owner_name)],
            "requester": [str(requester_type), str(requester_name)],
            "renewers": [*renewers],
            "issued_ms": int(issued_ms),
            "expires_ms": int(expires_ms),
            "max_ms": int(max_ms),
        } if all(isinstance(renewer, str) for renewer in renewers):
            return Token(
                id=token_id,
                owner=Principal(owner_type, owner_name),
                requester=Principal(requester_type, requester_name),
                renewers=tuple(user(str(renewer)) for renewer in renewers),
                issued_ms=issued_ms,
                expires_ms=expires_ms,
                max_ms=max_ms,
            )
    raise ValueError(f"the delegation token {token_id!r} in the metadata journal is unreadable")
