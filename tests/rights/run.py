"""Sends the matrix to one Apache Kafka and to Tidelog, and lists what differs.

`python -m tests.rights.run [API...]` prints a report, one line for what differs alike under several
conditions; the tests call `compare`. `--record` keeps Kafka's answers to the small matrix instead.
"""

import asyncio
import hashlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from tests.compat.brokers import TidelogProcess
from tests.requests_differential.conversation import Connection, Conversation, Seen
from tests.requests_differential.intended import unexplained
from tests.requests_differential.normal import OUTCOME, Answer, normal
from tests.requests_differential.run import (
    FOR_BOTH,
    FOR_KAFKA,
    Difference,
    differences,
)
from tests.requests_differential.scene import Scene
from tests.rights.conditions import SUPER_USER, Condition, conditions
from tests.rights.matrix import Cell, cells, small
from tests.support.broker import RawClient
from tests.support.kafka_peer import NEWEST, KafkaPeer, free_ports

RECORDED: Final = Path(__file__).parent / "recorded.json"
"""The cells of the small matrix by what Apache Kafka answers."""

PASSWORD: Final = "secret"
_ITERATIONS: Final = 4096
_RULES_AT_ONCE: Final = 500
_SCRAM_SHA_512: Final = 2

_SECURED: Final = {
    **FOR_BOTH,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{SUPER_USER}",
    "sasl.enabled.mechanisms": "PLAIN",
}
"""Scenes are set up on the plain listener, whose clients may do everything."""


class Unlike(NamedTuple):
    """One difference under one condition."""

    condition: str
    difference: Difference


class _LoggedIn(Connection):
    """A connection of one user."""

    def __init__(self, bootstrap: str, user: str) -> None:
        super().__init__(bootstrap)
        self._user = user

    async def opened(self, host: str, port: int) -> RawClient:
        client = await RawClient.connect(host, port)
        chosen = await client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert chosen.error_code == 0, chosen
        token = f"\0{self._user}\0{PASSWORD}".encode()
        answer = await client.request(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0, answer
        return client


class _Matrix(Conversation):
    """All cells to one broker: scenes are made by its super user, requests sent by the others."""

    def __init__(self, bootstrap: str, secured: str, log_dir: str) -> None:
        super().__init__(bootstrap, log_dir)
        self._plain = bootstrap
        self._secured = secured
        self._idle: dict[str, list[_LoggedIn]] = defaultdict(list)

    async def answers(self, chosen: Sequence[Cell], *, adds_users: bool) -> list[Seen]:
        """What comes back, in the order of the cells."""
        every = conditions()
        setup = Connection(self._plain)
        if adds_users:
            await _add_users(setup, every)
        await _add_rules(setup, every)
        await setup.close()
        seen = await self.run(chosen)  # type: ignore[arg-type] # a cell is a case with a user
        for connections in self._idle.values():
            for connection in connections:
                await connection.close()
        return seen

    async def _send(self, connection: Connection, case: Any, scene: Scene) -> Answer:
        user = case.condition.user
        idle = self._idle[user]
        own = idle.pop() if idle else _LoggedIn(self._secured, user)
        message = case.request(scene)
        answer = await own.ask(case.api, case.version, message)
        idle.append(own)
        asked = replace(scene, port=int(self._secured.rpartition(":")[2]))
        return normal(answer, case.version, asked, message)


async def _add_users(setup: Connection, every: Iterable[Condition]) -> None:
    salt = bytes(16)
    salted = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, _ITERATIONS)
    upsertions = [
        {
            "name": condition.user,
            "mechanism": _SCRAM_SHA_512,
            "iterations": _ITERATIONS,
            "salt": salt,
            "salted_password": salted,
        }
        for condition in every
    ]
    await setup.do(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": upsertions}
    )


