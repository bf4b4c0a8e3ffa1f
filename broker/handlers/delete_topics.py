"""DeleteTopics (key 20, versions 0-6): remove topics by name, or since v6 by id.

A topic made again under the same name gets a new id, which is how clients notice.

Source: KIP-4, KIP-516; Kafka `ControllerApis.deleteTopics`.
"""

from collections import Counter

from broker.context import Context, RequestContext
from broker.error_mapping import REFUSALS, error_code
from broker.errors import InvalidRequest, TopicDeletionDisabled
from broker.topics import NO_TOPIC_ID
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
    counts = Counter((state.name, state.topic_id) for state in states)
    return DeleteTopicsResponse(
        responses=[
            await _delete(context, request, state, counts[state.name, state.topic_id])
            for state in states
        ]
    )


async def _delete(
    context: Context, request: RequestContext, state: DeleteTopicState, count: int
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
    try:
        if count > 1:
            raise InvalidRequest("The topic stands in the request more than once.")
        if not context.config.delete_topic_enable:
            if request.api_version < _DISABLED_CODE_SINCE:
                raise InvalidRequest("delete.topic.enable is false.")
            raise TopicDeletionDisabled("delete.topic.enable is false.")
        result.name = _name(context, state)
        topic = context.topics.find(result.name)
        await context.topics.delete(result.name)
        if topic is not None:
            result.topic_id = topic.topic_id
    except REFUSALS as error:
        result.error_code = error_code(error)
        result.error_message = str(error)
    return result


def _name(context: Context, state: DeleteTopicState) -> str:
    if state.topic_id == NO_TOPIC_ID:
        if state.name is None:
            raise InvalidRequest("Neither name nor id of the topic is given.")
        return state.name
    if state.name is not None:
        raise InvalidRequest("Give the name or the id of the topic, not both.")
    return context.topics.get_by_id(state.topic_id).name
