"""StreamsGroupHeartbeat (key 88, version 0): join, stay in and leave a group of Kafka Streams.

A member joins with epoch 0, an id of its own and its topology, continues with its epoch, and leaves
with -1. It receives its tasks when it joins and when they changed.

The internal topics that the application lacks are created before the answer, which still calls them
missing: the next heartbeat finds them. Its client needs CREATE on the cluster or on each of them.

Differs from Kafka: what keeps a topic from being created is in the same answer; Kafka's creates the
topics after it. A topology that is wrong in itself is STREAMS_INVALID_TOPOLOGY in all cases; Kafka
fails inside in some.

Source: KIP-1071; Kafka `KafkaApis.handleStreamsGroupHeartbeat`,
`GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid`.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from broker.errors import InvalidReplicationFactor, TopicAlreadyExists
from broker.groups.consumer.values import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from broker.groups.streams.values import (
    Endpoint,
    EndpointPartitions,
    InternalTopicWish,
    PartitionsOfTopic,
    Status,
    StatusCode,
    StreamsAnswer,
    StreamsHeartbeat,
    Tasks,
    TaskSet,
)
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS
from broker.requests.streams_requests import names_problem, task_ids, topic_names
from protocol import streams
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api import streams_group_heartbeat as api
from protocol.error_codes import ErrorCode
from protocol.structs import TopicIndexes

_Response = api.StreamsGroupHeartbeatResponse
_SHOWN: Final = 3


async def handle(
    context: Context, request: RequestContext, message: api.StreamsGroupHeartbeatRequest
) -> _Response:
    """Take the heartbeat; answer when its changes are durable and missing topics created."""
    problem = names_problem(topic_names(message.topology))
    if problem is not None:
        return _refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
    problem = _unsupported(message) or _invalid(message)
    if problem is not None:
        return _refusal(ErrorCode.INVALID_REQUEST, problem)
    problem = _changelog_problem(message)
    if problem is not None:
        return _refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
    answered: asyncio.Future[StreamsAnswer] = asyncio.get_running_loop().create_future()
    heartbeat = _heartbeat(request, message)
    context.groups.streams_heartbeat(message.group_id, heartbeat, answered.set_result)
    answer = await answered
    response = _response(answer)
    if answer.missing:
        detail = await _create(context, request, answer.missing)
        for status in response.status or ():
            if detail and status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
                status.status_detail += f"; {detail}."
    return response


def _refusal(error: ErrorCode, text: str) -> _Response:
    return _Response(error_code=error, error_message=text)


def _unsupported(message: api.StreamsGroupHeartbeatRequest) -> str | None:
    """What the request has that is not served, in Kafka neither; None when it has nothing."""
    subtopologies = () if message.topology is None else message.topology.subtopologies
    found = (
        (message.instance_id is not None, "instance_id: static members"),
        (message.task_offsets is not None, "task_offsets"),
        (message.task_end_offsets is not None, "task_end_offsets"),
        (bool(message.warmup_tasks), "warmup_tasks"),
        (any(sub.source_topic_regex for sub in subtopologies), "source_topic_regex"),
    )
    return next((f"{what} are not supported." for is_there, what in found if is_there), None)


def _invalid(message: api.StreamsGroupHeartbeatRequest) -> str | None:
    """Why the request is invalid, as a sentence; None when it is valid."""
    for name in ("member_id", "group_id", "rack_id"):
        text = getattr(message, name)
        if text is not None and not text.strip():
            return f"{name} is empty."
    epoch, topology = message.member_epoch, message.topology
    tasks = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    found = (
        (epoch < LEAVE_STATIC_EPOCH, f"member_epoch is {epoch}; the least is -2."),
        (epoch == LEAVE_STATIC_EPOCH, "member_epoch -2 is for members with an instance_id."),
        (
            epoch == JOIN_EPOCH and message.rebalance_timeout_ms == -1,
            "A member joins with a rebalance_timeout_ms.",
        ),
        (epoch == JOIN_EPOCH and any(tasks), "A member joins without tasks."),
        (epoch == JOIN_EPOCH and topology is None, "A member joins with a topology."),
        (epoch != JOIN_EPOCH and topology is not None, "A topology is sent only to join."),
        (0 < tasks.count(None) < len(tasks), "All kinds of tasks are null, or none is."),
        (topology is not None and topology.epoch < 0, "The least topology.epoch is 0."),
    )
    return next((text for is_wrong, text in found if is_wrong), None)


def _changelog_problem(message: api.StreamsGroupHeartbeatRequest) -> str | None:
    for sub in () if message.topology is None else message.topology.subtopologies:
        for info in sub.state_changelog_topics:
            if info.partitions:
                return (
                    f"Changelog topic {info.name} has {info.partitions} partitions in the "
                    "topology; their number is left to the broker, by 0."
                )
    return None


def _heartbeat(
    request: RequestContext, message: api.StreamsGroupHeartbeatRequest
) -> StreamsHeartbeat:
    timeout_ms, endpoint, tags = (
        message.rebalance_timeout_ms,
        message.user_endpoint,
        message.client_tags,
    )
    owned = None
    if message.active_tasks is not None:
        owned = TaskSet(_tasks(message.active_tasks), _tasks(message.standby_tasks or ()))
    return StreamsHeartbeat(
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        endpoint_epoch=message.endpoint_information_epoch,
        rack_id=message.rack_id,
        rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
        topology=message.topology,
        owned=owned,
        process_id=message.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else {each.key: each.value for each in tags},
        wants_shutdown=message.shutdown_application,
        client_id=request.client_id or "",
        client_host=request.peer_host,
    )


def _tasks(ids: Iterable[api.TaskIds]) -> Tasks:
    return frozenset((each.subtopology_id, index) for each in ids for index in each.partitions)


async def _create(
    context: Context, request: RequestContext, wishes: Iterable[InternalTopicWish]
) -> str:
    """Create topics; return what kept some from being created, or nothing."""
    check = Check(context, request)
    if not check.sees(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = [
            wish.name
            for wish in wishes
            if not check.sees(Operation.CREATE, ResourceType.TOPIC, wish.name)
        ]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}"
    quota = context.security.mutation_quota(request, is_strict=True)
    failed = []
    for wish in wishes:
        try:
            if wish.replication_factor not in {1, -1}:
                raise InvalidReplicationFactor(
                    f"replication factor {wish.replication_factor} needs as many brokers"
                )
            quota.charge(wish.partitions)
            await context.topics.create(wish.name, wish.partitions, wish.settings)
            context.security.audit.changed(request, f"created topic {wish.name}")
        except TopicAlreadyExists:
            continue  # for another member at the same time
        except REFUSALS as error:
            failed.append(f"{wish.name} ({error})")
    if not failed:
        return ""
    more = len(failed) - _SHOWN
    return f"Creation failed: {', '.join(failed[:_SHOWN])}" + (
        f" and {more} more" if more > 0 else ""
    )


def _response(answer: StreamsAnswer) -> _Response:
    response = _Response(
        error_code=answer.error,
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        status=[_status(each) for each in answer.statuses],
        endpoint_information_epoch=answer.endpoint_epoch,
    )
    if answer.tasks is not None:
        response.active_tasks = task_ids(answer.tasks.active)
        response.standby_tasks = task_ids(answer.tasks.standby)
        response.warmup_tasks = []
    if answer.endpoints is not None:
        response.partitions_by_user_endpoint = [_endpoint(each) for each in answer.endpoints]
    return response


def _status(status: Status) -> api.Status:
    return api.Status(status_code=status.code, status_detail=status.detail)


def _endpoint(of: EndpointPartitions) -> api.EndpointToPartitions:
    def listed(found: Iterable[PartitionsOfTopic]) -> list[TopicIndexes]:
        return [TopicIndexes(topic=one.topic, partitions=one.partitions) for one in found]

    return api.EndpointToPartitions(
        user_endpoint=streams.Endpoint(host=of.endpoint.host, port=of.endpoint.port),
        active_partitions=listed(of.active),
        standby_partitions=listed(of.standby),
    )
