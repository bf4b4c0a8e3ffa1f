"""Does the declared codec follow the specification, and explain what breaks it?

The bytes below were put together by hand from Kafka's message specifications.
"""

from __future__ import annotations

from typing import Any

import construct
import pytest

from protocol.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from protocol.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from protocol.api.fetch import FetchRequest
from protocol.api.heartbeat import HeartbeatRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.declare import schema
from protocol.declare.layout import least_size, structure
from protocol.errors import MalformedRequest
from protocol.structs import ProtocolMetadata
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=7, records=b"\xca\xfe")]
        )
    ],
)
GOLDEN: list[tuple[Any, int, str]] = [
    (ApiVersionsRequest(), 0, ""),
    (
        ApiVersionsRequest(client_software_name="ab", client_software_version="1"),
        3,
        "03 6162 02 31 00",
    ),
    (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]),
        0,
        "0000 00000001 0012 0000 0004",
    ),
    (
        ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, max_version=4)],
            finalized_features_epoch=5,
            finalized_features=[
                FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)
            ],
        ),
        3,
        "0000 02 0012 0000 0004 00 0000000002 01 08 0000000000000005 02 08 02 02 66 0002 0001 00",
    ),
    (MetadataRequest(topics=[]), 0, "00000000"),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4, "00000001 0001 74 01"),
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=bytes(range(16)))],
            allow_auto_topic_creation=False,
        ),
        12,
        "02 000102030405060708090a0b0c0d0e0f 00 00 00 00 00",
    ),
    (PRODUCE, 0, "ffff 00007530 00000001 0001 74 00000001 00000007 00000002 cafe"),
    (PRODUCE, 3, "ffff ffff 00007530 00000001 0001 74 00000001 00000007 00000002 cafe"),
    (PRODUCE, 9, "00 ffff 00007530 02 02 74 02 00000007 03 cafe 00 00 00"),
    (
        PRODUCE,
        13,
        "00 ffff 00007530 02 00000000000000000000000000000000 02 00000007 03 cafe 00 00 00",
    ),
    (
        FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1024, cluster_id="c"),
        12,
        "ffffffff 000001f4 00000001 00000400 00 00000000 ffffffff 01 01 01 01 00 02 02 63",
    ),
    (
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[ProtocolMetadata(name="range", metadata=b"\x01")],
        ),
        0,
        "0001 67 00002710 0000 0008 636f6e73756d6572 00000001 0005 72616e6765 00000001 01",
    ),
    (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[ListOffsetsPartitionResponse(old_style_offsets=[9, 0])],
                )
            ]
        ),
        0,
        "00000001 0001 74 00000001 00000000 0000 00000002 0000000000000009 0000000000000000",
    ),
    (DescribeTopicPartitionsRequest(), 0, "01 000007d0 ff 00"),
    (
        DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3)),
        0,
        "01 000007d0 01 02 74 00000003 00 00",
    ),
]


