"""Guards of the APIs about topics and records.

Differs from Kafka: records outside of a transaction, by a producer that belongs to a transactional
id, need WRITE on that id too; else every writer of the topic could spoil the producer's epoch.

Source: Kafka `KafkaApis`, `ControllerApis`, `DescribeTopicPartitionsRequestHandler`; KIP-430.
"""

from typing import Any

from broker.errors import ConnectionMustClose, InvalidTopicName
from broker.replies.forms import then
from broker.requests.access import Check
from broker.requests.authorized_operations import NOT_ASKED
from broker.requests.context import Context, Handler, Reply, RequestContext
from broker.rights.guards import (
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    TRANSACTIONAL_ID_DENIED,
    Steps,
    guard,
    joined,
    on_items,
    parted,
    refused_topic,
    repeated,
)
from broker.topics.registry import NO_TOPIC_ID, RESERVED_TOPICS, check_topic_name
from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_producers,
    describe_topic_partitions,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from protocol.error_codes import ErrorCode
from protocol.records.layout import MAGIC_V2, PRODUCER_EPOCH_AT, PRODUCER_ID_AT
from protocol.structs import PartitionIndexes

_WRITE = Operation.WRITE
"""Looking into an enumeration costs as much as the right that is known."""

_BY_ID_SINCE_PRODUCE = 13
_BY_ID_SINCE_METADATA = 12
_CONFIGS_SINCE = 5
_TRANSACTIONAL_BIT = 0x10
_SIZE_AT, _OVERHEAD, _MAGIC_AT, _ATTRIBUTES_AT = 8, 12, 16, 21
_SIZE_MIN = 14
"""The size field of the smallest message, one of magic 0."""


def produce_guard(
    context: Context, request: RequestContext, message: produce.ProduceRequest, handler: Handler
) -> Reply:
    """WRITE on each topic, and on the transactional ids of the batches."""
    check = Check(context, request)
    if any(
        _is_transactional(partition.records)
        for topic in message.topic_data
        for partition in topic.partition_data
    ) and not check.transactional_id(_WRITE, message.transactional_id):
        return _refused_produce(message, message.topic_data, TRANSACTIONAL_ID_DENIED, None)

    def name_of(topic: produce.TopicProduceData) -> str | None:
        """None for an id that there is not, as the handler answers."""
        if request.api_version < _BY_ID_SINCE_PRODUCE:
            return topic.name
        found = context.topics.find_by_id(topic.topic_id)
        return None if found is None else found.name

    def is_allowed(topic: produce.TopicProduceData) -> bool:
        name = name_of(topic)
        return name is None or check.topic(_WRITE, name)

    def is_by_own_producers(topic: produce.TopicProduceData) -> bool:
        return name_of(topic) is None or all(
            (owner := _owner(context, partition.records)) is None
            or check.transactional_id(_WRITE, owner)
            for partition in topic.partition_data
        )

    allowed, denied = parted(message.topic_data, is_allowed)
    allowed, foreign = parted(allowed, is_by_own_producers)
    if not denied and not foreign:
        return handler(context, request, message)

    def with_refusals(answer: produce.ProduceResponse | None) -> produce.ProduceResponse:
        answer = _refused_produce(message, denied, TOPIC_DENIED, answer)
        return _refused_produce(message, foreign, TRANSACTIONAL_ID_DENIED, answer)

    if not allowed:
        return with_refusals(None)
    if message.acks == 0:
        raise ConnectionMustClose("a Produce without an answer wrote to a topic that it may not")
    message.topic_data = allowed
    return then(handler(context, request, message), with_refusals)


