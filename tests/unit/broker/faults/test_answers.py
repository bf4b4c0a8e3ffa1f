"""The error that a fault puts into an answer, for every API and version that can have one."""

import random
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import ConnectionMustClose
from broker.faults.answers import can_fail, failed, groups_of, names_groups, names_topics, topics_of
from broker.fetch.sessions import FetchSessions
from broker.requests.context import Context, RequestContext
from broker.requests.features import served_apis
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import ApiKey
from protocol.declare.primitives import INT32, field_specs
from protocol.error_codes import ErrorCode
from protocol.headers import decode_response_header
from protocol.registry import ServerCodec, decode_response, request_class, response_class
from tests.support.clock import FrozenClock

CODE = ErrorCode.NOT_ENOUGH_REPLICAS
PARTITION = 3
HERE, THERE = bytes([1]) * 16, bytes([2]) * 16
INDEXES = ("index", "partition")
IDS = {HERE: "here", THERE: "there"}


def context() -> Context:
    def find_by_id(topic_id: bytes) -> Any:
        return SimpleNamespace(name=IDS[topic_id]) if topic_id in IDS else None

    sessions = FetchSessions(10, clock=FrozenClock(), source=random.Random(1))
    topics = SimpleNamespace(find_by_id=find_by_id)
    return cast(Context, SimpleNamespace(topics=topics, fetch_sessions=sessions))


def request(key: ApiKey, version: int) -> RequestContext:
    return RequestContext(key, version, 7, "me", "127.0.0.1", 1)


def sample(key: ApiKey, version: int, names: tuple[str, ...] = ("here",)) -> Any:
    """A request with a partition of each topic, where the API has topics."""
    message = request_class(key)()
    for name, spec in field_specs(request_class(key)):
        is_struct = isinstance(spec.element, type)
        if name != "forgotten_topics_data" and spec.is_array and is_struct:
            setattr(message, name, [part(spec.element, topic) for topic in names])
    return message


def part(cls: Any, topic: str) -> Any:
    """A topic of a request, with one partition."""
    given: dict[str, Any] = {}
    for name, spec in field_specs(cls):
        if name in ("name", "topic", "group_id", "transactional_id"):
            given[name] = topic
        elif name == "topic_id":
            given[name] = HERE if topic == "here" else THERE
        elif name in ("partitions", "partition_data", "partition_indexes") and spec.is_array:
            given[name] = [PARTITION if spec.element is INT32 else partition(spec.element)]
    return cls(**given)


def partition(cls: Any) -> Any:
    index = next(name for name, spec in field_specs(cls) if spec.element is INT32)
    return cls(**{index: PARTITION})


def values(message: Any, suffix: str | tuple[str, ...]) -> list[Any]:
    """All values of fields with this end of their name, however deep."""
    if isinstance(message, list):
        return [value for item in message for value in values(item, suffix)]
    if not is_dataclass(message):
        return []
    found = []
    for field in fields(message):
        value = getattr(message, field.name)
        found += [value] if field.name.endswith(suffix) else values(value, suffix)
    return found


def served(answer: Any) -> Any:
    return lambda *_: answer


def on_the_wire(key: ApiKey, version: int, answer: Any) -> Any:
    """`answer` as a client decodes it."""
    frame = b"".join(ServerCodec(key, version).encode(7, answer))[4:]
    _, position = decode_response_header(frame, key, version)
    return decode_response(key, version, memoryview(frame), position)


ABLE = [key for key in served_apis() if can_fail(key)]


def test_all_requests_of_producers_consumers_and_groups_can_fail() -> None:
    wanted = "PRODUCE FETCH LIST_OFFSETS METADATA OFFSET_COMMIT OFFSET_FETCH FIND_COORDINATOR "
    wanted += "JOIN_GROUP SYNC_GROUP HEARTBEAT LEAVE_GROUP CONSUMER_GROUP_HEARTBEAT SHARE_FETCH "
    wanted += "SHARE_GROUP_HEARTBEAT SHARE_ACKNOWLEDGE INIT_PRODUCER_ID ADD_PARTITIONS_TO_TXN "
    wanted += "ADD_OFFSETS_TO_TXN TXN_OFFSET_COMMIT END_TXN OFFSET_FOR_LEADER_EPOCH CREATE_TOPICS "
    wanted += "API_VERSIONS DELETE_RECORDS CREATE_PARTITIONS"
    assert {ApiKey[name] for name in wanted.split()} <= set(ABLE)


