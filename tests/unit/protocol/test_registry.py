"""Is the one door of the codec closed to everything malformed, and quick for the rest?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol import headers, registry
from protocol.api.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.api.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.declare import schema
from protocol.declare.primitives import REQUEST_ELEMENTS_MAX, Direction, TooManyElements
from protocol.declare.varint import encode_unsigned
from protocol.errors import MalformedRequest, UnsupportedVersion
from protocol.frames import encode_frame
from tests.support.codec import decode_request, encode_body, encode_response, request_head
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

ROOT = Path(__file__).resolve().parents[3]
ADVERTISED = [
    layout
    for layout in LAYOUTS
    if layout.key in SUPPORTED and layout.version == SUPPORTED[layout.key].max
]


def fetch_response(*payloads: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=p) for i, p in enumerate(payloads)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_classes_are_found_by_key() -> None:
    assert registry.request_class(ApiKey.FETCH) is FetchRequest
    assert registry.response_class(1) is FetchResponse


def decode(layout: Layout, body: Any) -> Any:
    if layout.direction is Direction.REQUEST:
        return decode_request(layout.key, layout.version, body)
    return registry.decode_response(layout.key, layout.version, memoryview(b"head" + body), 4)


def head_bytes(layout: Layout) -> int:
    """Bytes before the body in what `decode` reads."""
    is_request = layout.direction is Direction.REQUEST
    return len(request_head(layout.key, layout.version)) if is_request else 4


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_round_trip(layout: Layout) -> None:
    message = sample(layout)
    assert decode(layout, encode_body(message, layout.version)) == message


def described(version: int) -> DescribeConfigsResponse:
    layouts = {each.version: each for each in LAYOUTS if each.cls is DescribeConfigsResponse}
    message: DescribeConfigsResponse = sample(layouts[version])
    return message


@pytest.mark.parametrize("version", range(5))
def test_structs_may_be_encoded_before_their_message(version: int) -> None:
    expected = encode_body(described(version), version)
    message = described(version)
    setting = registry.struct_encoder(
        DescribeConfigsResponse, DescribeConfigsResourceResult, version
    )
    result = registry.struct_encoder(DescribeConfigsResponse, DescribeConfigsResult, version)
    assert message.results[0].configs
    for each in message.results:
        each.configs = list(map(setting, each.configs))
    message.results[1:] = map(result, message.results[1:])
    assert encode_body(message, version) == expected
    assert schema.encode(message, version) == schema.encode(described(version), version)


def test_long_encoded_structs_are_not_copied_into_the_answer() -> None:
    encode = registry.struct_encoder(DescribeConfigsResponse, DescribeConfigsResult, 4)
    long = encode(DescribeConfigsResult(resource_name="t" * 2_000))
    codec = registry.ServerCodec(ApiKey.DESCRIBE_CONFIGS, 4)
    parts = codec.encode(7, DescribeConfigsResponse(results=[long, long]))
    assert [part for part in parts if part is long] == [long, long]


def test_struct_that_does_not_fit_its_layout_is_explained() -> None:
    encode = registry.struct_encoder(DescribeConfigsResponse, DescribeConfigsResult, 4)
    with pytest.raises(MalformedRequest) as caught:
        encode(DescribeConfigsResult(resource_name="t" * 40_000))
    assert "DescribeConfigsResult v4" in caught.value.message
    assert caught.value.field == "resource_name"


def test_struct_of_a_version_that_its_message_does_not_have() -> None:
    with pytest.raises(UnsupportedVersion):
        registry.struct_encoder(DescribeConfigsResponse, DescribeConfigsResult, 5)


@pytest.mark.parametrize("layout", ADVERTISED, ids=str)
def test_every_truncation_is_explained(layout: Layout) -> None:
    data = encode_body(sample(layout, length=1), layout.version)
    head = head_bytes(layout)
    for end in range(len(data)):
        with pytest.raises(MalformedRequest) as caught:
            decode(layout, data[:end])
        assert caught.value.message == f"{layout.cls.__name__} v{layout.version}"
        assert head <= caught.value.position <= head + end


@pytest.mark.parametrize("layout", ADVERTISED, ids=str)
def test_trailing_bytes_are_ignored_in_requests_and_refused_in_responses(layout: Layout) -> None:
    message = sample(layout)
    data = encode_body(message, layout.version)
    if layout.direction is Direction.REQUEST:
        assert decode(layout, data + b"\0") == message
    else:
        with pytest.raises(MalformedRequest, match="1 bytes after the end") as caught:
            decode(layout, data + b"\0")
        assert caught.value.position == head_bytes(layout) + len(data)


def test_librdkafka_asks_for_all_topics_with_bytes_to_spare() -> None:
    """librdkafka 2.16 keeps all four bytes of an array count of which a null array needs one."""
    body = bytes.fromhex("00 00 00 00 01 00 00")
    request = decode_request(ApiKey.METADATA, 13, body)
    assert request.topics is None


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.FETCH, 19), (ApiKey.FETCH, -1), (ApiKey.VOTE, 0), (4711, 0)]
)
def test_unknown_layouts_are_unsupported(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_request(key, version, b"")
    with pytest.raises(UnsupportedVersion):
        registry.decode_response(key, version, memoryview(b""), 0)


def test_encoding_an_unknown_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersion):
        registry.encode_request(HeartbeatRequest(), 5)
    with pytest.raises(UnsupportedVersion):
        encode_response(HeartbeatResponse(), -1)


def test_unencodable_values_are_explained() -> None:
    with pytest.raises(MalformedRequest, match=r"HeartbeatRequest v1\.group_id .*null"):
        registry.encode_request(HeartbeatRequest(group_id=None), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [3, 4])
def test_text_beyond_32767_bytes_is_explained_in_either_encoding(version: int) -> None:
    with pytest.raises(MalformedRequest, match="exceeds 32767"):
        registry.encode_request(HeartbeatRequest(group_id="é" * 16384), version)
    registry.encode_request(HeartbeatRequest(group_id="x" * 32767), version)


def test_disagreement_of_codecs_is_our_bug_not_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise ValueError

    monkeypatch.setitem(registry._decoders, (HeartbeatResponse, 0), fail)
    monkeypatch.setitem(registry._encoders, (HeartbeatRequest, 0), fail)
    with pytest.raises(AssertionError, match="disagree"):
        registry.decode_response(ApiKey.HEARTBEAT, 0, memoryview(b"\0\0"), 0)
    with pytest.raises(AssertionError, match="disagree"):
        registry.encode_request(HeartbeatRequest(), 0)


@pytest.mark.parametrize("version", [3, 9])
def test_produced_records_are_writable_views_of_the_frame(version: int) -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])
        ]
    )
    frame = bytearray(request_head(ApiKey.PRODUCE, version))
    frame += registry.encode_request(request, version)
    _, decoded = registry.ServerCodec(ApiKey.PRODUCE, version).decode(frame)
    records = decoded.topic_data[0].partition_data[0].records
    assert records.obj is frame
    records[:] = b"BATCH"
    assert b"BATCH" in frame


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_fetched_records_are_not_copied(version: int) -> None:
    big = memoryview(bytes(registry.SCATTER_FROM_BYTES))
    parts = encode_response(fetch_response(big, b"small", b"", big), version)
    assert sum(part is big for part in parts) == 2
    # One part before, one between and, for the last tag sections, one after the big payloads.
    assert len(parts) == (4 if version < 12 else 5)


def test_answers_without_records_are_one_part() -> None:
    assert len(encode_response(MetadataResponse(), 12)) == 1


def test_empty_records_are_not_null() -> None:
    data = b"".join(encode_response(fetch_response(b""), 4))
    assert data.endswith(b"\0\0\0\0")
    decoded = registry.decode_response(ApiKey.FETCH, 4, memoryview(data), 0)
    assert decoded.responses[0].partitions[0].records == b""


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_server_codec_reads_and_writes_what_is_declared(layout: Layout) -> None:
    codec = registry.ServerCodec(layout.key, layout.version)
    message = sample(layout)
    if layout.direction is Direction.RESPONSE:
        header = headers.encode_response_header(layout.key, layout.version, -5)
        parts = encode_frame([header, schema.encode(message, layout.version)])
        assert b"".join(codec.encode(-5, message)) == b"".join(parts)
        return
    for client_id in ("me", None):
        asked = headers.RequestHeader(
            api_key=layout.key, api_version=layout.version, correlation_id=7, client_id=client_id
        )
        frame = bytearray(headers.encode_request_header(asked))
        frame += registry.encode_request(message, layout.version)
        assert codec.decode(frame) == (client_id, message)


def test_server_codec_names_what_is_wrong() -> None:
    codec = registry.ServerCodec(ApiKey.HEARTBEAT, 4)
    frame = bytearray(bytes.fromhex("000c 0004 00000007 ffff 00") + b"\x05g")
    with pytest.raises(MalformedRequest, match="HeartbeatRequest v4"):
        codec.decode(frame)
    with pytest.raises(MalformedRequest, match="throttle_time_ms"):
        codec.encode(1, HeartbeatResponse(throttle_time_ms=2**40))


def test_start_up_compiles_nothing_and_does_not_import_construct() -> None:
    probe = (
        "import sys; from protocol import registry;"
        "print([m for m in sys.modules if m == 'construct' or m.startswith('protocol.api.')],"
        " registry._decoders)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] {}"


def test_only_a_fault_imports_construct() -> None:
    probe = (
        "import sys; from protocol import registry;"
        "from protocol.errors import MalformedRequest;"
        "from protocol.api.metadata import MetadataRequest;"
        "print(registry.ServerCodec(3, 12).decode(bytearray(99))[0], 'construct' in sys.modules);"
        "registry.encode_request(MetadataRequest(), 12);"
        "print('construct' in sys.modules)\n"
        "try: registry.ServerCodec(12, 4).decode(bytes.fromhex('000c000400000007ffff000567'))\n"
        "except MalformedRequest: print('construct' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["False", "False", "True"]


def metadata_v0(names: int) -> memoryview:
    """A request for so many topics of one letter: three bytes each, one object each."""
    return memoryview(names.to_bytes(4, "big") + b"\0\1a" * names)


def test_is_a_request_of_too_many_elements_refused_before_they_are_built() -> None:
    accepted = decode_request(ApiKey.METADATA, 0, metadata_v0(REQUEST_ELEMENTS_MAX))
    assert len(accepted.topics) == REQUEST_ELEMENTS_MAX
    for excess in (1, 10_000_000):
        with pytest.raises(MalformedRequest, match="more elements than a request may"):
            decode_request(ApiKey.METADATA, 0, metadata_v0(REQUEST_ELEMENTS_MAX + excess))


def test_do_elements_of_nested_arrays_count_together() -> None:
    per_topic = 1_000
    topic = b"\0\1a" + per_topic.to_bytes(4, "big") + bytes(4 * per_topic)
    count = REQUEST_ELEMENTS_MAX // per_topic
    body = b"\0\1g" + count.to_bytes(4, "big") + topic * count
    with pytest.raises(MalformedRequest, match="more elements than a request may"):
        decode_request(ApiKey.OFFSET_FETCH, 1, memoryview(body))


@pytest.mark.parametrize(("api_key", "version", "head"), [  # the second knows some tags
    (ApiKey.METADATA, 12, "010000"),
    (ApiKey.FETCH, 12, "00000000 00000000 00000000 00000000 00 00000000 00000000 01 01 01"),
])  # fmt: skip
def test_do_tagged_fields_count_as_elements(api_key: ApiKey, version: int, head: str) -> None:
    """They are two bytes each, and a turn of a loop."""

    def body(count: int) -> memoryview:
        tags = encode_unsigned(count) + b"\x63\0" * count
        return memoryview(bytes.fromhex(head) + tags)

    decode_request(api_key, version, body(REQUEST_ELEMENTS_MAX))
    with pytest.raises(MalformedRequest, match="tag sections hold more elements"):
        decode_request(api_key, version, body(REQUEST_ELEMENTS_MAX + 1))


def test_is_a_codec_stopped_at_the_elements_it_may_make() -> None:
    codec = registry.ServerCodec(ApiKey.METADATA, 0)
    frame = bytearray(bytes.fromhex("0003 0000 00000001 ffff") + bytes(metadata_v0(11)))
    assert len(codec.decode(frame, 11)[1].topics) == 11
    with pytest.raises(TooManyElements):
        codec.decode(frame, 10)


def test_is_a_response_allowed_any_number_of_elements() -> None:
    """A cluster may have more partitions than a request has business asking for."""
    response = MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(partition_index=i, replica_nodes=[1])
                    for i in range(REQUEST_ELEMENTS_MAX + 1)
                ],
            )
        ]
    )
    body = memoryview(b"".join(encode_response(response, 9)))
    assert registry.decode_response(ApiKey.METADATA, 9, body, 0) == response


def test_is_a_large_broken_request_refused_without_being_read_again_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the tree takes minutes for what took milliseconds")

    monkeypatch.setattr(schema, "decode", refuse)
    body = metadata_v0(registry.EXPLAINED_BYTES_MAX)[:-1]
    with pytest.raises(MalformedRequest, match="bytes do not match the layout"):
        decode_request(ApiKey.METADATA, 0, body)
