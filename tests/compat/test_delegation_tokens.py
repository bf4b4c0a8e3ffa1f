"""Delegation tokens: the same requests to Tidelog and to Apache Kafka, and Kafka's own tools."""

import asyncio
import base64
import contextlib
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import Operation, PatternType, Permission, ResourceType
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.create_delegation_token import CreateDelegationTokenRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.renew_delegation_token import RenewDelegationTokenRequest
from protocol.error_codes import ErrorCode
from protocol.structs import TokenPrincipal
from tests.compat.brokers import TidelogProcess
from tests.support.broker import ConnectionClosed, RawClient
from tests.support.kafka_peer import KafkaPeer, free_ports, tool_command
from tests.support.logins import log_in_scram, log_in_with_token
from tests.support.requests import create_topic
from tests.support.secured_kafka import Keys, make_keys

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

USERS = ("root", "ann", "bob", "carl", "dora", "eve")
PASSWORD = "s3cret"
MAX_LIFETIME_MS, EXPIRY_TIME_MS = 3_600_000, 600_000
TOO_LONG_MS = 2**63 - 1
TOPIC = "bobs"

Rows = dict[str, Any]


class Side:
    """One broker with a plain, a SASL and a TLS listener."""

    def __init__(self, plain: str, sasl: str, tls: str, keys: Keys, *, is_kafka: bool) -> None:
        self.plain, self.sasl, self.tls = plain, sasl, tls
        self.keys = keys
        self.is_kafka = is_kafka
        self._markers = 0
        self.rows: Rows = {}

    @contextlib.asynccontextmanager
    async def anonymous(
        self, *, certificate: bool = False, tls: bool = False
    ) -> AsyncIterator[Any]:
        context = None
        if tls:
            context = ssl.create_default_context(cafile=str(self.keys.authority))
            if certificate:
                context.load_cert_chain(str(self.keys.client))
        host, _, port = (self.tls if tls else self.plain).rpartition(":")
        client = await RawClient.connect(host, int(port), context)
        yield client
        await client.close()

    async def opened(self) -> RawClient:
        host, _, port = self.sasl.rpartition(":")
        return await RawClient.connect(host, int(port))

    @contextlib.asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[RawClient]:
        client = await self.opened()
        answer = await log_in_scram(client, name, PASSWORD)
        assert answer.error_code == 0, answer
        yield client
        await client.close()

    async def settle(self) -> None:
        """Wait until a change is everywhere in Apache Kafka: until a later one is."""
        if not self.is_kafka:
            return
        self._markers += 1
        user = f"marker-{self._markers}"
        async with self.anonymous() as client:
            await add_rules(client, [(user, ResourceType.TOPIC, "marker", Operation.READ)])
            asked = DescribeAclsRequest(
                resource_type_filter=ResourceType.ANY, resource_name_filter=None,
                pattern_type_filter=PatternType.ANY, principal_filter=f"User:{user}",
                host_filter=None,
                operation=Operation.ANY, permission_type=Permission.ANY,
            )  # fmt: skip
            while not (await client.request(asked, 3)).resources:
                await asyncio.sleep(0.02)


def normal(answer: Any, asked_ms: float) -> Rows:
    """What both brokers have to answer alike: times in minutes since the request."""
    row: Rows = {}
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name == "error_code":
            value = ErrorCode(value).name
        elif "timestamp" in name and value > 0:
            value = round((value - asked_ms) / 60_000)  # the machine may be seconds late
        elif name == "token_id":
            value = len(value)
        elif name == "hmac":
            value = len(bytes(value))
        elif name == "renewers":
            value = sorted(f"{one.principal_type}:{one.principal_name}" for one in value)
        elif name == "tokens":
            value = sorted((normal(one, one.issue_timestamp) for one in value), key=repr)
        row[name] = value
    return row


async def ask(side: Side, name: str, client: RawClient, message: Any, version: int) -> Any:
    asked_ms = time.time() * 1000
    answer = await client.request(message, version)
    assert name not in side.rows
    side.rows[name] = normal(answer, asked_ms)
    return answer


def creation(
    *renewers: str, owner: tuple[str | None, str | None] = (None, None), lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=owner[0],
        owner_principal_name=owner[1],
        renewers=[
            TokenPrincipal(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in renewers)
        ],
        max_lifetime_ms=lifetime_ms,
    )


