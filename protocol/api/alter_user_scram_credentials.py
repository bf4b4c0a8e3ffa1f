"""AlterUserScramCredentials (key 51): set or remove SCRAM credentials (KIP-554).

=======  =======================
version  change
=======  =======================
0        flexible from the start
=======  =======================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import (
    Direction,
    array,
    binary,
    int8,
    int16,
    int32,
    message,
    string,
)


@dataclass(slots=True, kw_only=True)
class ScramCredentialDeletion:
    """A credential to remove."""

    name: str = string()
    mechanism: int = int8()


@dataclass(slots=True, kw_only=True)
class ScramCredentialUpsertion:
    """A credential to set."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()
    """The password as SCRAM stores it, never in clear."""


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest:
    """The changes."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResult:
    """The outcome of one user's change."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@message(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Direction.RESPONSE, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse:
    """The outcome for every user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
