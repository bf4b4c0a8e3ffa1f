"""AlterUserScramCredentials (key 51, version 0): set or remove SCRAM credentials (KIP-554)."""

from protocol.declare import primitives as wire


class ScramCredentialDeletion(wire.Struct):
    """A credential to remove."""

    name: str = wire.string()
    mechanism: int = wire.int8()


class ScramCredentialUpsertion(wire.Struct):
    """A credential to set."""

    name: str = wire.string()
    mechanism: int = wire.int8()
    iterations: int = wire.int32()
    salt: bytes = wire.binary()
    salted_password: bytes = wire.binary()
    """The password as SCRAM stores it, never in clear."""


class AlterUserScramCredentialsRequest(wire.Message, max_version=0, flexible_since=0):
    """The changes."""

    deletions: list[ScramCredentialDeletion] = wire.array()
    upsertions: list[ScramCredentialUpsertion] = wire.array()


class AlterUserScramCredentialsResult(wire.Struct):
    """The outcome of one user's change."""

    user: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.string(nullable_since=0)


class AlterUserScramCredentialsResponse(wire.Message, max_version=0, flexible_since=0):
    """The outcome for every user."""

    throttle_time_ms: int = wire.int32()
    results: list[AlterUserScramCredentialsResult] = wire.array()