def owners(*names: str) -> DescribeDelegationTokenRequest:
    listed = [TokenPrincipal(principal_type="User", principal_name=name) for name in names]
    return DescribeDelegationTokenRequest(owners=listed)


EVERYONE = DescribeDelegationTokenRequest(owners=None)
ONE_OF_EACH = (
    (creation(), (1, 2, 3)),
    (RenewDelegationTokenRequest(hmac=b"none"), (1, 2)),
    (ExpireDelegationTokenRequest(hmac=b"none"), (1, 2)),
    (EVERYONE, (1, 2, 3)),
)


async def prepare(side: Side) -> None:
    """Users and their rights, by the plain listener, whose clients may do everything."""
    import hashlib

    salt = bytes(16)
    rules = [
        ("ann", ResourceType.USER, "User:bob", Operation.CREATE_TOKENS),
        ("carl", ResourceType.USER, "User:bob", Operation.DESCRIBE_TOKENS),
        ("bob", ResourceType.TOPIC, TOPIC, Operation.READ),
    ]
    async with side.anonymous() as client:
        for number, hash_name in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), salt, 4096)
            request = AlterUserScramCredentialsRequest(
                upsertions=[
                    ScramCredentialUpsertion(
                        name=name, mechanism=number, iterations=4096,
                        salt=salt, salted_password=salted,
                    )
                    for name in USERS
                ]
            )  # fmt: skip
            answer = await client.request(request, 0)
            assert not any(result.error_code for result in answer.results)
        await add_rules(client, rules)
    await side.settle()


async def add_rules(
    client: RawClient, rules: list[tuple[str, ResourceType, str, Operation]]
) -> None:
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=kind, resource_name=name, resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{user}", host="*", operation=operation,
                permission_type=Permission.ALLOW,
            )
            for user, kind, name, operation in rules
        ]
    )  # fmt: skip
    answer = await client.request(request, 3)
    assert not any(result.error_code for result in answer.results)


async def ask_without_credential(side: Side) -> None:
    for name, tls, certificate in (
        ("plain", False, False), ("tls", True, False), ("certificate", True, True),
    ):  # fmt: skip
        async with side.anonymous(tls=tls, certificate=certificate) as client:
            for message, versions in ONE_OF_EACH:
                for version in versions:
                    case = f"{name}: {type(message).__name__} v{version}"
                    await ask(side, case, client, message, version)
                    await side.settle()


async def ask_to_create(side: Side) -> None:
    async with side.user("ann") as ann:
        for version in (1, 2, 3):
            await ask(side, f"create v{version}", ann, creation(), version)
        for lifetime_ms in (0, -5, 1, 300_000, MAX_LIFETIME_MS * 2, TOO_LONG_MS):
            message = creation(lifetime_ms=lifetime_ms)
            await ask(side, f"create for {lifetime_ms} ms", ann, message, 3)
        for owner in (
            ("User", "ann"), ("User", "bob"), ("User", "root"), ("Group", "bob"),
            ("User", ""), (None, ""), ("User", None), ("", "ann"), ("user", "ann"),
        ):  # fmt: skip
            message = creation(owner=owner, lifetime_ms=200_000)
            await ask(side, f"create of {owner}", ann, message, 3)
        for renewers in (
            ("User:carl",), ("Group:carl",), ("User:carl", "Group:x"), ("User:carl", "User:eve"),
            ("user:carl",), ("User:",),
        ):  # fmt: skip
            message = creation(*renewers, lifetime_ms=100_000)
            await ask(side, f"create with {renewers}", ann, message, 3)
        # The order of the checks: the right before the renewers.
        message = creation("Group:x", owner=("User", "root"))
        await ask(side, "create of another with a bad renewer", ann, message, 3)
    async with side.user("eve") as eve:
        await ask(side, "create of bob by eve", eve, creation(owner=("User", "bob")), 3)
    async with side.user("root") as root:
        message = creation("User:dora", owner=("User", "carl"), lifetime_ms=50_000)
        await ask(side, "create of carl by root", root, message, 3)
    await side.settle()


async def ask_to_describe(side: Side) -> None:
    for name in USERS:
        async with side.user(name) as client:
            for version in (1, 2, 3):
                await ask(side, f"all by {name} v{version}", client, EVERYONE, version)
            for named in ((), ("ann",), ("bob",), ("carl", "dora"), ("nobody",), ("bob", "bob")):
                await ask(side, f"{named} by {name}", client, owners(*named), 3)


