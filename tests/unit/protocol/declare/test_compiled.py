"""Is the written code the declared codec, only faster and mute?"""

from __future__ import annotations

import linecache
import textwrap
import tracemalloc
from typing import Any

import pytest

from protocol.api.describe_log_dirs import DescribeLogDirsRequest
from protocol.api.fetch import FetchResponse
from protocol.api.sasl_handshake import SaslHandshakeResponse
from protocol.declare import compiled, schema
from protocol.declare.primitives import DECODE_FAULTS
from protocol.structs import TopicIndexes
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

NEWEST = [layout for layout in LAYOUTS if Layout(layout.cls, layout.version + 1) not in LAYOUTS]
OLDEST = [layout for layout in LAYOUTS if layout.version == 0]


def encode(message: Any, version: int) -> bytes:
    parts: list[Any] = []
    compiled.write_encoder(type(message), version)(message, parts.append)
    return b"".join(parts)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_agrees_with_the_declared_codec(layout: Layout) -> None:
    decode = compiled.write_decoder(layout.cls, layout.version)
    for nulls in (False, True):
        for length in (0, 1, 9):
            message = sample(layout, nulls=nulls, length=length)
            data = schema.encode(message, layout.version)
            assert encode(message, layout.version) == data
            assert decode(memoryview(data), 0, len(data)) == (message, len(data))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_no_proper_prefix_is_a_message(layout: Layout) -> None:
    data = memoryview(schema.encode(sample(layout, length=1), layout.version))
    decode = compiled.write_decoder(layout.cls, layout.version)
    for end in range(len(data)):
        with pytest.raises(DECODE_FAULTS):
            decode(data[:end], 0, end)


@pytest.mark.parametrize("layout", sorted({*NEWEST, *OLDEST}, key=str), ids=str)
def test_lying_lengths_allocate_nothing(layout: Layout) -> None:
    """Claims of two billion at every position: refused, or harmless; never believed."""
    data = schema.encode(sample(layout, length=1), layout.version)
    decode = compiled.write_decoder(layout.cls, layout.version)
    claim = bytes.fromhex("ffffffff07") if layout.is_flexible else bytes.fromhex("7fffffff")
    decode(memoryview(data), 0, len(data))
    tracemalloc.start()
    for position in range(len(data)):
        lie = data[:position] + claim + data[position + len(claim) :]
        try:
            decode(memoryview(lie), 0, len(lie))
        except DECODE_FAULTS:
            continue
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_records_are_views_of_the_frame() -> None:
    layout = next(x for x in LAYOUTS if x.cls is FetchResponse and x.version == 11)
    frame = bytearray(schema.encode(sample(layout, length=1), 11))
    message, _ = compiled.write_decoder(FetchResponse, 11)(memoryview(frame), 0, len(frame))
    records = message.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    records[0] = 0
    assert frame[-len(records)] == 0


def test_records_are_put_as_they_are() -> None:
    layout = next(x for x in LAYOUTS if x.cls is FetchResponse and x.version == 12)
    message = sample(layout, length=1)
    payload = memoryview(bytearray(b"payload"))
    message.responses[0].partitions[0].records = payload
    parts: list[Any] = []
    compiled.write_encoder(FetchResponse, 12)(message, parts.append)
    assert any(part is payload for part in parts)


def test_text_of_written_code_is_at_hand_and_as_documented() -> None:
    decode = compiled.write_decoder(SaslHandshakeResponse, 1)
    path = decode.__code__.co_filename
    assert path.endswith("decode SaslHandshakeResponse v1>")
    text = "".join(linecache.getlines(path))
    assert textwrap.indent(text, "    ") in (compiled.__doc__ or "")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("version", [1, 4])
def test_arrays_of_scalars_of_any_length(count: int, version: int) -> None:
    topic = TopicIndexes(topic="t", partitions=list(range(count)))
    message = DescribeLogDirsRequest(topics=[topic])
    data = schema.encode(message, version)
    assert encode(message, version) == data
    decode = compiled.write_decoder(DescribeLogDirsRequest, version)
    assert decode(memoryview(data), 0, len(data)) == (message, len(data))
