"""CreatePartitions (key 37, versions 0-3): grow topics; shrinking does not exist.

A timeout of 0 or less: `broker.topics.no_time`.

Source: KIP-195; Kafka `ReplicationControlManager.createPartitions`.
"""

from collections import Counter

from broker.errors import InvalidReplicaAssignment, InvalidRequest
from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.no_time import check_time_after, check_time_before
from protocol.api import create_partitions as api

_QUOTA_CODE_SINCE = 3


async def handle(
    context: Context, request: RequestContext, message: api.CreatePartitionsRequest
) -> api.CreatePartitionsResponse:
    """Grow every topic as requested, where possible, and answer for all."""
    quota = context.security.mutation_quota(
        request, is_strict=request.api_version >= _QUOTA_CODE_SINCE
    )
    counts = Counter(topic.name for topic in message.topics)
    results: dict[str, api.CreatePartitionsTopicResult] = {}
    for topic in message.topics:
        if topic.name in results:
            continue
        result = results[topic.name] = api.CreatePartitionsTopicResult(name=topic.name)
        try:
            check_time_before(request.api_key, request.api_version, message.timeout_ms)
            if counts[topic.name] > 1:
                raise InvalidRequest(f"Topic {topic.name!r} stands in the request more than once.")
            context.topics.check_growth(topic.name, topic.count)
            workers = _assigned(context, topic)
            if not message.validate_only:
                quota.charge(topic.count - _size(context, topic.name))
                await context.topics.add_partitions(topic.name, topic.count, workers=workers)
                what = f"grew topic {topic.name} to {topic.count} partitions"
                context.security.audit.changed(request, what)
                check_time_after(message.timeout_ms)
        except REFUSALS as error:
            result.error_code = error_code(error)
            result.error_message = str(error)
    return api.CreatePartitionsResponse(
        throttle_time_ms=quota.delay_ms, results=list(results.values())
    )


def _size(context: Context, name: str) -> int:
    topic = context.topics.find(name)
    assert topic is not None, "check_growth has found the topic"
    return len(topic.partitions)


def _assigned(context: Context, asked: api.CreatePartitionsTopic) -> tuple[int, ...]:
    """The workers of a manual assignment, which must cover exactly the new partitions."""
    if asked.assignments is None:
        return ()
    added = asked.count - _size(context, asked.name)
    if len(asked.assignments) != added:
        raise InvalidReplicaAssignment(
            f"{added} partitions are added but {len(asked.assignments)} are assigned."
        )
    return context.topics.assigned_workers(
        [assignment.broker_ids for assignment in asked.assignments]
    )