async def ask_to_change(side: Side) -> None:
    async with side.user("bob") as bob:
        made = await ask(side, "bob's own", bob, creation("User:carl"), 3)
    secret = bytes(made.hmac)
    await side.settle()
    async with side.anonymous() as client:
        right = ("dora", ResourceType.DELEGATION_TOKEN, made.token_id, Operation.DESCRIBE)
        await add_rules(client, [right])
    await side.settle()
    async with side.user("dora") as dora:
        await ask(side, "bob's described by dora", dora, owners("bob"), 3)
    for name in USERS:
        async with side.user(name) as client:
            for period_ms in (-1, 0, 60_000, EXPIRY_TIME_MS * 2, TOO_LONG_MS):
                renewal = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
                await ask(side, f"renew for {period_ms} by {name}", client, renewal, 2)
                await side.settle()
            for period_ms in (60_000, TOO_LONG_MS):
                expiry = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
                await ask(side, f"expire in {period_ms} by {name}", client, expiry, 2)
                await side.settle()
            for unknown in (b"", b"unknown", secret[:-1], secret + b"x"):
                renewal = RenewDelegationTokenRequest(hmac=unknown, renew_period_ms=-1)
                await ask(side, f"renew {len(unknown)} bytes by {name}", client, renewal, 1)
                expiry = ExpireDelegationTokenRequest(hmac=unknown, expiry_time_period_ms=-1)
                await ask(side, f"expire {len(unknown)} bytes by {name}", client, expiry, 1)
    async with side.user("eve") as eve, side.user("carl") as carl:
        removal = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)
        await ask(side, "removed by eve", eve, removal, 2)
        at_once = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=0)
        await ask(side, "expired now by carl", carl, at_once, 2)
        await side.settle()
        await asyncio.sleep(0.05)
        renewal = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=-1)
        await ask(side, "renew an expired one", carl, renewal, 2)
        await ask(side, "renew an expired one by eve", eve, renewal, 2)
        await ask(side, "expire an expired one", carl, at_once, 2)
        await ask(side, "remove an expired one", carl, removal, 2)
        await side.settle()
        await ask(side, "remove it twice", carl, removal, 2)


async def log_in_with(
    side: Side, case: str, token_id: str, secret: bytes, mechanism: str
) -> RawClient | None:
    """A client that is logged in, or None."""
    client = await side.opened()
    try:
        answer = await log_in_with_token(client, token_id, secret, mechanism=mechanism)
    except ConnectionClosed:
        side.rows[case] = "closed"
        return None
    lifetime = round(answer.session_lifetime_ms / 60_000)
    side.rows[case] = (answer.error_code, answer.error_message, lifetime)
    if answer.error_code == 0:
        return client
    await client.close()
    return None


async def ask_with_tokens(side: Side) -> None:
    async with side.user("ann") as ann:
        made = await ask(side, "for a login", ann, creation(owner=("User", "bob")), 3)
    secret = bytes(made.hmac)
    await side.settle()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = await log_in_with(side, f"login {mechanism}", made.token_id, secret, mechanism)
        assert client is not None
        for message, versions in ONE_OF_EACH:
            case = f"{mechanism}: {type(message).__name__} by a token"
            await ask(side, case, client, message, versions[-1])
        topics = [MetadataRequestTopic(name=name) for name in (TOPIC, "other")]
        seen = await client.request(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12
        )
        side.rows[f"{mechanism}: rights"] = {one.name: one.error_code for one in seen.topics}
        await client.close()
        for case, token_id, key in (
            ("wrong secret", made.token_id, secret[:-1]),
            ("unknown token", "AAAAAAAAAAAAAAAAAAAAAQ", secret),
            ("a user's name", "bob", secret),
        ):
            await log_in_with(side, f"{mechanism}: {case}", token_id, key, mechanism)
        other = await side.opened()
        password = base64.b64encode(secret).decode()
        answer = await log_in_scram(other, made.token_id, password, mechanism=mechanism)
        side.rows[f"{mechanism}: without the extension"] = answer.error_code
        await other.close()
    async with side.user("bob") as bob:
        removal = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)
        await ask(side, "removed after a login", bob, removal, 2)
    await side.settle()
    await log_in_with(side, "login after removal", made.token_id, secret, "SCRAM-SHA-512")


async def conversation(side: Side) -> Rows:
    await prepare(side)
    await ask_without_credential(side)
    await ask_to_create(side)
    await ask_to_describe(side)
    await ask_to_change(side)
    await ask_with_tokens(side)
    return side.rows


