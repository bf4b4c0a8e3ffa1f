"""The requests that the benchmarks write by hand are those that a client would send."""

import pytest

from benchmarks import request_cost
from benchmarks.harness import wire
from protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.api_keys import ApiKey
from protocol.registry import ServerCodec

VERSION = 12


@pytest.mark.parametrize("size", [1, 100, 20_000])
def test_produce_is_the_frame_of_a_current_client(size: int) -> None:
    batch = b"x" * size
    data = PartitionProduceData(index=3, records=batch)
    topic = TopicProduceData(name="topic", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    frame = bytearray(wire.produce_request("topic", 3, batch))
    wire.set_correlation_id(frame, 7)
    assert bytes(frame) == request_cost.framed(request, VERSION)


def test_error_of_an_answer_is_found() -> None:
    answer = PartitionProduceResponse(index=3, error_code=41, base_offset=-1)
    topic = TopicProduceResponse(name="topic", partition_responses=[answer])
    parts = ServerCodec(ApiKey.PRODUCE, VERSION).encode(7, ProduceResponse(responses=[topic]))
    assert wire.produce_error(b"".join(parts)[4:]) == 41
