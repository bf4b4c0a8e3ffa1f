"""DescribeProducers (key 61, version 0): the recent idempotent producers of a partition.

Shows the log's facts: last sequence and timestamp of each producer id, and where its open
transaction began, which is how operators find a hanging transaction.

Source: Kafka `KafkaApis.handleDescribeProducersRequest`; KIP-664.
"""

from functools import partial

from broker.requests.context import Context, RequestContext
from broker.requests.error_mapping import REFUSALS, error_code
from broker.topics.registry import check_topic_name
from protocol.api import describe_producers as api
from storage.disk.steps import Steps, each


def handle(
    context: Context, request: RequestContext, message: api.DescribeProducersRequest
) -> Steps[api.DescribeProducersResponse]:
    """The producers of each requested partition."""
    response = api.DescribeProducersResponse()
    for topic in message.topics:
        partitions = yield from each(
            topic.partition_indexes, partial(_describe, context, topic.name)
        )
        response.topics.append(api.TopicResponse(name=topic.name, partitions=partitions))
        yield None
    return response


def _describe(context: Context, name: str, index: int) -> api.PartitionResponse:
    try:
        check_topic_name(name)
        log = context.topics.read_log(name, index)
    except REFUSALS as error:
        return api.PartitionResponse(
            partition_index=index, error_code=error_code(error), error_message=str(error)
        )
    return api.PartitionResponse(
        partition_index=index,
        active_producers=[
            api.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.txn_first_offset,
            )
            for entry in log.producers.state
        ],
    )
