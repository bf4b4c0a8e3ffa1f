"""Tidelog and Apache Kafka with access control: a plain listener for setting up, one with users.

The clients of the plain listener may do everything; those of the other one are users who have
logged in, and have the rights that rules give them.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol.acl import PatternType, Permission, ResourceType
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey
from tests.compat.brokers import TidelogProcess
from tests.requests_differential.conversation import Connection
from tests.requests_differential.run import FOR_BOTH, FOR_KAFKA
from tests.support.broker import RawClient
from tests.support.kafka_peer import KafkaPeer, free_ports

SUPER_USER: Final = "root"
PASSWORD: Final = "secret"
_ITERATIONS: Final = 4096
_RULES_AT_ONCE: Final = 500
_SCRAM_SHA_512: Final = 2
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

_SECURED: Final = {
    **FOR_BOTH,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{SUPER_USER}",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
}


class Stage(NamedTuple):
    """A running broker."""

    plain: str
    """Where clients may do everything."""
    secured: str
    """Where users log in."""
    log_dir: str


class Rule(NamedTuple):
    """One rule, of a user that is named apart from it."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    operation: int
    permission: Permission
    host: str = "*"

    def for_user(self, user: str) -> AclCreation:
        """The rule as it is created."""
        return AclCreation(
            resource_type=self.resource_type,
            resource_name=self.name,
            resource_pattern_type=self.pattern,
            principal=f"User:{user}",
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


class LoggedIn(Connection):
    """A connection of one user."""

    def __init__(self, bootstrap: str, user: str) -> None:
        super().__init__(bootstrap)
        self._user = user

    async def opened(self, host: str, port: int) -> RawClient:
        client = await RawClient.connect(host, port)
        chosen = await client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert chosen.error_code == 0, chosen
        answer = await client.request(token(self._user), 2)
        assert answer.error_code == 0, answer
        return client


def token(user: str, password: str = PASSWORD) -> SaslAuthenticateRequest:
    """What a user sends to log in with PLAIN."""
    return SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())


async def add_rules(setup: Connection, creations: list[AclCreation]) -> None:
    """Put rules in force."""
    for start in range(0, len(creations), _RULES_AT_ONCE):
        some = CreateAclsRequest(creations=creations[start : start + _RULES_AT_ONCE])
        answer = await setup.ask(ApiKey.CREATE_ACLS, 3, some)
        assert not any(result.error_code for result in answer.results), answer


async def add_users(bootstrap: str, users: Iterable[str]) -> None:
    """Give users a SCRAM credential with the password."""
    salt = bytes(16)
    salted = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, _ITERATIONS)
    upsertions = [
        {
            "name": user,
            "mechanism": _SCRAM_SHA_512,
            "iterations": _ITERATIONS,
            "salt": salt,
            "salted_password": salted,
        }
        for user in users
    ]
    setup = Connection(bootstrap)
    await setup.do(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": upsertions}
    )
    await setup.close()


@contextmanager
def tidelog(
    directory: Path, users: Iterable[str], settings: Mapping[str, str] = _NO_SETTINGS
) -> Iterator[Stage]:
    """A Tidelog on a new directory, with these users."""
    plain, secured = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
    own = {**_SECURED, **settings, "listeners": listeners, "metrics.listener": ""}
    data_dir = directory / "tide"
    with TidelogProcess(data_dir, settings=own) as broker:
        asyncio.run(add_users(broker.bootstrap, users))
        yield Stage(broker.bootstrap, f"127.0.0.1:{secured}", str(data_dir))


@contextmanager
def kafka(
    directory: Path, users: Iterable[str], settings: Mapping[str, str] = _NO_SETTINGS
) -> Iterator[Stage]:
    """An Apache Kafka on a new directory, with these users."""
    (secured,) = free_ports(1)
    words = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    module = "org.apache.kafka.common.security"
    on_listener = "listener.name.sasl_plaintext"
    own = {
        **FOR_KAFKA,
        **_SECURED,
        **settings,
        f"{on_listener}.plain.sasl.jaas.config": (
            f"{module}.plain.PlainLoginModule required {words};"
        ),
        f"{on_listener}.scram-sha-512.sasl.jaas.config": (
            f"{module}.scram.ScramLoginModule required;"
        ),
    }
    peer = KafkaPeer(directory / "kafka", settings=own, listeners={"SASL_PLAINTEXT": secured})
    with peer as broker:
        yield Stage(broker.bootstrap, f"127.0.0.1:{secured}", str(broker.log_dir))
