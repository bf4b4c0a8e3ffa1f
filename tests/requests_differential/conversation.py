"""One broker: the scenes are set up, every case is sent, and what came back is kept.

Several connections work through the cases at the same time, each with one request in flight: what a
case does is seen by that case alone (`scene` says how), so their order does not matter. First come
the requests that only read, while both brokers still hold the same few things; then the others;
and at the end the requests that show what those did.
"""

import asyncio
import base64
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.errors import MalformedRequest
from protocol.registry import request_class
from tests.requests_differential.good import (
    ASSIGNMENT,
    SUBSCRIPTION,
    Body,
    batch,
    transactional_batch,
)
from tests.requests_differential.mutations import COMPARED, Case, encoded, filled, served
from tests.requests_differential.normal import Answer, normal
from tests.requests_differential.scene import (
    COMMON_TOPIC,
    OTHER_TOPIC,
    REBALANCE_MS,
    RECORDS,
    SESSION_MS,
    SHARED,
    SHARED_TOPIC,
    TRANSACTION_MS,
    Need,
    Scene,
)
from tests.support.broker import ConnectionClosed, RawClient

WORKERS: Final = 64
ANSWER_S: Final = 30.0
"""After this long a request has no answer; what takes longest waits for `REBALANCE_MS`."""

SETTLE_S: Final = 60.0
SETUP_S: Final = 180.0
"""For an answer of the set-up: hundreds of topics take long on a disk that others use too."""

TOPICS_AT_ONCE: Final = 200
CLOSED: Final = "connection closed"
NO_ANSWER: Final = "no answer"
UNWANTED: Final = "an answer that was not asked for"

_PASSING: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
)


class Seen(NamedTuple):
    """The answer to a case, and the answers to the requests that look at what it did."""

    answer: Answer
    after: tuple[Answer, ...]


