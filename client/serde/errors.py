"""What goes wrong between bytes and their schemas; all are `ClientError`."""

from client.errors import ClientError
from client.types import ConsumerRecord


class RegistryUnreachable(ClientError):
    """The registry gave no answer, or refused to answer; another attempt may succeed."""


class NoSuchSchema(ClientError, LookupError):
    """The registry has no such schema, subject or version."""


class BadSchema(ClientError, ValueError):
    """What the registry answered is no schema, or one that cannot be used."""


class BadValue(ClientError, ValueError):
    """The bytes do not fit their schema, or the value does not.

    `record` is the record as it was read, if a consumer could not convert it.
    """

    record: ConsumerRecord | None = None
