"""DeleteTopics (key 20, versions 0-6): remove topics by name, or since v6 by id.

A topic made again under the same name gets a new id, which is how clients notice. A topic that
occurs twice in the request, also once by name and once by id, is answered once and kept. With a
timeout of 0 or less nothing is deleted (REQUEST_TIMED_OUT), as in Kafka.

Source: KIP-4, KIP-516; Kafka `ControllerApis.deleteTopics`.
"""

from collections.abc import Iterable

from broker.errors import InvalidRequest, NoTimeLeft, TopicDeletionDisabled
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import NO_TOPIC_ID
from protocol.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_STATES_SINCE = 6
_DISABLED_CODE_SINCE = 3


async def handle(
    context: Context, request: RequestContext, message: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Remove every topic that may be removed and answer for all."""
    if request.api_version >= _STATES_SINCE:
        states = message.topics
    else:
        states = [DeleteTopicState(name=name) for name in message.topic_names]
    answers = []
    for state, is_repeated in _each_once(context, states):
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        try:
            if message.timeout_ms <= 0:
                raise NoTimeLeft(message.timeout_ms)
            if is_repeated:
                raise InvalidRequest("The topic stands in the request more than once.")
            await _delete(context, request, state, result)
        except REFUSALS as error:
            result.error_code = error_code(error)
            result.error_message = str(error)
        answers.append(result)
    return DeleteTopicsResponse(responses=answers)


def _each_once(
    context: Context, states: Iterable[DeleteTopicState]
) -> list[tuple[DeleteTopicState, bool]]:
    """The requested topics, each with whether it occurs more than once: by name, by id, or by both.

    An entry with neither name nor id, or with both, is invalid and is refused each time.
    """
    once: list[tuple[DeleteTopicState, bool]] = []
    places: dict[str | bytes, int] = {}
    for state in states:
        key: str | bytes | None = state.name
        if (state.name is None) == (state.topic_id == NO_TOPIC_ID):
            once.append((state, False))
            continue
        if key is None:
            topic = context.topics.find_by_id(state.topic_id)
            key = state.topic_id if topic is None else topic.name
        if key not in places:
            places[key] = len(once)
            once.append((state, False))
            continue
        first = once[places[key]][0]
        name = first.name if state.name is None else state.name
        topic_id = first.topic_id if state.topic_id == NO_TOPIC_ID else state.topic_id
        once[places[key]] = (DeleteTopicState(name=name, topic_id=topic_id), True)
    return once


async def _delete(
    context: Context,
    request: RequestContext,
    state: DeleteTopicState,
    result: DeletableTopicResult,
) -> None:
    """Remove one topic and put its name and id into `result`; raises what refuses it."""
    if not context.config.delete_topic_enable:
        if request.api_version < _DISABLED_CODE_SINCE:
            raise InvalidRequest("delete.topic.enable is false.")
        raise TopicDeletionDisabled("delete.topic.enable is false.")
    result.name = _name(context, state)
    topic = context.topics.find(result.name)
    await context.topics.delete(result.name)
    if topic is not None:
        result.topic_id = topic.topic_id


def _name(context: Context, state: DeleteTopicState) -> str:
    if state.topic_id == NO_TOPIC_ID:
        if state.name is None:
            raise InvalidRequest("Neither name nor id of the topic is given.")
        return state.name
    if state.name is not None:
        raise InvalidRequest("Give the name or the id of the topic, not both.")
    return context.topics.get_by_id(state.topic_id).name