class Connection:
    """A connection that is opened again when the broker has closed it."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._client: RawClient | None = None

    async def opened(self, host: str, port: int) -> RawClient:
        """A new connection that takes requests."""
        return await RawClient.connect(host, port)

    async def ask(self, api: ApiKey, version: int, message: Any, within_s: float = ANSWER_S) -> Any:
        """The answer; `CLOSED` or `NO_ANSWER` where there is none."""
        try:
            if self._client is None:
                self._client = await self.opened(*self._address)
            sent = self._client.send_body(api, version, encoded(message, version))
            if api is ApiKey.PRODUCE and message.acks == 0:
                return await self._after_silence(sent)
            return await self._client.receive(within_s)
        except (ConnectionClosed, ConnectionResetError, BrokenPipeError):
            await self.close()
            return CLOSED
        except TimeoutError:
            await self.close()
            return NO_ANSWER

    async def _after_silence(self, sent: int) -> str:
        """What follows a request that asks for no answer: that of the next one, or too much."""
        assert self._client is not None
        self._client.forget_last()
        self._client.send(request_class(ApiKey.API_VERSIONS)(), 0)
        self._client.forget_last()
        frame = await self._client.receive_frame(ANSWER_S)
        if int.from_bytes(frame[:4]) == sent:
            await self.close()
            return UNWANTED
        return NO_ANSWER

    async def do(self, api: ApiKey, version: int, body: Body) -> Any:
        """Part of a set-up: the answer, which has to be a good one once the broker has settled."""
        deadline = asyncio.get_running_loop().time() + SETTLE_S
        while True:
            message = filled(request_class(api), body)
            answer = await self.ask(api, version, message, SETUP_S)
            errors = set(error_codes(answer)) - {ErrorCode.NONE}
            if not errors and not isinstance(answer, str):
                return answer
            late = asyncio.get_running_loop().time() > deadline
            is_passing = bool(errors) and errors <= set(_PASSING)
            if late or not is_passing:
                raise AssertionError(f"{api.name} v{version} {body}: {answer}")
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        if self._client is not None:
            with suppress(OSError):
                await self._client.close()
        self._client = None


def error_codes(answer: Any) -> Iterable[int]:
    """Every error code in an answer, in order."""
    if isinstance(answer, list):
        for element in answer:
            yield from error_codes(element)
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield value
        yield from error_codes(value)


class Conversation:
    """All cases to one broker."""

    def __init__(self, bootstrap: str, log_dir: str) -> None:
        self._bootstrap = bootstrap
        self._log_dir = log_dir
        self._cluster_id = ""
        self._has_states = False
        self._ids: dict[str, bytes] = {}

    async def run(self, cases: Sequence[Case]) -> list[Seen]:
        """What came back, in the order of the cases."""
        scenes = [
            Scene(SHARED if case.flavour.reads else f"c{n:05}") for n, case in enumerate(cases)
        ]
        setup = Connection(self._bootstrap)
        answer = await setup.do(ApiKey.METADATA, 12, {"topics": []})
        self._cluster_id = answer.cluster_id
        await self._check_versions(setup)
        for key_type in (0, 1):
            # Kafka makes the internal topics when it is first asked for a coordinator.
            await setup.do(ApiKey.FIND_COORDINATOR, 1, {"key": SHARED, "key_type": key_type})
        await self._make_topics(setup, [SHARED_TOPIC, OTHER_TOPIC, COMMON_TOPIC])
        shared = self._scene(Scene(SHARED), Need.NOTHING, SHARED_TOPIC)
        everything = Need.MEMBER | Need.COMMITS | Need.CONSUMER | Need.TRANSACTION
        await self._prepare(setup, shared, everything)
        answers: list[Answer] = [{} for _ in cases]
        after: list[list[Answer]] = [[] for _ in cases]
        readers = [n for n, case in enumerate(cases) if case.flavour.reads]
        for n in readers:
            scenes[n] = shared

        async def read(connection: Connection, n: int) -> None:
            answers[n] = await self._send(connection, cases[n], scenes[n])

        await self._work(read, readers)
        writers = [n for n, case in enumerate(cases) if not case.flavour.reads]
        own = [n for n in writers if Need.OWN_TOPIC in cases[n].flavour.needs]
        await self._make_topics(setup, [f"{scenes[n].case}-topic" for n in own])
        await setup.close()

        async def write(connection: Connection, n: int) -> None:
            needs = cases[n].flavour.needs
            is_own = bool(needs & (Need.OWN_TOPIC | Need.OWN_NAME))
            topic = f"{scenes[n].case}-topic" if is_own else COMMON_TOPIC
            scene = scenes[n] = self._scene(scenes[n], needs, topic)
            await self._prepare(connection, scene, needs)
            answers[n] = await self._send(connection, cases[n], scene)

        async def look(connection: Connection, n: int) -> None:
            for api, version, body in cases[n].flavour.after(scenes[n]):
                message = filled(request_class(api), body)
                answer = await connection.ask(api, version, message)
                after[n].append(normal(answer, version, scenes[n], message))

        await self._work(write, writers)
        await self._work(look, writers)
        return [Seen(*pair) for pair in zip(answers, map(tuple, after), strict=True)]

    def _scene(self, scene: Scene, needs: Need, topic: str) -> Scene:
        scene.topic = topic
        scene.topic_id = self._ids.get(topic, scene.topic_id)
        scene.other_id = self._ids[OTHER_TOPIC]
        scene.ids = {**{i: n for n, i in self._ids.items() if n in _KNOWN}, scene.topic_id: topic}
        scene.log_dir = self._log_dir
        scene.cluster_id = self._cluster_id
        scene.port = int(self._bootstrap.rpartition(":")[2])
        return scene

    async def _work(self, act: Any, numbers: Sequence[int]) -> None:
        left = deque(numbers)

        async def worker() -> None:
            connection = Connection(self._bootstrap)
            while left:
                await act(connection, left.popleft())
            await connection.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(worker())

    async def _send(self, connection: Connection, case: Case, scene: Scene) -> Answer:
        message = case.request(scene)
        try:
            answer = await connection.ask(case.api, case.version, message)
        except MalformedRequest as error:
            await connection.close()
            answer = f"an answer that cannot be read: {error}"
        return normal(answer, case.version, scene, message)

    # -- setting up ------------------------------------------------------------------------------

    async def _check_versions(self, connection: Connection) -> None:
        answer = await connection.do(ApiKey.API_VERSIONS, 0, {})
        offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        for api in COMPARED:
            least, most = offered[api]
            versions = served(api)
            assert least <= versions.min, f"{api.name}: served from {least} on"
            assert versions.max <= most, f"{api.name}: served up to {most}"

    async def _make_topics(self, connection: Connection, names: Sequence[str]) -> None:
        """Topics of one partition with records; all exist on return."""
        for start in range(0, len(names), TOPICS_AT_ONCE):
            some = names[start : start + TOPICS_AT_ONCE]
            topics = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in some]
            made = await connection.do(
                ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 60_000}
            )
            self._ids |= {topic.name: topic.topic_id for topic in made.topics}
            # A leader may be known before it takes records, so wait until each tells its end.
            asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
            ends = [{"name": name, "partitions": [asked]} for name in some]
            await connection.do(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": ends})
            partition = {"index": 0, "records": batch()}
            data = [{"name": name, "partition_data": [partition]} for name in some]
            for _ in range(RECORDS):
                body = {"acks": -1, "timeout_ms": 60_000, "topic_data": data}
                await connection.do(ApiKey.PRODUCE, 11, body)
            # No produce was repeated, or there would be more.
            answer = await connection.do(ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": ends})
            assert {t.partitions[0].offset for t in answer.topics} == {RECORDS}

    async def _prepare(self, connection: Connection, scene: Scene, needs: Need) -> None:
        if Need.MEMBER in needs:
            await self._add_member(connection, scene)
        if Need.COMMITS in needs:
            await self._commit(connection, scene, scene.idle_group, -1, "")
        if Need.CONSUMER in needs:
            await self._add_consumer(connection, scene)
        if Need.PRODUCER in needs or Need.TRANSACTION in needs:
            body: Body = {
                "transactional_id": scene.transactional_id,
                "transaction_timeout_ms": TRANSACTION_MS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            made = await connection.do(ApiKey.INIT_PRODUCER_ID, 4, body)
            scene.producer_id, scene.producer_epoch = made.producer_id, made.producer_epoch
        if Need.TRANSACTION in needs:
            await self._open_transaction(connection, scene)
        if Need.STATES in needs and not self._has_states:
            await self._keep_states(connection)

    async def _keep_states(self, connection: Connection) -> None:
        topic_id = self._ids[OTHER_TOPIC]
        name = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        asked = {"key_type": 2, "coordinator_keys": [f"{SHARED}:{name}:0"]}
        message = filled(request_class(ApiKey.FIND_COORDINATOR), asked)
        await connection.ask(ApiKey.FIND_COORDINATOR, 6, message)
        topics = [{"topic_id": topic_id, "partitions": [{"partition": 0}]}]
        body = {"group_id": SHARED, "topics": topics}
        await connection.do(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, body)
        self._has_states = True

    async def _add_member(self, connection: Connection, scene: Scene) -> None:
        joined = await connection.do(
            ApiKey.JOIN_GROUP,
            3,
            {
                "group_id": scene.group,
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            },
        )
        scene.member_id, scene.generation = joined.member_id, joined.generation_id
        await connection.do(
            ApiKey.SYNC_GROUP,
            2,
            {
                "group_id": scene.group,
                "generation_id": scene.generation,
                "member_id": scene.member_id,
                "assignments": [{"member_id": scene.member_id, "assignment": ASSIGNMENT}],
            },
        )
        await self._commit(connection, scene, scene.group, scene.generation, scene.member_id)

    async def _commit(
        self, connection: Connection, scene: Scene, group: str, generation: int, member_id: str
    ) -> None:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "set up"}
        body: Body = {
            "group_id": group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "topics": [{"name": scene.topic, "partitions": [partition]}],
        }
        await connection.do(ApiKey.OFFSET_COMMIT, 6, body)

    async def _add_consumer(self, connection: Connection, scene: Scene) -> None:
        body: Body = {
            "group_id": scene.consumer_group,
            "member_id": scene.consumer_member,
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": [scene.topic],
            "topic_partitions": [],
        }
        answer = await connection.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)
        while answer.assignment is None or not answer.assignment.topic_partitions:
            await asyncio.sleep(0.02)
            steady = {**body, "member_epoch": answer.member_epoch}
            answer = await connection.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, steady)
        owned = {"topic_id": scene.topic_id, "partitions": [0]}
        done = {**body, "member_epoch": answer.member_epoch, "topic_partitions": [owned]}
        answer = await connection.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, done)
        scene.member_epoch = answer.member_epoch

    async def _open_transaction(self, connection: Connection, scene: Scene) -> None:
        producer = {
            "v3_and_below_transactional_id": scene.transactional_id,
            "v3_and_below_producer_id": scene.producer_id,
            "v3_and_below_producer_epoch": scene.producer_epoch,
        }
        topic = {"name": scene.topic, "partitions": [0]}
        await connection.do(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**producer, "v3_and_below_topics": [topic]}
        )
        partition = {"index": 0, "records": transactional_batch(scene, 0)}
        body: Body = {
            "transactional_id": scene.transactional_id,
            "acks": -1,
            "timeout_ms": 60_000,
            "topic_data": [{"name": scene.topic, "partition_data": [partition]}],
        }
        await connection.do(ApiKey.PRODUCE, 11, body)


_KNOWN: Final = (SHARED_TOPIC, OTHER_TOPIC, COMMON_TOPIC)
