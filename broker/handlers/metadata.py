"""Metadata (key 3, versions 0-13): the brokers, the controller, topics and their leaders.

Differs from Kafka:

* a missing topic is created before the answer, so the client finds it at once; Kafka answers
  UNKNOWN_TOPIC_OR_PARTITION first and lets the client retry;
* neither name nor id is UNKNOWN_TOPIC_ID; there UNKNOWN_SERVER_ERROR.

A topic that is requested more than once is answered once, as in Kafka. Long answers are made in
steps: a hundred thousand names fit into a request.

The controller is this broker: clients send their admin requests to a listed broker or nowhere. Its
workers are brokers as well; those forward this request to worker 1 (`broker.workers`).

Source: Kafka `KafkaApis.handleTopicMetadataRequest`.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any

from broker.errors import ThrottlingQuotaExceeded, TopicAlreadyExists
from broker.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import NO_TOPIC_ID, RESERVED_TOPICS, is_internal
from protocol.api import metadata as api
from protocol.error_codes import ErrorCode
from storage.directory.data_dir import Topic
from storage.disk.steps import Steps, each

_NULL_MEANS_ALL_SINCE = 1
_IDS_SINCE = 12
_FEW = 16
"""Names that are handled at once if their topics have at most `_MANY` partitions together."""

_MANY = 500
"""Names, or partitions of a topic, that are handled in one step."""


def handle(
    context: Context, request: RequestContext, message: api.MetadataRequest
) -> api.MetadataResponse | Steps[api.MetadataResponse | Coroutine[Any, Any, api.MetadataResponse]]:
    """Describe the requested topics: at once if they are few and exist, else in steps."""
    topics = _find_few(context, message)
    if topics is None:
        return _handle_in_steps(context, request, message)
    return _response(context, message, topics)


def _find_few(
    context: Context, message: api.MetadataRequest
) -> list[api.MetadataResponseTopic] | None:
    """The answer for topics requested by name, None if one does not exist or they are many."""
    wanted = message.topics
    if not wanted or len(wanted) > _FEW:
        return None
    find = context.topics.find
    topics: dict[str, api.MetadataResponseTopic] = {}
    room = _MANY
    for asked in wanted:
        if asked.name is None or asked.topic_id != NO_TOPIC_ID:
            return None
        found = find(asked.name)
        if found is None:
            return None
        count = len(found.partitions)
        room -= count
        if room < 0:
            return None
        if asked.name not in topics:
            topic = _describe(context, found, message.include_topic_authorized_operations)
            topic.partitions = [_partition(context, found, number) for number in range(count)]
            topics[asked.name] = topic
    return list(topics.values())


def _handle_in_steps(
    context: Context, request: RequestContext, message: api.MetadataRequest
) -> Steps[api.MetadataResponse | Coroutine[Any, Any, api.MetadataResponse]]:
    """Describe the requested topics; in a task of its own only if it must create some."""
    missing: dict[str, None] = {}
    wanted = message.topics or ()
    if not (message.allow_auto_topic_creation and context.config.auto_create_topics_enable):
        wanted = ()
    for start in range(0, len(wanted), _MANY):
        if start:
            yield None
        for topic in wanted[start : start + _MANY]:
            if topic.name and _may_create(context, topic.name, topic.topic_id):
                missing[topic.name] = None
    if missing:
        return _create_and_answer(context, request, message, list(missing))
    return (yield from _answer(context, request, message, {}))


async def _create_and_answer(
    context: Context, request: RequestContext, message: api.MetadataRequest, missing: list[str]
) -> api.MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    quota = context.security.mutation_quota(request, is_strict=True)
    for name in missing:
        if context.topics.windows.is_switched_off(name):
            # A reader would wait at an empty topic, a writer fill one that is no window.
            refused[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            continue
        try:
            quota.charge(context.config.num_partitions)
            await context.topics.create(name, context.config.num_partitions)
            context.security.audit.changed(
                request, f"created topic {name} (auto.create.topics.enable)"
            )
        except TopicAlreadyExists:
            continue  # another request has created it at the same time
        except ThrottlingQuotaExceeded:
            # What clients retry; for Metadata the code of the quota is unknown to them.
            refused[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except REFUSALS as error:
            refused[name] = error_code(error)
    answer = await context.turns.side.drive(_answer(context, request, message, refused))
    answer.throttle_time_ms = quota.delay_ms
    return answer


def _may_create(context: Context, name: str, topic_id: bytes) -> bool:
    is_kept = is_internal(name) or name in RESERVED_TOPICS
    is_kept = is_kept or context.topics.windows.is_reserved(name)
    return not is_kept and topic_id == NO_TOPIC_ID and context.topics.find(name) is None


def _answer(
    context: Context,
    request: RequestContext,
    message: api.MetadataRequest,
    refused: dict[str, ErrorCode],
) -> Steps[api.MetadataResponse]:
    wants_all = message.topics is None or (
        not message.topics and request.api_version < _NULL_MEANS_ALL_SINCE
    )
    wants_operations = message.include_topic_authorized_operations
    topics = []
    if wants_all:
        for topic in context.topics:
            topics.append(_describe(context, topic, wants_operations))
            topics[-1].partitions = yield from _partitions(context, topic)
            yield None
    else:
        topics = yield from _find_each_once(context, request, message, refused)
    return _response(context, message, topics)


def _response(
    context: Context, message: api.MetadataRequest, topics: list[api.MetadataResponseTopic]
) -> api.MetadataResponse:
    return api.MetadataResponse(
        brokers=[
            api.MetadataResponseBroker(
                node_id=endpoint.node_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=endpoint.rack,
            )
            for endpoint in context.endpoints
        ],
        cluster_id=context.cluster_id,
        controller_id=context.endpoint.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if message.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _find_each_once(
    context: Context,
    request: RequestContext,
    message: api.MetadataRequest,
    refused: dict[str, ErrorCode],
) -> Steps[list[api.MetadataResponseTopic]]:
    """The answer for the requested names and ids; a topic that occurs twice is answered once."""
    asked_topics = message.topics or []
    if request.api_version < _IDS_SINCE and any(map(_is_by_id, asked_topics)):
        return (yield from each(asked_topics, _senseless))
    wants_operations = message.include_topic_authorized_operations
    topics: dict[str | bytes, api.MetadataResponseTopic] = {}
    for asked in asked_topics:
        if topics:
            yield None
        found = _find(context, asked)
        if found is None:
            missing = _missing(context, asked, refused)
            topics.setdefault(missing.name or missing.topic_id, missing)
        elif found.name not in topics:
            topic = topics[found.name] = _describe(context, found, wants_operations)
            topic.partitions = yield from _partitions(context, found)
    return list(topics.values())


def _is_by_id(asked: api.MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != NO_TOPIC_ID


def _senseless(asked: api.MetadataRequestTopic) -> api.MetadataResponseTopic:
    """The answer for every topic of a request with ids, in versions that have none."""
    return api.MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
    )


def _find(context: Context, asked: api.MetadataRequestTopic) -> Topic | None:
    """The requested topic, by name or, with a null name, by id."""
    if asked.name is None or asked.topic_id != NO_TOPIC_ID:
        return context.topics.find_by_id(asked.topic_id)
    return context.topics.find(asked.name)


def _missing(
    context: Context, asked: api.MetadataRequestTopic, refused: dict[str, ErrorCode]
) -> api.MetadataResponseTopic:
    """The answer for a topic that does not exist."""
    if asked.name is None or asked.topic_id != NO_TOPIC_ID:
        return api.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
        )
    return api.MetadataResponseTopic(
        error_code=refused.get(asked.name) or _why_missing(context, asked.name), name=asked.name
    )


def _why_missing(context: Context, name: str) -> ErrorCode:
    try:
        context.topics.check_asked(name)
    except REFUSALS as error:
        return error_code(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partitions(context: Context, topic: Topic) -> Steps[list[api.MetadataResponsePartition]]:
    return (yield from each(range(len(topic.partitions)), partial(_partition, context, topic)))


def _partition(context: Context, topic: Topic, number: int) -> api.MetadataResponsePartition:
    leader_id = context.topics.leader_id(topic, number)
    return api.MetadataResponsePartition(
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=context.topics.leader_epoch(topic, number),
        replica_nodes=[leader_id],
        isr_nodes=[leader_id],
    )


def _describe(context: Context, topic: Topic, wants_operations: bool) -> api.MetadataResponseTopic:
    """The answer for one topic, without its partitions."""
    return api.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=TOPIC_OPERATIONS if wants_operations else NOT_ASKED,
    )
