"""Are declarations complete, consistent, and what a handler would expect of a fresh object?"""

import dataclasses
from typing import Any

import pytest

from protocol.api import NOT_DECLARED, message_class
from protocol.api.fetch import FetchPartition, FetchRequest, PartitionData
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.metadata import MetadataRequest, MetadataResponseTopic
from protocol.api_keys import ApiKey
from protocol.declare import primitives as wire
from protocol.declare.primitives import NEVER, ZERO_UUID, Direction, field_specs, message_spec
from protocol.errors import UnsupportedVersion
from tests.unit.protocol.samples import DECLARED

CLIENT_KEYS = {
    *range(4),
    *range(8, 52),
    55,
    57,
    60,
    61,
    64,
    65,
    66,
    68,
    69,
    *range(71, 80),
    *range(83, 93),
} - {73}


def structs() -> list[type]:
    """Every declared dataclass, messages and what they are made of."""
    found: list[type] = []
    todo = [message_class(key, direction) for key in DECLARED for direction in Direction]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += [s.element for _, s in field_specs(cls) if isinstance(s.element, type)]
    return sorted(set(found), key=lambda cls: (cls.__module__, cls.__name__))


STRUCTS = structs()


def test_every_client_facing_key_is_declared() -> None:
    assert set(DECLARED) == CLIENT_KEYS
    assert set(DECLARED) | NOT_DECLARED == set(ApiKey)
    assert len(STRUCTS) == 351


def test_the_struct_of_a_field_is_that_of_its_annotation() -> None:
    class Part(wire.Struct):
        number: int = wire.int32()

    class Whole(wire.Struct):
        one: Part = wire.struct()
        maybe: Part | None = wire.struct(nullable_since=1)
        many: list[Part] = wire.array()
        none: list[Part] | None = wire.array(nullable_since=0, default=None)

    assert [spec.element for _, spec in wire.field_specs(Whole)] == [Part] * 4
    assert (Whole().one, Whole().maybe, Whole().many, Whole().none) == (Part(), None, [], None)


def test_annotations_are_taken_from_the_class_since_python_3_14_has_none_in_its_namespace() -> None:
    class Namespace(dict[str, Any]):
        """One that hides its annotations; the class made of it has them all the same."""

        def get(self, key: str, default: Any = None) -> Any:
            return default if key == "__annotations__" else super().get(key, default)

    class Part(wire.Struct):
        number: int = wire.int32()

    body = {"many": wire.array(), "__annotations__": {"many": list[Part]}, "__module__": __name__}
    metaclass: Any = type(Part)
    whole = metaclass("Whole", (wire.Struct,), Namespace(body))
    assert [spec.element for _, spec in wire.field_specs(whole)] == [Part]


def test_an_array_of_a_primitive_has_to_name_it() -> None:
    with pytest.raises(AssertionError, match=r"int.* is no struct: name its primitive"):

        class _(wire.Struct):
            numbers: list[int] = wire.array()


@pytest.mark.parametrize("key", [4, 70, 82, 93, -1, 10_000])
def test_strangers_are_unsupported(key: int) -> None:
    with pytest.raises(UnsupportedVersion):
        message_class(key, Direction.REQUEST)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_struct_is_slotted_documented_and_ready_without_arguments(cls: type) -> None:
    assert "__slots__" in vars(cls)
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")
    assert cls() == cls()
    with pytest.raises(TypeError):
        cls(1)


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_field_lives_are_consistent(cls: type) -> None:
    fresh = cls()
    tags = [spec.tag for _, spec in field_specs(cls) if spec.tag is not None]
    assert sorted(tags) == list(range(len(tags)))
    for name, spec in field_specs(cls):
        assert 0 <= spec.since <= spec.until
        assert spec.nullable_since in range(spec.since, spec.until + 1) or (
            spec.nullable_since == NEVER
        )
        is_null = getattr(fresh, name) is None
        assert not is_null or spec.nullable_since != NEVER or spec.tag is not None


@pytest.mark.parametrize("key", DECLARED, ids=lambda key: key.name)
def test_request_and_response_share_versions(key: ApiKey) -> None:
    request = message_spec(message_class(key, Direction.REQUEST))
    response = message_spec(message_class(key, Direction.RESPONSE))
    assert (request.api_key, response.api_key) == (key, key)
    assert request.max_version == response.max_version
    assert request.flexible_since == response.flexible_since
    assert request.flexible_since == NEVER or request.flexible_since <= request.max_version


def test_fresh_objects_have_the_defaults_of_kafka() -> None:
    partition = FetchPartition()
    assert partition.current_leader_epoch == -1
    assert partition.log_start_offset == -1
    assert partition.high_watermark == 2**63 - 1
    assert partition.replica_directory_id == ZERO_UUID
    assert FetchRequest().max_bytes == 2**31 - 1
    assert MetadataRequest().allow_auto_topic_creation
    assert MetadataResponseTopic().topic_authorized_operations == -(2**31)
    assert FindCoordinatorRequest().key_type == 0


def test_mutable_defaults_are_not_shared() -> None:
    first = FetchRequest()
    first.topics.append(None)  # type: ignore[arg-type]
    assert FetchRequest().topics == []


def test_tagged_structs_start_as_not_sent() -> None:
    data = PartitionData()
    assert (data.diverging_epoch, data.current_leader, data.snapshot_id) == (None, None, None)


def test_a_nested_struct_is_not_a_message() -> None:
    with pytest.raises(KeyError):
        message_spec(FetchPartition)


def test_specs_follow_field_order() -> None:
    names = [name for name, _ in field_specs(FetchRequest)]
    assert names == [field.name for field in dataclasses.fields(FetchRequest)]
