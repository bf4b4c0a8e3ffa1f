"""DescribeUserScramCredentials (key 50, version 0): users that have SCRAM credentials (KIP-554)."""

from protocol.declare import primitives as wire


class UserName(wire.Struct):
    """A user of interest."""

    name: str = wire.string()


class DescribeUserScramCredentialsRequest(wire.Message, max_version=0, flexible_since=0):
    """The users of interest."""

    users: list[UserName] | None = wire.array(nullable_since=0)
    """Null or empty for all."""


class CredentialInfo(wire.Struct):
    """A mechanism the user can log in with."""

    mechanism: int = wire.int8()
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    iterations: int = wire.int32()


class DescribeUserScramCredentialsResult(wire.Struct):
    """One user; RESOURCE_NOT_FOUND when unknown."""

    user: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    credential_infos: list[CredentialInfo] = wire.array()


class DescribeUserScramCredentialsResponse(wire.Message, max_version=0, flexible_since=0):
    """The requested users."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)
    results: list[DescribeUserScramCredentialsResult] = wire.array()
