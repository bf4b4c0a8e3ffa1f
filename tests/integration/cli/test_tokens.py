"""Delegation tokens from the command line: made, seen, renewed and removed by those who may."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from cli.security.offline_users import add_user
from tests.support.broker import RawClient
from tests.support.cli import tidelog
from tests.support.logins import log_in_with_token
from tidelog.testing import RunningBroker, running_broker

PASSWORD = "secret"


class Users:
    """Commands given by the users of one broker."""

    def __init__(self, server: RunningBroker, password_file: Path) -> None:
        self.server = server
        self._password_file = password_file

    def run(self, user: str, *words: str) -> "subprocess.CompletedProcess[str]":
        login = {"TIDELOG_USER": user, "TIDELOG_PASSWORD_FILE": str(self._password_file)}
        return tidelog(*words, server=self.server, **login)

    def ok(self, user: str, *words: str) -> str:
        done = self.run(user, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    place = tmp_path_factory.mktemp("tokens")
    (place / "password").write_text(PASSWORD)
    (place / "key").write_text("token key")
    for name in ("admin", "ann", "bob"):
        add_user(str(place / "data"), name, PASSWORD, "SCRAM-SHA-512", 4096)
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": f"file:{place}/key",
    }
    with running_broker(place / "data", settings=settings) as running:
        yield Users(running, place / "password")


async def test_a_token_is_made_and_opens_a_session(users: Users) -> None:
    token_id, secret = users.ok("ann", "token", "create").splitlines()
    host, _, port = users.server.bootstrap.rpartition(":")
    client = await RawClient.connect(host, int(port))
    answer = await log_in_with_token(client, token_id, base64.b64decode(secret))
    assert answer.error_code == 0
    await client.close()
    listed = users.ok("ann", "token", "list")
    assert token_id in listed
    assert secret not in listed


def test_who_sees_renews_and_removes_a_token(users: Users) -> None:
    words = ("--owner", "bob", "--renewer", "ann", "--lifetime-ms", "600000", "--json")
    assert users.run("ann", "token", "create", *words).returncode == ExitCode.FAILED
    made = json.loads(users.ok("admin", "token", "create", *words))
    assert (made["owner"], made["requester"]) == ("User:bob", "User:admin")
    assert made["max_ms"] - made["issued_ms"] == 600_000
    token_id = made["id"]
    for user in ("admin", "ann", "bob"):
        rows = json.loads(users.ok(user, "token", "list", "--owner", "bob", "--json"))
        assert [(row["id"], row["renewers"]) for row in rows] == [(token_id, ["User:ann"])]
        assert "secret" not in rows[0]
    assert token_id in users.ok("ann", "token", "renew", token_id, "--period-ms", "300000")
    (row,) = json.loads(users.ok("bob", "token", "list", "--json"))
    assert row["expires_ms"] < made["expires_ms"]
    assert users.run("admin", "token", "renew", token_id).returncode == ExitCode.FAILED
    users.ok("bob", "token", "expire", token_id, "--period-ms", "400000")
    assert users.ok("bob", "token", "expire", token_id) == f"{token_id} is removed\n"
    assert json.loads(users.ok("bob", "token", "list", "--json")) == []


@pytest.mark.parametrize("action", ["renew", "expire"])
def test_a_token_that_is_not_there(users: Users, action: str) -> None:
    done = users.run("bob", "token", action, "nope")
    assert done.returncode == ExitCode.NOT_FOUND
    assert "there is no token 'nope'" in done.stderr
