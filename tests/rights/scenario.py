"""One flow on one broker: users, topics, rules that come and go, and what was answered."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from protocol.acl import Operation, PatternType, Permission, ResourceType
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.scan import scan_entries
from protocol.registry import request_class
from tests.requests_differential.conversation import Connection, error_codes
from tests.requests_differential.good import Body, batch
from tests.requests_differential.mutations import filled
from tests.rights.brokers import LoggedIn, Rule, Stage, add_rules

Right = tuple[ResourceType, str, Operation]

SETTLED_S: Final = 20.0
_K = ApiKey
_PASSING: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
}


def name(code: int) -> str:
    """An error code as Kafka calls it."""
    return ErrorCode(code).name


class Scenario:
    """One flow on one broker: its users, its topics, and the lines so far."""

    def __init__(self, stage: Stage, flow: str) -> None:
        self.stage = stage
        self.flow = flow
        self.admin = Connection(stage.plain)
        self.lines: list[str] = []
        self.ids: dict[bytes, str] = {}
        self._users: list[Connection] = []

    def user(self, user: str) -> LoggedIn:
        """A connection of a user, closed at the end."""
        connection = LoggedIn(self.stage.secured, user)
        self._users.append(connection)
        return connection

    def note(self, step: str, outcome: object) -> None:
        """Keep what a user was answered."""
        self.lines.append(f"{step}: {outcome}")

    def own(self, word: str) -> str:
        """A name of this flow only."""
        return f"{self.flow}-{word}"

    async def ask(self, who: Connection, api: ApiKey, version: int, body: Body) -> Any:
        """The answer to a request."""
        return await who.ask(api, version, filled(request_class(api), body))

    async def settle(self, who: Connection, api: ApiKey, version: int, body: Body) -> Any:
        """The first answer that is not that of a broker which is still busy."""
        deadline = asyncio.get_running_loop().time() + SETTLED_S
        while True:
            answer = await self.ask(who, api, version, body)
            is_late = asyncio.get_running_loop().time() > deadline
            if is_late or not _PASSING & set(error_codes(answer)):
                return answer
            await asyncio.sleep(0.05)

    async def topics(self, *words: str) -> list[str]:
        """New topics of one partition with one record."""
        names = [self.own(word) for word in words]
        rows = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in names]
        made = await self.admin.do(_K.CREATE_TOPICS, 7, {"topics": rows, "timeout_ms": 30_000})
        self.ids |= {topic.topic_id: topic.name for topic in made.topics}
        for topic in names:
            await self.append(topic)
        return names

    async def append(self, topic: str) -> None:
        """Write a record, as an administrator."""
        await self.admin.do(_K.PRODUCE, 11, produced(topic, batch()))

    async def group(self) -> str:
        """The name of a group whose coordinator is ready."""
        return await self._coordinated("group", 0)

    async def transactional_id(self) -> str:
        """A transactional id whose coordinator is ready."""
        return await self._coordinated("id", 1)

    async def _coordinated(self, word: str, key_type: int) -> str:
        key = self.own(word)
        await self.admin.do(_K.FIND_COORDINATOR, 1, {"key": key, "key_type": key_type})
        return key

    async def allow(self, user: str, *rights: Right) -> None:
        """Allow operations; in force on return."""
        await self._add(user, Permission.ALLOW, rights)

    async def deny(self, user: str, *rights: Right) -> None:
        """Deny operations; in force on return."""
        await self._add(user, Permission.DENY, rights)

    async def _add(self, user: str, permission: Permission, rights: Iterable[Any]) -> None:
        rules = [
            Rule(kind, resource, PatternType.LITERAL, operation, permission)
            for kind, resource, operation in rights
        ]
        await add_rules(self.admin, [rule.for_user(user) for rule in rules])
        await self._until_in_force(user, rights, is_there=True)

    async def revoke(self, user: str, *rights: Right) -> None:
        """Delete the rules about operations; out of force on return."""
        filters = [_filter(user, right) for right in rights]
        answer = await self.ask(self.admin, _K.DELETE_ACLS, 3, {"filters": filters})
        assert all(len(result.matching_acls) == 1 for result in answer.filter_results), answer
        await self._until_in_force(user, rights, is_there=False)

    async def _until_in_force(self, user: str, rights: Iterable[Any], *, is_there: bool) -> None:
        for right in rights:
            asked = _filter(user, right)
            while True:
                found = await self.ask(self.admin, _K.DESCRIBE_ACLS, 3, asked)
                if bool(found.resources) is is_there:
                    break
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close every connection."""
        for connection in (*self._users, self.admin):
            await connection.close()


def _filter(user: str, right: Right) -> Body:
    kind, resource, operation = right
    return {
        "resource_type_filter": kind,
        "resource_name_filter": resource,
        "pattern_type_filter": PatternType.LITERAL,
        "principal_filter": f"User:{user}",
        "host_filter": None,
        "operation": operation,
        "permission_type": Permission.ANY,
    }


def errors(answer: Any) -> str:
    """The names of the error codes in an answer."""
    return answer if isinstance(answer, str) else " ".join(map(name, error_codes(answer)))


def produced(topic: str, records: bytes, transactional_id: str | None = None) -> Body:
    """A request that writes a batch."""
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    return {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [data],
    }


def wanted(topics: dict[str, int], ids: dict[bytes, str], wait_ms: int = 100) -> Body:
    """A fetch without a session, from these offsets on."""
    by_name = {topic: topic_id for topic_id, topic in ids.items()}
    rows = [
        {
            "topic": topic,
            "topic_id": by_name[topic],
            "partitions": [
                {
                    "partition": 0,
                    "current_leader_epoch": -1,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1 << 20,
                }
            ],
        }
        for topic, offset in topics.items()
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": rows,
    }


def fetched(scenario: Scenario, answer: Any) -> str:
    """The code and the number of batches of each partition in an answer."""
    if isinstance(answer, str):
        return answer
    rows = sorted(
        f"{(topic.topic or scenario.ids[topic.topic_id]).rpartition('-')[2]}="
        f"{name(partition.error_code)}/{len(list(scan_entries(partition.records or b'')))}"
        for topic in answer.responses
        for partition in topic.partitions
    )
    return " ".join([name(answer.error_code), *rows])