async def _add_rules(setup: Connection, every: Iterable[Condition]) -> None:
    creations = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.name,
            resource_pattern_type=rule.pattern,
            principal=f"User:{condition.user}",
            host="*",
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for condition in every
        for rule in condition.rules
    ]
    for start in range(0, len(creations), _RULES_AT_ONCE):
        some = CreateAclsRequest(creations=creations[start : start + _RULES_AT_ONCE])
        answer = await setup.ask(ApiKey.CREATE_ACLS, 3, some)
        assert not any(result.error_code for result in answer.results), answer


def from_tidelog(chosen: Sequence[Cell], directory: Path) -> list[Seen]:
    """What a Tidelog on a new directory answers."""
    data_dir = directory / "tide"
    plain, secured = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
    settings = {**_SECURED, "listeners": listeners, "metrics.listener": ""}
    with TidelogProcess(data_dir, settings=settings) as broker:
        talk = _Matrix(broker.bootstrap, f"127.0.0.1:{secured}", str(data_dir))
        return asyncio.run(talk.answers(chosen, adds_users=True))


def from_kafka(chosen: Sequence[Cell], directory: Path) -> list[Seen]:
    """What an Apache Kafka on a new directory answers."""
    (secured,) = free_ports(1)
    users = " ".join(f'user_{condition.user}="{PASSWORD}"' for condition in conditions())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **FOR_KAFKA,
        **_SECURED,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {users};",
    }
    peer = KafkaPeer(directory / "kafka", settings=settings, listeners={"SASL_PLAINTEXT": secured})
    with peer as broker:
        talk = _Matrix(broker.bootstrap, f"127.0.0.1:{secured}", str(broker.log_dir))
        return asyncio.run(talk.answers(chosen, adds_users=False))


def compare(chosen: Sequence[Cell], directory: Path) -> list[Unlike]:
    """Every difference that the catalogue does not have for a client that may do everything."""
    ours, theirs = from_tidelog(chosen, directory), from_kafka(chosen, directory)
    return [
        Unlike(cell.condition.name, difference)
        for cell, mine, other in zip(chosen, ours, theirs, strict=True)
        for difference in unexplained(differences([cell.case], [mine], [other]))
    ]


def codes(cell: Cell, seen: Seen) -> tuple[str, str]:
    """A cell's name, and in short what was answered: the error codes in their places."""
    rows = sorted(
        f"{at}={value}"
        for at, value in seen.answer.items()
        if at == OUTCOME or (at.endswith("error_code") and value != ErrorCode.NONE.name)
    )
    return f"{cell.api.name} {cell.version} {cell.sent} | {cell.condition.name}", " ".join(rows)


def record(directory: Path) -> None:
    """Keep what an Apache Kafka answers to the small matrix."""
    chosen = small()
    seen = from_kafka(chosen, directory)
    by_answer: dict[str, list[str]] = defaultdict(list)
    for name, answer in map(codes, chosen, seen):
        by_answer[answer].append(name)
    RECORDED.write_text(json.dumps(by_answer, indent=0, sort_keys=True) + "\n")


def report(found: Iterable[Unlike]) -> list[str]:
    """A line for each difference that is the same under several conditions."""
    grouped = defaultdict(list)
    for condition, row in found:
        grouped[row].append(condition)
    return [
        f"{row.api.name} {row.version} | {row.sent} | {row.at} | ours {row.ours:.200} | "
        f"kafka {row.theirs:.200} | {len(names)}: {'; '.join(names):.300}"
        for row, names in grouped.items()
    ]


def main() -> int:
    """Prints the differences that are not said to be intended; the exit status says if any."""
    from tests.rights.intended import unintended

    wanted = sys.argv[1:]
    if wanted == ["--record"]:
        with tempfile.TemporaryDirectory() as directory:
            record(Path(directory))
        return 0
    chosen = [cell for cell in cells() if not wanted or cell.api.name in wanted]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found = compare(chosen, Path(directory))
    left = unintended(found)
    print(*report(left), sep="\n")
    print(
        f"{len(chosen)} cells asked of Apache Kafka {NEWEST} and of Tidelog: {len(found)} "
        f"differences, {len(left)} unexplained; {time.monotonic() - started:.0f} s"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
