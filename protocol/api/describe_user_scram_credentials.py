"""DescribeUserScramCredentials (key 50): which users have SCRAM credentials (KIP-554).

=======  =======================
version  change
=======  =======================
0        flexible from the start
=======  =======================
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.declare.primitives import Direction, array, int8, int16, int32, message, string


@dataclass(slots=True, kw_only=True)
class UserName:
    """A user of interest."""

    name: str = string()


@message(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Direction.REQUEST, max_version=0, flexible_since=0)
@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest:
    """The users of interest."""

    users: list[UserName] | None = array(UserName, nullable_since=0)
    """Null or empty for all."""


@dataclass(slots=True, kw_only=True)
class CredentialInfo:
    """A mechanism the user can log in with."""

    mechanism: int = int8()
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    iterations: int = int32()


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResult:
    """One user; RESOURCE_NOT_FOUND when unknown."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Direction.RESPONSE, max_version=0, flexible_since=0
)
@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse:
    """The requested users."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
