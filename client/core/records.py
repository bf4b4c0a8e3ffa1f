"""The requests that carry records: Produce and Fetch, for partitions of one leader.

Only their shape and their versions; what the records in them mean is the caller's.
"""

from collections.abc import Mapping
from typing import Any

from client.core.offsets import Isolation
from client.core.parts import by_topic
from client.types import TopicPartition
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

# The last version in which topics are fetched by name, and the first of transactions.
FETCH_VERSIONS = {"max_version": 12, "min_version": 4}

# Version 11 is the last before partitions are added to transactions by producing to them;
# version 3 is the first that takes record format 2, the only one that is written here.
PRODUCE_VERSIONS = {"max_version": 11, "min_version": 3}


def fetch_request(
    offsets: Mapping[TopicPartition, int],
    *,
    isolation: Isolation,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> FetchRequest:
    """The request for the records of each partition from its offset on."""
    topics = by_topic(
        offsets,
        lambda tp: FetchPartition(
            partition=tp.partition,
            fetch_offset=offsets[tp],
            partition_max_bytes=partition_max_bytes,
        ),
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
    )


def produce_request(
    batches: Mapping[TopicPartition, Any],
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> ProduceRequest:
    """The request that appends to each partition its batch (encoded bytes)."""
    topics = by_topic(
        batches, lambda tp: PartitionProduceData(index=tp.partition, records=batches[tp])
    )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, partition_data=data) for name, data in topics.items()
        ],
    )
