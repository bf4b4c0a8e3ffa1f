"""`tidelog acl test` says what the broker decides, for random rules and random questions."""

import asyncio
import io
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from broker.security.acls import OPERATIONS_OF
from cli.exit_codes import ExitCode
from cli.main import run
from protocol.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.registry import request_class
from tests.requests_differential.conversation import Connection, error_codes
from tests.requests_differential.good import Body, batch
from tests.requests_differential.mutations import filled
from tests.rights.brokers import SUPER_USER, LoggedIn, Rule, Stage, add_rules, tidelog
from tests.rights.scenario import produced

ROUNDS: Final = 25
QUESTIONS_OF_ROUND: Final = 20
RULES_OF_ROUND: Final = 12
USERS: Final = ("alice", "bob", SUPER_USER)
NAMES: Final = ("a", "ab", "abc", "b")
HOSTS: Final = ("*", "127.0.0.1", "10.0.0.1")
REFUSALS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

_K, _O = ApiKey, Operation
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID = ResourceType.TRANSACTIONAL_ID
_OPTIONS: Final = {_TOPIC: "--topic", _GROUP: "--group", _ID: "--transactional-id"}

Right = tuple[ResourceType, Operation]


class Request(NamedTuple):
    """A request that needs one right, about something that does not exist."""

    api: ApiKey
    version: int
    body: Callable[[str], Body]


def _fetch(name: str, replica_id: int) -> Body:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    return {
        "replica_id": replica_id,
        "max_wait_ms": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": [partition]}],
    }


def _settings(kind: int) -> Callable[[str], Body]:
    return lambda name: {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    }


def _changes(kind: int) -> Callable[[str], Body]:
    return lambda name: {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": []}],
        "validate_only": True,
    }


REQUESTS: Final[dict[Right, Request]] = {
    (_TOPIC, _O.READ): Request(_K.FETCH, 12, lambda name: _fetch(name, -1)),
    (_TOPIC, _O.WRITE): Request(_K.PRODUCE, 11, lambda name: produced(name, batch())),
    (_TOPIC, _O.DELETE): Request(
        _K.DELETE_RECORDS,
        2,
        lambda name: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 30_000,
        },
    ),
    (_TOPIC, _O.ALTER): Request(
        _K.CREATE_PARTITIONS,
        3,
        lambda name: {
            "topics": [{"name": name, "count": 2, "assignments": None}],
            "timeout_ms": 30_000,
        },
    ),
    (_TOPIC, _O.DESCRIBE): Request(
        _K.LIST_OFFSETS,
        7,
        lambda name: {
            "replica_id": -1,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    ),
    (_TOPIC, _O.DESCRIBE_CONFIGS): Request(_K.DESCRIBE_CONFIGS, 4, _settings(2)),
    (_TOPIC, _O.ALTER_CONFIGS): Request(_K.INCREMENTAL_ALTER_CONFIGS, 1, _changes(2)),
    (_GROUP, _O.READ): Request(
        _K.HEARTBEAT, 4, lambda name: {"group_id": name, "generation_id": 1, "member_id": "m"}
    ),
    (_GROUP, _O.DELETE): Request(_K.DELETE_GROUPS, 2, lambda name: {"groups_names": [name]}),
    (_GROUP, _O.DESCRIBE): Request(_K.DESCRIBE_GROUPS, 5, lambda name: {"groups": [name]}),
    (_GROUP, _O.DESCRIBE_CONFIGS): Request(_K.DESCRIBE_CONFIGS, 4, _settings(32)),
    (_GROUP, _O.ALTER_CONFIGS): Request(_K.INCREMENTAL_ALTER_CONFIGS, 1, _changes(32)),
    (_ID, _O.WRITE): Request(
        _K.END_TXN,
        3,
        lambda name: {
            "transactional_id": name,
            "producer_id": 1,
            "producer_epoch": 0,
            "committed": True,
        },
    ),
    (_ID, _O.DESCRIBE): Request(_K.FIND_COORDINATOR, 3, lambda name: {"key": name, "key_type": 1}),
    (_CLUSTER, _O.ALTER): Request(
        _K.ALTER_PARTITION_REASSIGNMENTS, 0, lambda name: {"timeout_ms": 30_000, "topics": []}
    ),
    (_CLUSTER, _O.DESCRIBE): Request(_K.DESCRIBE_QUORUM, 2, lambda name: {"topics": []}),
    (_CLUSTER, _O.CLUSTER_ACTION): Request(_K.FETCH, 12, lambda name: _fetch("no-topic", 1)),
    (_CLUSTER, _O.DESCRIBE_CONFIGS): Request(
        _K.LIST_CONFIG_RESOURCES, 1, lambda name: {"resource_types": []}
    ),
    (_CLUSTER, _O.ALTER_CONFIGS): Request(
        _K.INCREMENTAL_ALTER_CONFIGS, 1, lambda name: _changes(4)("")
    ),
}
"""A request for each right that no other right stands in for."""


