"""Errors in place of an answer, in the form that each API has for them.

| requests                     | where the error is                                                |
|------------------------------|-------------------------------------------------------------------|
| by topic: `_BY_TOPIC`        | each partition, or the topic where the request has no partitions  |
| Fetch                        | each partition, those of its session too                          |
| Metadata                     | each topic                                                        |
| FindCoordinator, OffsetFetch | each key or group; in older versions the whole answer             |
| others                       | the whole answer, if all versions have a field for it             |

With a topic only its part of a request fails, and the rest is served. A request that fails whole
does not reach its handler. Metadata and Fetch do: the one changes nothing that a test would miss,
and the other has to keep its session.

Read next: `broker.rights.guards`, which refuses parts of requests in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from broker.errors import ConnectionMustClose
from broker.fetch.sessions import TOPIC_IDS_SINCE
from broker.replies.forms import then
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import parted, refused_topic
from protocol.api import (
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_records,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from protocol.api_keys import ApiKey
from protocol.declare.primitives import field_specs
from protocol.error_codes import ErrorCode
from protocol.registry import request_class, response_class
from protocol.structs import TopicErrors

_BY_GROUP_SINCE: Final = 8
_WHOLE_OFFSET_FETCH_SINCE: Final = 2
_KEYS_SINCE: Final = 4
_BY_TRANSACTION_SINCE: Final = add_partitions_to_txn.OF_BROKERS_SINCE
_ERROR_CODE: Final = "error_code"
_GROUP_FIELDS: Final = frozenset({"group_id", "group_ids", "groups", "groups_names"})


class _ByTopic(NamedTuple):
    """An API whose answer has a part for each topic of the request.

    Attributes:
        asked: the field of the request with the topics.
        answered: the field of the answer with their parts.
        part: the class of such a part.
        more: values of the answer to each partition, besides the error.
        error_code: the field with the error.
    """

    asked: str
    answered: str
    part: type
    more: Mapping[str, int] = MappingProxyType({})
    error_code: str = _ERROR_CODE


_BY_TOPIC: Final[Mapping[ApiKey, _ByTopic]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _ByTopic(
            "topic_data", "responses", produce.TopicProduceResponse, {"base_offset": -1}
        ),
        ApiKey.LIST_OFFSETS: _ByTopic("topics", "topics", list_offsets.ListOffsetsTopicResponse),
        ApiKey.OFFSET_COMMIT: _ByTopic("topics", "topics", offset_commit.OffsetCommitResponseTopic),
        ApiKey.TXN_OFFSET_COMMIT: _ByTopic("topics", "topics", TopicErrors),
        ApiKey.ADD_PARTITIONS_TO_TXN: _ByTopic(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            add_partitions_to_txn.AddPartitionsToTxnTopicResult,
            error_code="partition_error_code",
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _ByTopic(
            "topics", "topics", offset_for_leader_epoch.OffsetForLeaderTopicResult
        ),
        ApiKey.DELETE_RECORDS: _ByTopic(
            "topics", "topics", delete_records.DeleteRecordsTopicResult, {"low_watermark": -1}
        ),
        ApiKey.CREATE_TOPICS: _ByTopic("topics", "topics", create_topics.CreatableTopicResult),
        ApiKey.CREATE_PARTITIONS: _ByTopic(
            "topics", "results", create_partitions.CreatePartitionsTopicResult
        ),
    }
)

_OTHERS_WITH_TOPICS: Final = (ApiKey.FETCH, ApiKey.METADATA)
_OTHERS_THAT_FAIL: Final = (*_OTHERS_WITH_TOPICS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)


def can_fail(key: ApiKey) -> bool:
    """Whether requests of this API can be answered with an error."""
    if key in _BY_TOPIC or key in _OTHERS_THAT_FAIL:
        return True
    spec = dict(field_specs(response_class(key))).get(_ERROR_CODE)
    return spec is not None and spec.since == 0


def names_topics(key: ApiKey) -> bool:
    """Whether the topics of such requests are known."""
    return key in _BY_TOPIC or key in _OTHERS_WITH_TOPICS


def names_groups(key: ApiKey) -> bool:
    """Whether such requests are of a group."""
    return not _GROUP_FIELDS.isdisjoint(dict(field_specs(request_class(key))))


def groups_of(message: Any) -> set[str]:
    """The groups that a request names."""
    given = [getattr(message, name, None) or () for name in _GROUP_FIELDS]
    groups = [group for one in given for group in ((one,) if isinstance(one, str) else one)]
    return {group if isinstance(group, str) else group.group_id for group in groups}


def topics_of(context: Context, request: RequestContext, message: Any) -> set[str | None] | None:
    """The topics that a request names, or None where it is about all of them."""
    key = ApiKey(request.api_key)
    if key is ApiKey.FETCH:
        return {_name_of(context, topic) for topic, _ in _fetched(context, request, message)}
    if key is ApiKey.METADATA:
        if message.topics is None or (request.api_version == 0 and not message.topics):
            return None
        topics = message.topics
    else:
        topics = getattr(message, _BY_TOPIC[key].asked)
    return {_name_in(context, topic) for topic in topics}


def failed(
    handler: Handler,
    context: Context,
    request: RequestContext,
    message: Any,
    *,
    code: ErrorCode,
    topic: str | None,
) -> Reply:
    """The reply to a request that fails with `code`; with a `topic` its other topics are served.

    Raises:
        ConnectionMustClose: a Produce with acks=0, to which there is no answer.
    """
    key = ApiKey(request.api_key)

    def is_hit(name: str | None) -> bool:
        return topic is None or name == topic

    if key is ApiKey.METADATA:
        return then(handler(context, request, message), lambda it: _failed_topics(it, is_hit, code))
    if key is ApiKey.FETCH:
        read = _fetched(context, request, message)
        hit = [one for one in read if is_hit(_name_of(context, one[0]))]
        by_id = request.api_version >= TOPIC_IDS_SINCE
        message.max_wait_ms = 0
        return then(
            handler(context, request, message),
            lambda it: _failed_fetch(it, hit, code, by_id=by_id),
        )
    form = _BY_TOPIC.get(key)
    if form is None or (
        key is ApiKey.ADD_PARTITIONS_TO_TXN and request.api_version >= _BY_TRANSACTION_SINCE
    ):
        return _failed_whole(key, request.api_version, message, code)
    if key is ApiKey.PRODUCE and message.acks == 0:
        raise ConnectionMustClose(f"a test lets a Produce without an answer fail with {code.name}")
    denied, allowed = parted(getattr(message, form.asked), lambda it: is_hit(_name_in(context, it)))

    def with_errors(answer: Any) -> Any:
        getattr(answer, form.answered).extend(_failed_part(form, it, code) for it in denied)
        return answer

    if not allowed:
        return with_errors(response_class(key)())
    setattr(message, form.asked, allowed)
    return then(handler(context, request, message), with_errors)


def _failed_part(form: _ByTopic, topic: Any, code: ErrorCode) -> Any:
    """The answer to one topic of a request."""
    error = {form.error_code: code}
    if form.error_code in dict(field_specs(form.part)):  # it has no partitions
        return form.part(name=topic.name, **error)
    return refused_topic(form.part, topic, **error, **form.more)


def _failed_topics(
    answer: metadata.MetadataResponse, is_hit: Callable[[str | None], bool], code: ErrorCode
) -> metadata.MetadataResponse:
    for topic in answer.topics:
        if is_hit(topic.name):
            topic.error_code = code
            topic.partitions = []
    return answer


def _failed_fetch(
    answer: fetch.FetchResponse, hit: "Iterable[_Fetched]", code: ErrorCode, *, by_id: bool
) -> fetch.FetchResponse:
    """`answer` with an error for each partition of `hit`, whatever was read of it."""
    if answer.error_code:
        return answer  # the session is at fault, and the client begins another one
    parts: dict[str | bytes, fetch.FetchableTopicResponse] = {}
    for topic, partition in hit:
        if topic not in parts:
            name = {"topic_id": topic} if by_id else {"topic": topic}
            parts[topic] = fetch.FetchableTopicResponse(**name)  # type: ignore[arg-type]
        parts[topic].partitions.append(
            fetch.PartitionData(
                partition_index=partition,
                error_code=code,
                high_watermark=-1,
                aborted_transactions=[],
                records=b"",
            )
        )
    served = [
        part for part in answer.responses if (part.topic_id if by_id else part.topic) not in parts
    ]
    answer.responses = [*served, *parts.values()]
    return answer


def _failed_whole(key: ApiKey, version: int, message: Any, code: ErrorCode) -> Any:
    """The answer to a request that is not about topics."""
    answer = response_class(key)()
    if key is ApiKey.FIND_COORDINATOR and version >= _KEYS_SINCE:
        answer.coordinators = [
            find_coordinator.Coordinator(key=name, node_id=-1, port=-1, error_code=code)
            for name in message.coordinator_keys
        ]
    elif key is ApiKey.OFFSET_FETCH and version >= _BY_GROUP_SINCE:
        answer.groups = [
            offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
            for group in message.groups
        ]
    elif key is ApiKey.OFFSET_FETCH and version < _WHOLE_OFFSET_FETCH_SINCE:
        answer.topics = [
            refused_topic(
                offset_fetch.OffsetFetchResponseTopic,
                topic,
                error_code=code,
                committed_offset=-1,
                metadata="",
            )
            for topic in message.topics or ()
        ]
    else:
        answer.error_code = code
    return answer


_Fetched: TypeAlias = tuple[str | bytes, int]
"""A topic, by its name or its id as the request has it, and a partition."""


def _fetched(
    context: Context, request: RequestContext, message: fetch.FetchRequest
) -> list[_Fetched]:
    """What a fetch reads: its own partitions, and those of its session."""
    by_id = request.api_version >= TOPIC_IDS_SINCE
    session = context.fetch_sessions.expecting(
        message.session_id,
        message.session_epoch,
        uses_topic_ids=by_id,
        owner=request.session.principal,
    )
    found: dict[_Fetched, None] = {}
    for target in session or ():
        found[target.topic_id if by_id else target.topic, target.partition] = None
    for topic in message.topics:
        for asked in topic.partitions:
            found[topic.topic_id if by_id else topic.topic, asked.partition] = None
    for forgotten in message.forgotten_topics_data:
        for partition in forgotten.partitions:
            found.pop((forgotten.topic_id if by_id else forgotten.topic, partition), None)
    return list(found)


def _name_of(context: Context, topic: str | bytes) -> str | None:
    """The name of a topic that a request may give by its id; None for an unknown id."""
    if isinstance(topic, str):
        return topic
    found = context.topics.find_by_id(topic)
    return None if found is None else found.name


def _name_in(context: Context, topic: Any) -> str | None:
    """The name of a topic of a request, as `_name_of`."""
    given = (getattr(topic, field, "") for field in ("name", "topic", "topic_id"))
    return _name_of(context, next(filter(None, given), ""))
