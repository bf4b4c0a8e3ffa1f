"""Principals: the identity that a connection has proved.

A principal is a type and a name; only the type `User` is ever made here. A connection without
authentication is `User:ANONYMOUS`, as in Kafka.

Source: Kafka `KafkaPrincipal`, `DefaultKafkaPrincipalBuilder`.
"""

from typing import Final, NamedTuple

USER_TYPE: Final = "User"


class Principal(NamedTuple):
    """A type and a name, written `Type:name`."""

    type: str
    name: str

    def __str__(self) -> str:
        """The form of access control lists and of `super.users`."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER_TYPE, "ANONYMOUS")


def user(name: str) -> Principal:
    """The principal of a user who has authenticated as `name`."""
    return Principal(USER_TYPE, name)


def parse_principal(text: str) -> Principal:
    """The principal that `text` writes, split at the first colon.

    Raises:
        ValueError: there is no colon, or nothing on one side of it.
    """
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal: write Type:name, for instance User:alice")
    return Principal(kind, name)


def parse_principals(text: str) -> list[Principal]:
    """The principals of a list: names of certificates have commas, so semicolons separate.

    Raises:
        ValueError: one of them is no principal.
    """
    return [parse_principal(word.strip()) for word in text.split(";") if word.strip()]