@pytest.mark.parametrize(("message", "version", "golden"), GOLDEN)
def test_bytes_are_those_of_the_specification(message: Any, version: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert schema.encode(message, version) == data
    decoded, end = schema.decode(type(message), version, memoryview(data), 0)
    assert end == len(data)
    assert schema.encode(decoded, version) == data


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_what_was_encoded_is_decoded(layout: Layout, nulls: bool) -> None:
    message = sample(layout, nulls=nulls)
    data = b"header" + schema.encode(message, layout.version)
    assert schema.decode(layout.cls, layout.version, memoryview(data), 6) == (message, len(data))


def broken(cls: type, version: int, hexadecimal: str) -> MalformedRequest:
    with pytest.raises(MalformedRequest) as caught:
        schema.decode(cls, version, memoryview(bytes.fromhex(hexadecimal)), 0)
    return caught.value


def test_null_where_it_is_not_allowed_names_the_field() -> None:
    error = broken(HeartbeatRequest, 0, "0001 67 00000001 ffff")
    assert (error.message, error.field, error.position) == ("HeartbeatRequest v0", "member_id", 9)
    assert "null is not allowed" in error.problem


def test_field_path_leads_into_arrays() -> None:
    error = broken(ProduceRequest, 0, "ffff 00000000 00000001 0001 74 00000002 0000")
    assert error.field == "topic_data[0].partition_data"
    error = broken(ProduceRequest, 0, "ffff 00000000 00000001 0001 74 00000001 00000000 00000009")
    assert error.field == "topic_data[0].partition_data[0].records"
    assert error.problem == "claims at least 9 bytes, 0 are left"


def test_count_beyond_the_bytes_left_is_refused_before_reading() -> None:
    error = broken(MetadataRequest, 0, "7fffffff 0000")
    assert error.field == "topics"
    assert "claims at least" in error.problem


def test_any_negative_length_is_null() -> None:
    data = bytes.fromhex("fffffffe")
    assert schema.decode(MetadataRequest, 1, memoryview(data), 0)[0].topics is None


def test_compact_string_longer_than_kafka_allows() -> None:
    data = "818002" + "61" * 32768 + "01 00"
    error = broken(ApiVersionsRequest, 3, data)
    assert error.field == "client_software_name"
    assert "exceeds 32767" in error.problem


def test_text_that_is_not_utf8() -> None:
    assert "not UTF-8" in broken(HeartbeatRequest, 0, "0001 ff 00000001 0000").problem


def test_tag_that_is_longer_than_its_field() -> None:
    data = "ffffffff 000001f4 00000001 00000400 00 00000000 ffffffff 01 01 01 01 00 03 02 63 00"
    assert "tag 0 is not 3 bytes long" in broken(FetchRequest, 12, data).problem


def test_unknown_tag_is_skipped_and_known_one_read() -> None:
    data = "03 6162 02 31 01 09 02 abcd"
    value, end = schema.decode(ApiVersionsRequest, 3, memoryview(bytes.fromhex(data)), 0)
    assert value == ApiVersionsRequest(client_software_name="ab", client_software_version="1")
    assert end == len(bytes.fromhex(data))


@pytest.mark.parametrize("varint", ["ffffffffff", "ffffffff1f"])
def test_varint_beyond_32_bits(varint: str) -> None:
    assert broken(ApiVersionsRequest, 3, varint).field == "client_software_name"


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (HeartbeatRequest(group_id=None), 0, "group_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=7), 0, "group_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="\ud800"), 0, "group_id"),
        (HeartbeatRequest(group_id="x" * 32768), 4, "group_id"),
        (HeartbeatRequest(generation_id=2**31), 0, "generation_id"),
        (MetadataRequest(topics=None), 0, "topics"),
        (MetadataRequest(topics=[None]), 0, "topics[0]"),  # type: ignore[list-item]
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"")]), 12, "topics[0].topic_id"),
        (
            ProduceRequest(
                topic_data=[
                    TopicProduceData(
                        partition_data=[PartitionProduceData(records="text")]  # type: ignore[arg-type]
                    )
                ]
            ),
            0,
            "topic_data[0].partition_data[0].records",
        ),
    ],
)
def test_value_that_does_not_fit_names_the_field(message: Any, version: int, field: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        schema.encode(message, version)
    assert caught.value.field == field


def test_varint_beyond_32_bits_is_not_written() -> None:
    with pytest.raises(construct.IntegerError, match="outside"):
        schema.UnsignedVarint().build(2**32)


def test_trees_are_built_once() -> None:
    assert schema.tree(HeartbeatRequest, 3) is schema.tree(HeartbeatRequest, 3)


def test_least_size_counts_every_mandatory_byte() -> None:
    # acks, timeout, count in v0; one byte each of null id, count and tag section more in v9.
    assert least_size(structure(ProduceRequest, 0)) == 2 + 4 + 4
    assert least_size(structure(ProduceRequest, 9)) == 1 + 2 + 4 + 1 + 1
    assert least_size(structure(DescribeTopicPartitionsRequest, 0)) == 1 + 4 + 1 + 1
