"""Users, rules, quotas and tokens move with their directory, to Apache Kafka and back.

Both brokers answer the same requests about them, Kafka's own tools read them, and users log in with
the password and the token that the other broker gave them.
"""

import asyncio
import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.create_delegation_token import CreateDelegationTokenRequest
from protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.structs import TokenPrincipal
from tests.compat.brokers import TidelogProcess
from tests.roundtrip.moving import tidelog
from tests.support.broker import RawClient, batch
from tests.support.kafka_peer import (
    LAST_WITH_OLD_PROTOCOLS,
    NEWEST,
    KafkaPeer,
    free_ports,
    tool_command,
)
from tests.support.logins import log_in_scram, log_in_with_token
from tests.support.requests import create_topic, produce, produce_request

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(300)]

MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
PASSWORD = "pass=w,rd"
TOPIC, FORBIDDEN = "flights", "flights.secret"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "0123456789abcdef",
}
DENIED = 29
INVALID_CREDENTIALS = 58

View = dict[str, list[Any]]


class Stage:
    """A broker whose plain listener lets everyone do everything, and one where users log in."""

    def __init__(self, plain: str, secured: str) -> None:
        self.plain, self.secured = plain, secured

    async def opened(self, *, secured: bool = False) -> RawClient:
        host, _, port = (self.secured if secured else self.plain).rpartition(":")
        return await RawClient.connect(host, int(port))

    async def ask(self, message: Any, version: int) -> Any:
        client = await self.opened()
        answer = await client.request(message, version)
        await client.close()
        return answer

    async def user(self, name: str, mechanism: str = "SCRAM-SHA-512") -> RawClient:
        client = await self.opened(secured=True)
        answer = await log_in_scram(client, name, PASSWORD, mechanism=mechanism)
        assert answer.error_code == 0, answer
        return client

    async def until(self, name: str, value: list[Any]) -> None:
        """Wait until Kafka's broker has what its controller has answered for."""
        async with asyncio.timeout(30):
            while (await view(self))[name] != value:
                await asyncio.sleep(0.1)


@contextmanager
def ours(directory: Path) -> Iterator[Stage]:
    plain, secured = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
    secret = directory.parent / "token.key"
    secret.write_text(SETTINGS["delegation.token.secret.key"])
    secret.chmod(0o600)
    own = {**SETTINGS, "listeners": listeners, "delegation.token.secret.key": f"file:{secret}"}
    with TidelogProcess(directory, settings=own) as broker:
        yield Stage(broker.bootstrap, f"127.0.0.1:{secured}")


@contextmanager
def theirs(directory: Path, log_dir: Path, version: str) -> Iterator[Stage]:
    (secured,) = free_ports(1)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    jaas = {
        f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": module
        for mechanism in MECHANISMS
    }
    peer = KafkaPeer(
        directory,
        version=version,
        log_dir=log_dir,
        settings={**SETTINGS, **jaas},
        heap="512m",
        listeners={"SASL_PLAINTEXT": secured},
    )
    with peer:
        yield Stage(peer.bootstrap, f"127.0.0.1:{secured}")


async def view(stage: Stage) -> View:
    """All that requests say about users, rules, quotas and tokens."""
    rules = await stage.ask(
        DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=None, host_filter=None,
            operation=Operation.ANY, permission_type=Permission.ANY,
        ), 3,
    )  # fmt: skip
    users = await stage.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    quotas = await stage.ask(DescribeClientQuotasRequest(components=[], strict=False), 1)
    as_ann = await stage.user("ann")
    tokens = await as_ann.request(DescribeDelegationTokenRequest(owners=None), 3)
    await as_ann.close()
    for answer in (rules, users, quotas, tokens):
        assert answer.error_code == 0, answer
    return {
        "rules": sorted(
            (one.resource_type, one.resource_name, one.pattern_type,
             acl.principal, acl.host, acl.operation, acl.permission_type)
            for one in rules.resources for acl in one.acls
        ),
        "users": sorted(
            (one.user, info.mechanism, info.iterations)
            for one in users.results for info in one.credential_infos
        ),
        "quotas": sorted(
            (sorted((part.entity_type, part.entity_name or "") for part in entry.entity),
             sorted((value.key, value.value) for value in entry.values))
            for entry in quotas.entries
        ),
        "tokens": sorted(
            (one.token_id, bytes(one.hmac), one.principal_name, one.token_requester_principal_name,
             one.issue_timestamp, one.expiry_timestamp, one.max_timestamp,
             [renewer.principal_name for renewer in one.renewers])
            for one in tokens.tokens
        ),
    }  # fmt: skip


def rule(
    user: str, name: str, operation: Operation, *, deny: bool = False, host: str = "*"
) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=PatternType.PREFIXED if deny else PatternType.LITERAL,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission_type=Permission.DENY if deny else Permission.ALLOW,
    )


def quota(entity: Mapping[str, str | None], **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def password_of(*users: str) -> AlterUserScramCredentialsRequest:
    (mechanism, hash_name), salt = MECHANISMS["SCRAM-SHA-512"], bytes(range(16))
    salted = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), salt, 8192)
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=8192, salt=salt, salted_password=salted
            )
            for name in users
        ]
    )