@pytest.mark.parametrize("key", ABLE, ids=lambda key: key.name)
def test_every_version_has_the_error_where_clients_look_for_it(key: ApiKey) -> None:
    versions = served_apis()[key]
    for version in range(versions.min, versions.max + 1):
        message = sample(key, version)
        if key is ApiKey.PRODUCE:
            message.acks = -1
        if key is ApiKey.FIND_COORDINATOR:
            message.coordinator_keys = ["g"]
        answer = response_class(key)()
        if key is ApiKey.METADATA:
            name, topic_id = "here", HERE
            answer.topics = [MetadataResponseTopic(name=name, topic_id=topic_id)]
        reply = failed(
            served(answer), context(), request(key, version), message, code=CODE, topic=None
        )
        decoded = on_the_wire(key, version, reply)
        codes = values(decoded, "error_code")
        assert CODE in codes, f"{key.name} v{version}: {decoded}"
        if PARTITION in values(message, INDEXES) and names_topics(key):
            assert PARTITION in values(decoded, INDEXES), f"{key.name} v{version}: {decoded}"


def produce_request(version: int) -> ProduceRequest:
    parts = [PartitionProduceData(index=PARTITION, records=b"")]
    return ProduceRequest(
        acks=-1,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id, partition_data=parts)
            for topic_id, name in IDS.items()
        ],
    )


@pytest.mark.parametrize("version", [3, 13])
def test_only_the_topic_of_the_fault_fails(version: int) -> None:
    seen: list[str] = []

    def handler(_: Any, __: Any, message: ProduceRequest) -> Any:
        seen.extend(topic.name for topic in message.topic_data)
        return response_class(ApiKey.PRODUCE)()

    about = request(ApiKey.PRODUCE, version)
    message = produce_request(version)
    reply: Any = failed(handler, context(), about, message, code=CODE, topic="here")
    assert seen == ["there"]
    assert [topic.topic_id for topic in reply.responses] == [HERE]
    assert topics_of(context(), about, produce_request(version)) == {"here", "there"}


def test_a_produce_without_an_answer_loses_its_connection() -> None:
    message = produce_request(3)
    message.acks = 0
    about = request(ApiKey.PRODUCE, 3)
    with pytest.raises(ConnectionMustClose, match="NOT_ENOUGH_REPLICAS"):
        failed(served(None), context(), about, message, code=CODE, topic=None)


def fetch_request(**given: Any) -> FetchRequest:
    topics = [FetchTopic(topic="here", partitions=[FetchPartition(partition=PARTITION)])]
    return FetchRequest(**{"max_wait_ms": 500, "topics": topics, **given})


def test_a_fetch_of_a_session_fails_for_the_partitions_of_the_session() -> None:
    there = context()
    about = request(ApiKey.FETCH, 12)
    (plan,) = _run(there.fetch_sessions.plan(fetch_request(session_epoch=0), 12))
    more = fetch_request(session_id=plan.session_id, session_epoch=1, topics=[])
    assert topics_of(there, about, more) == {"here"}
    assert topics_of(there, about, fetch_request(session_id=9, session_epoch=1, topics=[])) == set()
    reply: Any = failed(
        served(response_class(ApiKey.FETCH)()), there, about, more, code=CODE, topic="here"
    )
    assert more.max_wait_ms == 0
    assert [topic.topic for topic in reply.responses] == ["here"]
    assert values(reply.responses, "error_code") == [CODE]
    assert reply.error_code == 0


def _run(steps: Any) -> list[Any]:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return [stop.value]


def test_metadata_of_all_topics_is_about_each_topic() -> None:
    assert topics_of(context(), request(ApiKey.METADATA, 0), MetadataRequest()) is None
    assert topics_of(context(), request(ApiKey.METADATA, 1), MetadataRequest(topics=None)) is None
    assert topics_of(context(), request(ApiKey.METADATA, 1), MetadataRequest()) == set()
    answer = MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in IDS.values()])
    about = request(ApiKey.METADATA, 1)
    failed(served(answer), context(), about, MetadataRequest(topics=None), code=CODE, topic="there")
    assert [topic.error_code for topic in answer.topics] == [0, CODE]


def test_groups_are_found_in_all_forms() -> None:
    assert groups_of(sample(ApiKey.OFFSET_FETCH, 8, ("g", "h"))) >= {"g", "h"}
    forms: dict[ApiKey, dict[str, Any]] = {
        ApiKey.HEARTBEAT: {"group_id": "g"},
        ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"]},
        ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    }
    for key, given in forms.items():
        assert names_groups(key)
        assert groups_of(request_class(key)(**given)) == {"g"}
    assert names_groups(ApiKey.OFFSET_FETCH)
    assert not names_groups(ApiKey.PRODUCE)


@pytest.mark.parametrize("key", [ApiKey.CREATE_TOPICS, ApiKey.OFFSET_COMMIT, ApiKey.PRODUCE])
def test_a_topic_without_a_name_is_no_topic_of_a_fault(key: ApiKey) -> None:
    """The broker refuses such a request; the fault of another topic is not met."""
    version = served_apis()[key].min
    found = topics_of(context(), request(key, version), sample(key, version, ("",)))
    assert found is not None
    assert "here" not in found