async def conversation_without_key(side: Side) -> Rows:
    await prepare(side)
    async with side.user("ann") as ann:
        for message, versions in ONE_OF_EACH:
            for version in versions:
                case = f"disabled: {type(message).__name__} v{version}"
                await ask(side, case, ann, message, version)
        await ask(side, "no owners", ann, owners(), 3)
        await ask(side, "bad renewer", ann, creation("Group:x"), 3)
        await ask(side, "of another", ann, creation(owner=("User", "root")), 3)
    return side.rows


def settings(keys: Keys, *, is_on: bool) -> dict[str, str]:
    tokens = {
        "delegation.token.max.lifetime.ms": str(MAX_LIFETIME_MS),
        "delegation.token.expiry.time.ms": str(EXPIRY_TIME_MS),
    }
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority),
        "ssl.client.auth": "requested",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        **(tokens if is_on else {}),
    }


@contextlib.contextmanager
def tidelog(folder: Path, keys: Keys, *, is_on: bool) -> Iterator[Side]:
    plain, sasl, tls = free_ports(3)
    key = folder / "token.key"
    key.write_text("secret key")
    listeners = (
        f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}"
    )
    own = {"listeners": listeners, "metrics.listener": ""}
    if is_on:
        own["delegation.token.secret.key"] = f"file:{key}"
    with TidelogProcess(folder / "tide", settings={**settings(keys, is_on=is_on), **own}):
        yield Side(
            f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", keys, is_kafka=False
        )


@contextlib.contextmanager
def kafka(folder: Path, keys: Keys, *, is_on: bool) -> Iterator[Side]:
    sasl, tls = free_ports(2)
    own = settings(keys, is_on=is_on)
    if is_on:
        own["delegation.token.secret.key"] = "secret key"
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        own[f"listener.name.sasl_plaintext.{mechanism}.sasl.jaas.config"] = f"{module} required;"
    ports = {"SASL_PLAINTEXT": sasl, "SSL": tls}
    with KafkaPeer(folder / "kafka", settings=own, heap="512m", listeners=ports) as peer:
        yield Side(peer.bootstrap, f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", keys, is_kafka=True)


@pytest.mark.parametrize("is_on", [True, False])
def test_both_brokers_answer_the_same(tmp_path: Path, is_on: bool) -> None:
    keys = make_keys(tmp_path)
    talk = conversation if is_on else conversation_without_key
    with tidelog(tmp_path, keys, is_on=is_on) as side:
        ours = asyncio.run(talk(side))
    with kafka(tmp_path, keys, is_on=is_on) as side:
        theirs = asyncio.run(talk(side))
    assert ours.keys() == theirs.keys()
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {}


def test_kafkas_own_tool_and_a_java_client_with_a_token(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    with tidelog(tmp_path, keys, is_on=True) as side:
        asyncio.run(_prepare_topic(side))
        bob = _properties(tmp_path, "bob", PASSWORD)
        tool = "org.apache.kafka.tools.DelegationTokenCommand"

        def run(*words: str, login: Path = bob, name: str = tool) -> str:
            command = tool_command(
                name, "--bootstrap-server", side.sasl, "--command-config", str(login), *words
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        made = run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carl")
        row = next(line for line in made.splitlines() if "User:bob" in line)
        token_id, secret = row.split()[:2]
        # Without an owner the tool asks for the tokens of none, and gets none from Kafka either.
        described = ("--describe", "--owner-principal", "User:bob")
        assert token_id in run(*described)
        bearer = _properties(tmp_path, token_id, secret, ' tokenauth="true"')
        topics = run("--list", login=bearer, name="org.apache.kafka.tools.TopicCommand")
        assert topics.split() == [TOPIC]
        carl = _properties(tmp_path, "carl", PASSWORD)
        renewed = run("--renew", "--hmac", secret, "--renew-time-period", "-1", login=carl)
        assert "renew" in renewed
        run("--expire", "--hmac", secret, "--expiry-time-period", "-1")
        assert token_id not in run(*described)


async def _prepare_topic(side: Side) -> None:
    await prepare(side)
    async with side.anonymous() as client:
        for name in (TOPIC, "other"):
            await create_topic(client, name)


def _properties(place: Path, name: str, password: str, option: str = "") -> Path:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    path = place / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} username="{name}" password="{password}"{option};\n'
    )
    return path
