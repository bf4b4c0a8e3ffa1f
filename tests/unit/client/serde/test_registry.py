"""The registry's client, against a fake one over real HTTP."""

import socket
from collections.abc import Iterator

import pytest

from client.errors import InvalidUse
from client.serde.errors import BadSchema, NoSuchSchema, RegistryUnreachable
from client.serde.frame import parse_path, path_bytes
from client.serde.registry import (
    AVRO,
    FILES_MAX,
    PROTOBUF,
    Import,
    Registry,
    RegistryAddress,
    Schema,
)
from tests.support.schema_registry import FakeRegistry, fake_registry

STRING = '"string"'


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


def test_a_schema_of_an_id_is_asked_for_once_and_the_latest_each_time(served: FakeRegistry) -> None:
    first = served.register("flights/value", STRING)
    registry = Registry(RegistryAddress(url=served.url + "/"))
    for _ in range(3):
        assert registry.schema(first) == Schema(AVRO, STRING, (), first)
        assert registry.version("flights/value", 1).number == first
    assert served.asked == [f"GET /schemas/ids/{first}", "GET /subjects/flights%2Fvalue/versions/1"]
    assert registry.version("flights/value").number == first
    second = registry.register("flights/value", Schema(AVRO, '"int"'))
    assert registry.version("flights/value").number == second
    assert registry.register("flights/value", Schema(AVRO, '"int"')) == second


def test_imports_come_before_what_imports_them(served: FakeRegistry) -> None:
    served.register("c", "CC", PROTOBUF)
    served.register("b", "BB", PROTOBUF, [{"name": "c.proto", "subject": "c", "version": 1}])
    imports = (Import("b.proto", "b", 1), Import("c.proto", "c", 1))
    registry = Registry(RegistryAddress(url=served.url))
    number = registry.register("a", Schema(PROTOBUF, "AA", imports))
    found = registry.schema(number)
    assert registry.files_of(found) == [("c.proto", "CC"), ("b.proto", "BB"), ("", "AA")]


def test_schemas_that_import_each_other_are_refused(served: FakeRegistry) -> None:
    for name, other in ("ab", "ba"):
        imports = [{"name": f"{other}{other}", "subject": other, "version": 1}]
        served.register(name, name, AVRO, imports)
    registry = Registry(RegistryAddress(url=served.url))
    with pytest.raises(BadSchema, match=f"more than {FILES_MAX}"):
        registry.files_of(registry.version("a"))


def test_what_is_missing_differs_from_a_registry_that_fails(served: FakeRegistry) -> None:
    registry = Registry(RegistryAddress(url=served.url))
    with pytest.raises(NoSuchSchema, match="404: Schema not found"):
        registry.schema(5)
    with pytest.raises(NoSuchSchema, match="Subject not found"):
        registry.version("nothing")
    served.incompatible.add("old")
    with pytest.raises(BadSchema, match="409: Schema being registered"):
        registry.register("old", Schema(AVRO, STRING))
    served.fails_with = 503
    with pytest.raises(RegistryUnreachable, match="503: out of order"):
        registry.schema(6)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(RegistryUnreachable, match="gave no answer"):
            Registry(RegistryAddress(url=url)).schema(1)


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({"username": "ann", "password": "sea"}, "Basic YW5uOnNlYQ=="),
        ({"token": "t0"}, "Bearer t0"),
    ],
)
def test_a_user_or_a_token_is_sent(
    served: FakeRegistry, fields: dict[str, str], header: str
) -> None:
    number = served.register("s", STRING)
    served.authorization = header
    address = RegistryAddress(url=served.url, **fields)
    assert Registry(address).schema(number).text == STRING
    assert "sea" not in repr(address)
    assert "t0" not in repr(address)
    with pytest.raises(RegistryUnreachable, match="401"):
        Registry(RegistryAddress(url=served.url)).schema(number)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"url": "registry:8081"}, "write http://HOST:PORT"),
        ({"url": "file:///etc/passwd"}, "write http://HOST:PORT"),
        ({"url": "http://ann:sea@h:1"}, "give username and password"),
        ({"url": "http://h:1", "username": "ann"}, "write https"),
        ({"url": "http://h:1", "token": "t"}, "write https"),
        ({"url": "http://h:1", "ca_file": "x.pem"}, "no effect"),
        ({"url": "https://h:1", "username": "ann", "token": "t"}, "one of the two"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(fields: dict[str, str], part: str) -> None:
    with pytest.raises(InvalidUse, match=part) as refused:
        RegistryAddress(**fields)
    assert "sea" not in str(refused.value)


@pytest.mark.parametrize("path", [(0,), (1,), (0, 0), (3, 70, 1)])
def test_a_path_to_a_message_type_is_read_as_it_was_written(path: tuple[int, ...]) -> None:
    data = path_bytes(path)
    assert parse_path(b"-" + data + b"rest", 1) == (path, 1 + len(data))