async def fill(stage: Stage) -> None:
    """A bit of everything, made at the broker where it begins."""
    client = await stage.opened()
    for topic in (TOPIC, FORBIDDEN):
        await create_topic(client, topic)
    await client.close()
    answer = await stage.ask(password_of("ann", "bob", "gone"), 0)
    assert not any(one.error_code for one in answer.results)
    rules = [
        rule("*", TOPIC, Operation.READ),
        rule("ann", "*", Operation.WRITE),
        rule("ann", FORBIDDEN, Operation.WRITE, deny=True),
        rule("bob", TOPIC, Operation.ALL, host="10.0.0.7"),
        rule("bob", TOPIC, Operation.READ, deny=True, host="0:0:0:0:0:0:0:1"),
    ]
    created = await stage.ask(CreateAclsRequest(creations=rules), 3)
    assert not any(one.error_code for one in created.results)
    quotas = [
        quota({"user": "ann"}, producer_byte_rate=1_000_000.0, request_percentage=12.5),
        quota({"user": "ann", "client-id": None}, consumer_byte_rate=2_000_000.0),
        quota({"user": None}, controller_mutation_rate=5.5),
        quota({"ip": "10.0.0.7"}, connection_creation_rate=3.0),
    ]
    altered = await stage.ask(AlterClientQuotasRequest(entries=quotas), 1)
    assert not any(one.error_code for one in altered.entries)
    as_ann = await stage.user("ann")
    token = await as_ann.request(
        CreateDelegationTokenRequest(
            renewers=[TokenPrincipal(principal_type="User", principal_name="bob")],
            max_lifetime_ms=-1,
        ),
        3,
    )
    await as_ann.close()
    assert token.error_code == 0, token


async def change(stage: Stage) -> None:
    """Remove one of each kind, change another, at the broker to which it moved."""
    deleted = AclFilter(name=FORBIDDEN)
    answer = await stage.ask(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=deleted.resource_type, resource_name_filter=deleted.name,
                    pattern_type_filter=deleted.pattern, principal_filter=None, host_filter=None,
                    operation=deleted.operation, permission_type=deleted.permission,
                )
            ]
        ), 3,
    )  # fmt: skip
    assert [len(one.matching_acls) for one in answer.filter_results] == [1]
    await stage.ask(CreateAclsRequest(creations=[rule("bob", TOPIC, Operation.DESCRIBE)]), 3)
    removed = ScramCredentialDeletion(name="gone", mechanism=MECHANISMS["SCRAM-SHA-512"][0])
    await stage.ask(AlterUserScramCredentialsRequest(deletions=[removed]), 0)
    entries = [
        quota({"user": None}, controller_mutation_rate=None),
        quota({"user": "ann"}, producer_byte_rate=3_000_000.0),
    ]
    await stage.ask(AlterClientQuotasRequest(entries=entries), 1)


async def check_logins(stage: Stage, tokens: list[Any]) -> None:
    """The password and the token let ann in; the rules say what ann may write."""
    as_ann = await stage.user("ann")
    by_token = await stage.opened(secured=True)
    token_id, secret = tokens[0][:2]
    assert (await log_in_with_token(by_token, token_id, secret)).error_code == 0
    stranger = await stage.opened(secured=True)
    assert (await log_in_scram(stranger, "ann", "wrong")).error_code == INVALID_CREDENTIALS
    for client in (as_ann, by_token):
        await produce(client, TOPIC, batch("one"))
        answer = await client.request(produce_request(FORBIDDEN, batch("two")), 9)
        assert answer.responses[0].partition_responses[0].error_code == DENIED
        await client.close()
    await stranger.close()


def tool(name: str, bootstrap: str, *words: str) -> str:
    command = tool_command(name, "--bootstrap-server", bootstrap, *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("version", [NEWEST, LAST_WITH_OLD_PROTOCOLS])
def test_kafka_enforces_what_tidelog_kept(tmp_path: Path, version: str) -> None:
    with ours(tmp_path / "tide") as stage:
        asyncio.run(fill(stage))
        before = asyncio.run(view(stage))
    assert [len(before[name]) for name in before] == [5, 3, 4, 1]
    report = tidelog("export-kraft", tmp_path / "tide", tmp_path / "moved")
    assert any("3 users, 5 rules, 4 quotas, 1 token;" in note for note in report["notes"])

    with theirs(tmp_path / "kafka", tmp_path / "moved", version) as stage:
        assert asyncio.run(view(stage)) == before
        asyncio.run(check_logins(stage, before["tokens"]))
        if version == NEWEST:
            rules = tool("org.apache.kafka.tools.AclCommand", stage.plain, "--list")
            assert "principal=User:ann, host=*, operation=WRITE, permissionType=DENY" in rules
            words = ["--describe", "--entity-type", "users", "--entity-name", "ann"]
            described = tool("kafka.admin.ConfigCommand", stage.plain, *words)
            assert "SCRAM-SHA-512=iterations=8192" in described
            assert "producer_byte_rate=1000000.0" in described
        asyncio.run(change(stage))
        asyncio.run(stage.until("quotas", [row for row in _changed(before["quotas"]) if row]))
        after = asyncio.run(view(stage))
    assert len(after["rules"]) == 5
    assert [row[0] for row in after["users"]] == ["ann", "bob"]

    report = tidelog("import", tmp_path / "moved", tmp_path / "back")
    assert any("2 users, 5 rules, 3 quotas, 1 token;" in note for note in report["notes"])
    with ours(tmp_path / "back") as stage:
        assert asyncio.run(view(stage)) == after


def _changed(quotas: list[Any]) -> list[Any]:
    """The quotas after `change`."""
    return [
        (entity, [("producer_byte_rate", 3_000_000.0), ("request_percentage", 12.5)])
        if entity == [("user", "ann")]
        else (entity, values)
        for entity, values in quotas
        if entity != [("user", "")]
    ]