def _name(kind: ResourceType, chosen: random.Random, *more: str) -> str:
    return CLUSTER_NAME if kind is _CLUSTER else chosen.choice((*NAMES, *more))


def _random_rule(chosen: random.Random) -> tuple[str, Rule]:
    kind = chosen.choice((_TOPIC, _GROUP, _ID, _CLUSTER))
    prefixed = kind is not _CLUSTER and chosen.random() < 0.4
    rule = Rule(
        kind,
        _name(kind, chosen, "*"),
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        chosen.choice((Operation.ALL, *OPERATIONS_OF[kind])),
        Permission.DENY if chosen.random() < 0.3 else Permission.ALLOW,
        chosen.choice(HOSTS),
    )
    return chosen.choice(("alice", "bob", "*")), rule


async def _replace_rules(stage: Stage, rules: list[tuple[str, Rule]]) -> None:
    admin = Connection(stage.plain)
    everything: Body = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    await admin.do(_K.DELETE_ACLS, 3, {"filters": [everything]})
    await add_rules(admin, [rule.for_user(user) for user, rule in rules])
    await admin.close()


async def _is_allowed_by_broker(stage: Stage, user: str, right: Right, name: str) -> bool:
    api, version, body = REQUESTS[right]
    connection = LoggedIn(stage.secured, user)
    answer: Any = await connection.ask(api, version, filled(request_class(api), body(name)))
    await connection.close()
    assert not isinstance(answer, str), (api, answer)
    return not REFUSALS & set(error_codes(answer))


def _is_allowed_by_command(stage: Stage, user: str, right: Right, name: str) -> bool:
    kind, operation = right
    resource = ["--cluster"] if kind is _CLUSTER else [_OPTIONS[kind], name]
    words = ["acl", "test", "-b", stage.plain, "--user", user]
    words += ["--op", operation.name.lower().replace("_", "-"), *resource]
    with redirect_stdout(io.StringIO()) as output:
        code = run(words)
    shown = {ExitCode.OK: "allowed: ", ExitCode.FAILED: "denied: "}
    assert output.getvalue().startswith(shown[ExitCode(code)]), output.getvalue()
    return code == ExitCode.OK


@pytest.mark.timeout(300)
@pytest.mark.parametrize("without_rules", ["false", "true"])
def test_the_command_decides_as_the_broker(tmp_path: Path, without_rules: str) -> None:
    chosen = random.Random(without_rules)
    settings = {"allow.everyone.if.no.acl.found": without_rules}
    decisions = []
    with tidelog(tmp_path, USERS, settings) as stage:
        for _ in range(ROUNDS):
            rules = [_random_rule(chosen) for _ in range(RULES_OF_ROUND)]
            asyncio.run(_replace_rules(stage, rules))
            for _ in range(QUESTIONS_OF_ROUND):
                right = chosen.choice(list(REQUESTS))
                question = stage, chosen.choice(USERS), right, _name(right[0], chosen)
                by_broker = asyncio.run(_is_allowed_by_broker(*question))
                assert _is_allowed_by_command(*question) == by_broker, (question[1:], rules)
                decisions.append(by_broker)
    # Both answers are common, so that neither is right by chance.
    assert min(map(decisions.count, (True, False))) > len(decisions) // 5