def _is_transactional(records: Any) -> bool:
    """Whether the first batch is whole and flagged transactional."""
    return _is_whole(records) and bool(records[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL_BIT)


def _is_whole(records: Any) -> bool:
    return (
        records is not None
        and len(records) > _ATTRIBUTES_AT + 1
        and records[_MAGIC_AT] == MAGIC_V2
        and _size_field(records) + _OVERHEAD <= len(records)
    )


def _owner(context: Context, records: Any) -> str | None:
    """The transactional id to which the producer of a batch outside of a transaction belongs."""
    if not _is_whole(records) or len(records) < PRODUCER_EPOCH_AT:
        return None
    if records[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL_BIT:
        return None
    producer_id = int.from_bytes(records[PRODUCER_ID_AT:PRODUCER_EPOCH_AT], "big", signed=True)
    return None if producer_id < 0 else context.transactions.transactional_id_of(producer_id)


def _is_corrupt(records: Any) -> bool:
    """Whether the first batch is none, which is said to clients without the right too."""
    if records is None or len(records) < _OVERHEAD:
        return False
    has_magic = len(records) > _MAGIC_AT
    return _size_field(records) < _SIZE_MIN or (has_magic and records[_MAGIC_AT] > MAGIC_V2)


def _size_field(records: Any) -> int:
    return int.from_bytes(records[_SIZE_AT:_OVERHEAD], "big", signed=True)


def _refused_produce(
    message: produce.ProduceRequest,
    denied: list[produce.TopicProduceData],
    code: int,
    answer: produce.ProduceResponse | None,
) -> produce.ProduceResponse:
    if message.acks == 0:
        raise ConnectionMustClose("a Produce without an answer wrote to a topic that it may not")
    answer = answer or produce.ProduceResponse()
    answer.responses.extend(
        produce.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _refused_partition(index, code, partition.records)
                for index, partition in {p.index: p for p in topic.partition_data}.items()
            ],
        )
        for topic in joined(denied, "partition_data")
        if topic.partition_data
    )
    return answer


def _refused_partition(index: int, code: int, records: Any) -> produce.PartitionProduceResponse:
    is_corrupt = _is_corrupt(records)
    return produce.PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.CORRUPT_MESSAGE if is_corrupt else code,
        error_message="The records do not begin with a batch." if is_corrupt else None,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
    )


list_offsets_guard = on_items(
    "topics",
    lambda check, topic: check.topic(Operation.DESCRIBE, topic.name),
    "topics",
    lambda topic: refused_topic(
        list_offsets.ListOffsetsTopicResponse,
        topic,
        error_code=TOPIC_DENIED,
        timestamp=-1,
        offset=-1,
    ),
    list_offsets.ListOffsetsResponse,
)


def _each_partition_once(
    topics: list[delete_records.DeleteRecordsTopic],
) -> list[delete_records.DeleteRecordsTopic]:
    merged = joined(topics)
    for topic in merged:
        topic.partitions = list({p.partition_index: p for p in topic.partitions}.values())
    return [topic for topic in merged if topic.partitions]


delete_records_guard = on_items(
    "topics",
    lambda check, topic: check.topic(Operation.DELETE, topic.name),
    "topics",
    lambda topic: refused_topic(
        delete_records.DeleteRecordsTopicResult, topic, low_watermark=-1, error_code=TOPIC_DENIED
    ),
    delete_records.DeleteRecordsResponse,
    merge=_each_partition_once,
)

create_partitions_guard = on_items(
    "topics",
    lambda check, topic: check.topic(Operation.ALTER, topic.name),
    "results",
    lambda topic: create_partitions.CreatePartitionsTopicResult(
        name=topic.name, error_code=TOPIC_DENIED, error_message=None
    ),
    create_partitions.CreatePartitionsResponse,
    once=lambda topic: topic.name,
)


def _may_see_producers(check: Check, topic: PartitionIndexes) -> bool:
    try:
        check_topic_name(topic.name)
    except InvalidTopicName:
        return True  # the handler answers so
    return check.topic(Operation.READ, topic.name)


describe_producers_guard = on_items(
    "topics",
    _may_see_producers,
    "topics",
    lambda topic: refused_topic(
        describe_producers.TopicResponse,
        topic,
        error_code=TOPIC_DENIED,
        error_message=TOPIC_MESSAGE,
    ),
    describe_producers.DescribeProducersResponse,
)


