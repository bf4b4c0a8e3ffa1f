"""kill -9 of a real broker while users, rules and tokens change: never half, nothing lost.

Three clients change things one request after another: each request sets or removes several users,
rules or a token. The process is killed at a random moment. After the restart each kind has exactly
what was acknowledged, with the one request under way done whole or not at all; and a user logs in.

`KILL9_SECURITY_CYCLES=50` sets the number of kills.
"""

import asyncio
import hashlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import Operation, PatternType, Permission, ResourceType
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.create_delegation_token import CreateDelegationTokenRequest
from protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.api.expire_delegation_token import ExpireDelegationTokenRequest
from tests.support.broker import BrokerProcess, ConnectionClosed, RawClient
from tests.support.kafka_peer import free_ports
from tests.support.logins import log_in_scram

CYCLES = int(os.environ.get("KILL9_SECURITY_CYCLES", "4"))
SEED = 20261122
ROOT, PASSWORD = "root", "secret"
AT_ONCE = 5
"""Users or rules of one request."""

SALT, SALTED = bytes(16), hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), bytes(16), 4096)
SCRAM_SHA_512 = 2

State = dict[str, int]


@dataclass
class Kind:
    """What one client knows of its kind: acknowledged, and after the request under way."""

    acked: State = field(default_factory=dict)
    intended: State = field(default_factory=dict)
    requests: int = 0

    async def change(self, send: Callable[[], Awaitable[Any]], after: State) -> Any:
        """Send a request that leads to `after`, and note that it was answered."""
        self.intended = after
        answer = await send()
        self.acked = after
        self.requests += 1
        return answer

    def settle(self, found: State) -> None:
        """After a restart: what is there is what was acknowledged, or one whole request more."""
        assert found in (self.acked, self.intended), (
            f"{len(found)} found: {_unlike(found, self.acked)} from what was acknowledged, "
            f"{_unlike(found, self.intended)} from the request under way"
        )
        self.acked = self.intended = found


def _unlike(found: State, wanted: State) -> str:
    more, fewer = found.items() - wanted.items(), wanted.items() - found.items()
    return f"{sorted(more)[:3]} more and {sorted(fewer)[:3]} fewer"


def upsertion(name: str, iterations: int) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=SCRAM_SHA_512, iterations=iterations, salt=SALT, salted_password=SALTED
    )


async def change_users(client: RawClient, users: Kind, source: random.Random) -> None:
    """Sets and removes users; the number of iterations says which request set one."""
    while True:
        names = [f"user-{number}" for number in source.sample(range(40), AT_ONCE)]
        gone = [name for name in names if name in users.acked and source.random() < 0.5]
        iterations = 4096 + users.requests % 10_000
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=n, mechanism=SCRAM_SHA_512) for n in gone],
            upsertions=[upsertion(name, iterations) for name in names if name not in gone],
        )
        after = {**users.acked, **dict.fromkeys(names, iterations)}
        for name in gone:
            del after[name]
        answer = await users.change(partial(client.request, request, 0), after)
        assert not any(result.error_code for result in answer.results)


async def change_rules(client: RawClient, rules: Kind, source: random.Random) -> None:
    """Adds rules of one principal, and removes all rules of one."""
    while True:
        principal = f"User:{source.randrange(20)}"
        present = [name for name in rules.acked if name.startswith(f"{principal}/")]
        if present:
            chosen = DeleteAclsFilter(
                resource_type_filter=ResourceType.ANY, resource_name_filter=None,
                pattern_type_filter=PatternType.ANY, principal_filter=principal, host_filter=None,
                operation=Operation.ANY, permission_type=Permission.ANY,
            )  # fmt: skip
            after = {name: one for name, one in rules.acked.items() if name not in present}
            removal = DeleteAclsRequest(filters=[chosen])
            await rules.change(partial(client.request, removal, 3), after)
            continue
        topics = [f"topic-{number}" for number in range(AT_ONCE)]
        creation = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=ResourceType.TOPIC, resource_name=topic,
                    resource_pattern_type=PatternType.LITERAL, principal=principal, host="*",
                    operation=Operation.READ, permission_type=Permission.ALLOW,
                )
                for topic in topics
            ]
        )  # fmt: skip
        after = {**rules.acked, **{f"{principal}/{topic}": 1 for topic in topics}}
        answer = await rules.change(partial(client.request, creation, 3), after)
        assert not any(result.error_code for result in answer.results)


