"""OffsetForLeaderEpoch (key 23, versions 0-4): the end offset of a leader epoch.

A consumer that has seen an older epoch learns here whether its position was truncated away. That
happens on one node too: under `flush.policy=os` an unclean start may lose a tail and opens a new
epoch. An unknown epoch is answered with (-1, -1) and no error.

Source: KIP-101, KIP-279, KIP-320; Kafka `UnifiedLog.endOffsetForEpoch`.
"""

from functools import partial

from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from protocol.api import offset_for_leader_epoch as api
from storage.disk.steps import Steps, each

_UNDEFINED_EPOCH = -1


def handle(
    context: Context, request: RequestContext, message: api.OffsetForLeaderEpochRequest
) -> Steps[api.OffsetForLeaderEpochResponse]:
    """The end of each requested epoch, per partition."""
    response = api.OffsetForLeaderEpochResponse()
    for topic in message.topics:
        name = topic.topic
        partitions = yield from each(topic.partitions, partial(_end, context, name))
        response.topics.append(api.OffsetForLeaderTopicResult(topic=name, partitions=partitions))
        yield None
    return response


def _end(context: Context, name: str, asked: api.OffsetForLeaderPartition) -> api.EpochEndOffset:
    answer = api.EpochEndOffset(partition=asked.partition)
    try:
        log = context.topics.read_log(name, asked.partition, asked.current_leader_epoch)
        if asked.leader_epoch != _UNDEFINED_EPOCH:
            answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except REFUSALS as error:
        answer.error_code = error_code(error)
    return answer
