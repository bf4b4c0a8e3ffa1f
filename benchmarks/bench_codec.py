"""Microseconds to decode and encode messages: the written codec beside the tree it came from.

In this process, no broker: a Produce request, a Fetch response of 10 partitions, a Metadata
response of 10 topics of 10 partitions and a Heartbeat. Best of several rounds, since what disturbs
a run only ever makes it slower. `python -m benchmarks.bench_codec`
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.bench_records import best_us
from protocol.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.declare import schema
from protocol.declare.primitives import Direction, message_spec
from protocol.registry import decode_request, decode_response, encode_request, encode_response

BATCH = bytes(16_384)


def main() -> int:
    """Measures and prints a Markdown table."""
    print("| message | decode | encode | tree: decode | tree: encode |")
    print("|---|---:|---:|---:|---:|")
    for title, message, version in _messages():
        cells = " | ".join(f"{value:.1f}" for value in _measured(message, version))
        print(f"| {title} v{version} | {cells} |")
    return 0


def _measured(message: Any, version: int) -> list[float]:
    cls = type(message)
    spec = message_spec(cls)
    data = memoryview(encode_request(message, version))
    is_request = spec.direction is Direction.REQUEST
    decode = decode_request if is_request else decode_response
    encode: Callable[[Any, int], object] = encode_request if is_request else encode_response
    return [
        best_us(lambda: decode(spec.api_key, version, data, 0)),
        best_us(lambda: encode(message, version)),
        best_us(lambda: schema.decode(cls, version, data, 0)),
        best_us(lambda: schema.encode(message, version)),
    ]


def _messages() -> Iterator[tuple[str, Any, int]]:
    sent = TopicProduceData(
        name="topic", partition_data=[PartitionProduceData(index=0, records=BATCH)]
    )
    yield "Produce request, one batch", ProduceRequest(acks=-1, topic_data=[sent]), 11
    read = [PartitionData(partition_index=index, records=BATCH) for index in range(10)]
    topic = FetchableTopicResponse(topic="topic", partitions=read)
    yield "Fetch response, 10 partitions", FetchResponse(responses=[topic]), 12
    partitions = [
        MetadataResponsePartition(partition_index=index, replica_nodes=[1], isr_nodes=[1])
        for index in range(10)
    ]
    topics = [
        MetadataResponseTopic(name=f"t{number}", partitions=partitions) for number in range(10)
    ]
    yield "Metadata response, 10 x 10", MetadataResponse(topics=topics), 12
    yield "Heartbeat request", HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4


if __name__ == "__main__":
    sys.exit(main())