async def change_tokens(client: RawClient, tokens: Kind, source: random.Random) -> None:
    """Makes and removes tokens; one under way is known by its lifetime alone, as its id is not."""
    secrets: dict[str, bytes] = {}
    while True:
        if secrets and source.random() < 0.5:
            lifetime = source.choice(sorted(secrets))
            request: Any = ExpireDelegationTokenRequest(
                hmac=secrets.pop(lifetime), expiry_time_period_ms=-1
            )
            after = {name: one for name, one in tokens.acked.items() if name != lifetime}
            answer = await tokens.change(partial(client.request, request, 2), after)
        else:
            lifetime_ms = source.randrange(1_000_000, 500_000_000)
            request = CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms)
            after = {**tokens.acked, str(lifetime_ms): 1}
            answer = await tokens.change(partial(client.request, request, 3), after)
            secrets[str(lifetime_ms)] = bytes(answer.hmac)
        assert answer.error_code == 0, answer


class Scene:
    """The kinds, and the clients of the running broker."""

    def __init__(self, plain: int, sasl: int) -> None:
        self.plain, self.sasl = plain, sasl
        self.users, self.rules, self.tokens = Kind(), Kind(), Kind()

    async def anonymous(self) -> RawClient:
        return await RawClient.connect("127.0.0.1", self.plain)

    async def root(self) -> RawClient:
        client = await RawClient.connect("127.0.0.1", self.sasl)
        answer = await log_in_scram(client, ROOT, PASSWORD)
        assert answer.error_code == 0, answer
        return client

    async def prepare(self) -> None:
        client = await self.anonymous()
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion(ROOT, 4096)])
        answer = await client.request(request, 0)
        assert answer.results[0].error_code == 0
        await client.close()

    async def check(self) -> None:
        """Compare what the broker has with what it had acknowledged."""
        client, root = await self.anonymous(), await self.root()
        users = await client.request(DescribeUserScramCredentialsRequest(users=None), 0)
        self.users.settle(
            {
                result.user: result.credential_infos[0].iterations
                for result in users.results
                if result.user != ROOT
            }
        )
        every = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=None, host_filter=None,
            operation=Operation.ANY, permission_type=Permission.ANY,
        )  # fmt: skip
        found = (await client.request(every, 3)).resources
        self.rules.settle(
            {f"{acl.principal}/{one.resource_name}": 1 for one in found for acl in one.acls}
        )
        tokens = await root.request(DescribeDelegationTokenRequest(owners=None), 3)
        self.tokens.settle(
            {str(token.max_timestamp - token.issue_timestamp): 1 for token in tokens.tokens}
        )
        for token in tokens.tokens:
            removal = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
            assert (await root.request(removal, 2)).error_code == 0
        self.tokens = Kind(requests=self.tokens.requests)
        await client.close()
        await root.close()

    async def change_until(self, kill: Callable[[], object], seconds: float, seed: int) -> None:
        """Change everything at once until `kill` ends the broker."""
        source = random.Random(seed)
        clients = [await self.anonymous(), await self.anonymous(), await self.root()]
        work = [
            change_users(clients[0], self.users, source),
            change_rules(clients[1], self.rules, source),
            change_tokens(clients[2], self.tokens, source),
        ]
        tasks = [asyncio.ensure_future(one) for one in work]
        await asyncio.sleep(seconds)
        kill()
        for task in tasks:
            with suppress(ConnectionClosed, ConnectionError):
                await task
        for client in clients:
            await client.close()


@pytest.mark.timeout(120 + 10 * CYCLES)
def test_changes_of_users_rules_and_tokens_survive_kill_9(tmp_path: Path) -> None:
    source = random.Random(SEED)
    plain, sasl = free_ports(2)
    key = tmp_path / "token.key"
    key.write_text("a secret key")
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        "delegation.token.secret.key": f"file:{key}",
    }
    scene = Scene(plain, sasl)
    for cycle in range(CYCLES + 1):
        broker = BrokerProcess(tmp_path / "data", **settings)
        try:
            broker.wait_ready()
            asyncio.run(scene.prepare() if cycle == 0 else scene.check())
            if cycle == CYCLES:
                assert broker.stop() == 0
                break
            asyncio.run(
                scene.change_until(broker.process.kill, source.uniform(0.02, 0.4), SEED + cycle)
            )
        finally:
            if broker.process.poll() is None:
                broker.stop(signal.SIGKILL)
            else:
                broker.process.communicate()
    counts = [kind.requests for kind in (scene.users, scene.rules, scene.tokens)]
    assert min(counts) > CYCLES
    print(f"\n{CYCLES} kills, {counts} acknowledged changes of users, rules, tokens; 0 lost")
