"""Do other people's codecs read and write the same bytes?

Two independent implementations judge every layout they know: kafka-python 3, generated from Kafka's
message specifications at run time and patched to keep the versions Kafka 4 dropped, and kio,
generated ahead of time for Kafka 4.3. Each sample is encoded by the declared codec, decoded by the
judge, compared value by value under the judge's names, encoded by the judge and compared byte by
byte. The compiled codec is held to the same bytes.

Blind spots: kafka-python has no consumer-protocol groups (keys 68, 69), and reads an ApiVersions
answer that carries an error as v0 by design; kio starts at the minima of Kafka 4. Kafka 3.9's
specifications of delegation tokens say that version 1 is the same as version 0: its judge is that
of version 1.
"""

from __future__ import annotations

import io
import uuid
import warnings
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.api_keys import ApiKey
from protocol.declare import schema
from protocol.declare.primitives import ZERO_UUID, Direction, field_specs
from tests.support.codec import encode_body
from tests.unit.protocol.samples import LAYOUTS, Layout, sample

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated corner of importlib.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer, sasl

_KAFKA_PYTHON = (admin, consumer, metadata, producer, sasl)
_TOKENS = range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1)
_KIO_TYPES = {Direction.REQUEST: EntityType.request, Direction.RESPONSE: EntityType.response}


def kafka_python_class(layout: Layout) -> Any:
    for module in _KAFKA_PYTHON:
        found = getattr(module, layout.cls.__name__, None)
        if found is not None:
            return found
    return None


def kio_version(layout: Layout) -> int:
    return max(layout.version, 1) if layout.key in _TOKENS else layout.version


def kio_knows(layout: Layout) -> bool:
    versions = schema_name_map[api_key_map[layout.key]]
    return _KIO_TYPES[layout.direction] in versions.get(kio_version(layout), {})


KAFKA_PYTHON_LAYOUTS = [layout for layout in LAYOUTS if kafka_python_class(layout) is not None]
KIO_LAYOUTS = [layout for layout in LAYOUTS if kio_knows(layout)]
SHAPES = {
    "full": {"nulls": False, "length": 2},
    "null": {"nulls": True, "length": 1},
    "empty": {"nulls": False, "length": 0},
}


def test_the_judges_cover_every_layout_between_them() -> None:
    judged = {*map(str, KAFKA_PYTHON_LAYOUTS), *map(str, KIO_LAYOUTS)}
    assert [str(layout) for layout in LAYOUTS if str(layout) not in judged] == []
    assert len(LAYOUTS) == 604
    assert len(KAFKA_PYTHON_LAYOUTS) == 524
    assert len(KIO_LAYOUTS) == 558


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", KAFKA_PYTHON_LAYOUTS, ids=str)
def test_kafka_python_agrees(layout: Layout, shape: str) -> None:
    message = sample(layout, **SHAPES[shape])  # type: ignore[arg-type]
    if layout.key is ApiKey.API_VERSIONS and layout.direction is Direction.RESPONSE:
        message.error_code = 0
    ours = encode(message, layout.version)
    judge = kafka_python_class(layout)
    theirs = judge.decode(io.BytesIO(ours), version=layout.version)
    if shape != "empty":
        assert_kafka_python_values(message, theirs.to_dict(json=False), layout.version)
    theirs._header = None
    assert theirs.encode(version=layout.version) == ours


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", KIO_LAYOUTS, ids=str)
def test_kio_agrees(layout: Layout, shape: str) -> None:
    message = sample(layout, **SHAPES[shape])  # type: ignore[arg-type]
    ours = encode(message, layout.version)
    is_request = layout.direction is Direction.REQUEST
    load = load_request_schema if is_request else load_response_schema
    judge: Any = load(layout.key, kio_version(layout))
    theirs, size = entity_reader(judge)(ours, 0)
    assert size == len(ours)
    if shape != "empty":
        assert_kio_values(message, theirs, layout.version)
    out = io.BytesIO()
    entity_writer(judge)(out, theirs)
    assert out.getvalue() == ours


def encode(message: Any, version: int) -> bytes:
    """The declared codec's bytes, after the compiled one was seen to write the same."""
    declared = schema.encode(message, version)
    assert encode_body(message, version) == declared
    return declared


def carried(message: Any, version: int) -> list[tuple[str, Any]]:
    return [
        (name, getattr(message, name))
        for name, spec in field_specs(type(message))
        if spec.present_in(version)
    ]


def assert_kafka_python_values(ours: Any, theirs: dict[str, Any], version: int) -> None:
    for name, value in carried(ours, version):
        if name.endswith("authorized_operations"):
            continue  # kafka-python turns the bits into a set, under a name of its own
        other = theirs[name]
        if is_dataclass(value):
            assert_kafka_python_values(value, other, version)
        elif isinstance(value, list) and value and is_dataclass(value[0]):
            assert len(value) == len(other)
            for mine, its in zip(value, other, strict=True):
                assert_kafka_python_values(mine, its, version)
        else:
            assert plain(other) == plain(value), name


def assert_kio_values(ours: Any, theirs: Any, version: int) -> None:
    mine = carried(ours, version)
    its = [(f.name, getattr(theirs, f.name)) for f in fields(theirs)]
    assert len(mine) == len(its)
    for (name, value), (other_name, other) in zip(mine, its, strict=True):
        # kio names durations and instants after what they are, without the unit.
        assert name == other_name or name == f"{other_name}_ms"
        if is_dataclass(value):
            assert_kio_values(value, other, version)
        elif isinstance(value, list) and value and is_dataclass(value[0]):
            for one, another in zip(value, other, strict=True):
                assert_kio_values(one, another, version)
        elif isinstance(value, bytes) and value == ZERO_UUID:
            assert other is None
        else:
            assert plain(other) == plain(value), name


def plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return value