def _may_see_epochs(check: Check, topic: offset_for_leader_epoch.OffsetForLeaderTopic) -> bool:
    if check.sees(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return True
    return check.topic(Operation.DESCRIBE, topic.topic)


offset_for_leader_epoch_guard = on_items(
    "topics",
    _may_see_epochs,
    "topics",
    lambda topic: refused_topic(
        offset_for_leader_epoch.OffsetForLeaderTopicResult,
        topic,
        error_code=TOPIC_DENIED,
        leader_epoch=-1,
        end_offset=-1,
    ),
    offset_for_leader_epoch.OffsetForLeaderEpochResponse,
)


@guard
def metadata_guard(check: Check, message: metadata.MetadataRequest) -> Steps:
    """DESCRIBE on each topic, and CREATE where the request would create it."""
    version = check.request.api_version
    asks_all = message.topics is None or (version == 0 and not message.topics)
    denied: list[metadata.MetadataRequestTopic] = []
    by_id = any(map(_is_by_id, message.topics or ()))
    if by_id and version < _BY_ID_SINCE_METADATA:
        return None  # it is refused as a whole
    if not asks_all:
        assert message.topics is not None
        message.topics, denied = parted(
            message.topics, lambda topic: _may_describe(check, message, topic)
        )
        # A name beside ids is not refused, but left out; a topic asked for twice is refused once.
        denied = list(
            {
                (topic.name, topic.topic_id): topic
                for topic in map(_as_refused, denied)
                if not by_id or topic.name is None
            }.values()
        )
    hides_all = version == 0 and bool(denied) and not message.topics
    answer: metadata.MetadataResponse = yield
    if hides_all:
        answer.topics = []
    elif asks_all:
        answer.topics = [
            topic
            for topic in answer.topics
            if check.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name or "")
        ]
    for topic in answer.topics:
        if message.include_topic_authorized_operations and not topic.error_code:
            topic.topic_authorized_operations = check.bits(ResourceType.TOPIC, topic.name or "")
    answer.topics.extend(
        metadata.MetadataResponseTopic(
            error_code=TOPIC_DENIED,
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[],
            topic_authorized_operations=NOT_ASKED,
        )
        for topic in denied
    )
    if message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_bits(check)
    return answer


def cluster_bits(check: Check) -> int:
    """The field of the cluster's operations: nothing for a client that may not describe it."""
    if check.sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return check.bits(ResourceType.CLUSTER, CLUSTER_NAME)
    return 0


def _may_describe(
    check: Check, message: metadata.MetadataRequest, asked: metadata.MetadataRequestTopic
) -> bool:
    context = check.context
    if _is_by_id(asked):
        found = context.topics.find_by_id(asked.topic_id)
        return found is None or check.topic(Operation.DESCRIBE, found.name)
    assert asked.name is not None
    if not check.topic(Operation.DESCRIBE, asked.name):
        return False
    creates = message.allow_auto_topic_creation and context.config.auto_create_topics_enable
    return (
        not creates or context.topics.find(asked.name) is not None or _may_create(check, asked.name)
    )


def _is_by_id(asked: metadata.MetadataRequestTopic) -> bool:
    """Whether the id counts, and not the name if there is one."""
    return asked.name is None or asked.topic_id != NO_TOPIC_ID


def _as_refused(asked: metadata.MetadataRequestTopic) -> metadata.MetadataRequestTopic:
    """What a refusal may repeat of a request: with an id no name, which the id does not show."""
    name = None if _is_by_id(asked) else asked.name
    return metadata.MetadataRequestTopic(name=name, topic_id=asked.topic_id)


