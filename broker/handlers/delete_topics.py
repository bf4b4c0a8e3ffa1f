"""DeleteTopics (key 20, versions 0-6): remove topics by name, or since v6 by id.

A topic made again under the same name gets a new id, which is how clients notice. A topic that
occurs twice in the request, also once by name and once by id, is answered once and kept. A timeout
of 0 or less: `broker.topics.no_time`.

Source: KIP-4, KIP-516; Kafka `ControllerApis.deleteTopics`.
"""

from collections.abc import Hashable
from functools import partial

from broker.errors import InvalidRequest, TopicDeletionDisabled
from broker.quotas.throttle import MutationQuota
from broker.requests.by_topic import by_key
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.no_time import check_time_after, check_time_before
from broker.topics.registry import NO_TOPIC_ID
from protocol.api import delete_topics as api

_STATES_SINCE = 6
_DISABLED_CODE_SINCE = 3
_QUOTA_CODE_SINCE = 5


async def handle(
    context: Context, request: RequestContext, message: api.DeleteTopicsRequest
) -> api.DeleteTopicsResponse:
    """Remove every topic that may be removed and answer for all."""
    if request.api_version >= _STATES_SINCE:
        states = message.topics
    else:
        states = [api.DeleteTopicState(name=name) for name in message.topic_names]
    quota = context.security.mutation_quota(
        request, is_strict=request.api_version >= _QUOTA_CODE_SINCE
    )
    answers = []
    named = await context.turns.side.drive(by_key(states, partial(_identity, context)))
    for same in named.values():
        state = _joined(same)
        result = api.DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        try:
            check_time_before(request.api_key, request.api_version, message.timeout_ms)
            if len(same) > 1:
                raise InvalidRequest("The topic stands in the request more than once.")
            await _delete(context, request, state, result, quota)
            context.security.audit.changed(request, f"deleted topic {result.name}")
            check_time_after(message.timeout_ms)
        except REFUSALS as error:
            result.error_code = error_code(error)
            result.error_message = str(error)
        answers.append(result)
    return api.DeleteTopicsResponse(throttle_time_ms=quota.delay_ms, responses=answers)


def _identity(context: Context, state: api.DeleteTopicState) -> Hashable:
    """Equal for the entries of one topic, by name or by id.

    An entry with neither name nor id, or with both, is invalid and is refused each time.
    """
    if (state.name is None) == (state.topic_id == NO_TOPIC_ID):
        return object()
    if state.name is not None:
        return state.name
    topic = context.topics.find_by_id(state.topic_id)
    return state.topic_id if topic is None else topic.name


def _joined(same: list[api.DeleteTopicState]) -> api.DeleteTopicState:
    """The entries of one topic as one, with the name and the id they give."""
    joined, *others = same
    for state in others:
        joined = api.DeleteTopicState(
            name=joined.name if state.name is None else state.name,
            topic_id=joined.topic_id if state.topic_id == NO_TOPIC_ID else state.topic_id,
        )
    return joined


async def _delete(
    context: Context,
    request: RequestContext,
    state: api.DeleteTopicState,
    result: api.DeletableTopicResult,
    quota: MutationQuota,
) -> None:
    """Remove one topic and put its name and id into `result`; raises what refuses it."""
    if not context.config.delete_topic_enable:
        if request.api_version < _DISABLED_CODE_SINCE:
            raise InvalidRequest("delete.topic.enable is false.")
        raise TopicDeletionDisabled("delete.topic.enable is false.")
    result.name = _name(context, state)
    topic = context.topics.find(result.name)
    if topic is not None:
        quota.charge(len(topic.partitions))
    await context.topics.delete(result.name)
    if topic is not None:
        result.topic_id = topic.topic_id


def _name(context: Context, state: api.DeleteTopicState) -> str:
    if state.topic_id == NO_TOPIC_ID:
        if state.name is None:
            raise InvalidRequest("Neither name nor id of the topic is given.")
        return state.name
    if state.name is not None:
        raise InvalidRequest("Give the name or the id of the topic, not both.")
    return context.topics.get_by_id(state.topic_id).name