def _may_create(check: Check, name: str) -> bool:
    on_cluster = check.sees(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    return on_cluster or check.topic(Operation.CREATE, name)


@guard
def create_topics_guard(check: Check, message: create_topics.CreateTopicsRequest) -> Steps:
    """CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to see the settings it got."""
    invalid = RESERVED_TOPICS | repeated(topic.name for topic in message.topics)
    message.topics, denied = parted(
        message.topics, lambda topic: topic.name in invalid or _may_create(check, topic.name)
    )
    answer = create_topics.CreateTopicsResponse()
    if message.topics or not denied:
        answer = yield
    for result in answer.topics:
        if (
            check.request.api_version >= _CONFIGS_SINCE
            and not result.error_code
            and not check.sees(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name)
        ):
            result.topic_config_error_code = TOPIC_DENIED
            result.num_partitions = result.replication_factor = -1
            result.configs = None
    answer.topics.extend(
        create_topics.CreatableTopicResult(
            name=topic.name,
            error_code=TOPIC_DENIED,
            error_message="Authorization failed.",
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
        for topic in denied
    )
    return answer


@guard
def delete_topics_guard(check: Check, message: delete_topics.DeleteTopicsRequest) -> Steps:
    """DELETE on the cluster or on each topic; a forbidden id shows its name with DESCRIBE only."""
    has_no_time = message.timeout_ms <= 0  # the handler answers so
    if has_no_time or check.sees(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    topics = check.context.topics
    refusals: list[delete_topics.DeletableTopicResult] = []
    twice = repeated(
        (*message.topic_names, *(topic.name or topic.topic_id for topic in message.topics))
    )

    def is_allowed(name: str | None, topic_id: bytes) -> bool:
        is_invalid = (name is None) == (topic_id == NO_TOPIC_ID) or (name or topic_id) in twice
        found = topics.find_by_id(topic_id) if name is None else topics.find(name)
        known = name if found is None else found.name
        sees = known is not None and check.sees(Operation.DESCRIBE, ResourceType.TOPIC, known)
        if is_invalid or (found is None and (sees or name is None)):
            return True  # the handler answers so
        if check.topic(Operation.DELETE, known or ""):
            return True
        refusals.append(
            delete_topics.DeletableTopicResult(
                name=known if sees else name,
                topic_id=topic_id,
                error_code=TOPIC_DENIED,
                error_message=TOPIC_MESSAGE,
            )
        )
        return False

    message.topics = [t for t in message.topics if is_allowed(t.name, t.topic_id)]
    message.topic_names = [n for n in message.topic_names if is_allowed(n, NO_TOPIC_ID)]
    answer = delete_topics.DeleteTopicsResponse()
    if message.topics or message.topic_names or not refusals:
        answer = yield
    answer.responses.extend(refusals)
    return answer


@guard
def describe_topic_partitions_guard(
    check: Check, message: describe_topic_partitions.DescribeTopicPartitionsRequest
) -> Steps:
    """DESCRIBE on each topic; those that a list of all would hide count for no page."""
    cursor = message.cursor
    asked = {topic.name for topic in message.topics}
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        return None  # it is refused as a whole
    denied: list[str] = []
    if asked:
        allowed, denied = parted(
            sorted(name for name in asked if cursor is None or name >= cursor.topic_name),
            lambda name: check.topic(Operation.DESCRIBE, name),
        )
    else:
        allowed = [
            topic.name
            for topic in check.context.topics
            if check.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    if cursor is not None and cursor.topic_name not in allowed:
        allowed = [name for name in allowed if name > cursor.topic_name]
        message.cursor = None
    message.topics = [describe_topic_partitions.TopicRequest(name=name) for name in allowed]
    answer = describe_topic_partitions.DescribeTopicPartitionsResponse()
    if allowed:
        answer = yield
    for topic in answer.topics:
        if not topic.error_code:
            topic.topic_authorized_operations = check.bits(ResourceType.TOPIC, topic.name or "")
    answer.topics.extend(
        describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
            error_code=TOPIC_DENIED,
            name=name,
            partitions=[],
            topic_authorized_operations=NOT_ASKED,
        )
        for name in denied
    )
    return answer
