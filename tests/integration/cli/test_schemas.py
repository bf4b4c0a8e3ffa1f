"""``tidelog consume --schema-registry``: records that name a schema, as a user meets them."""

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from client.serde.avro import avro_writer, parse_avro
from client.serde.frame import framed
from tests.support.cli import ok, tidelog
from tests.support.schema_registry import FakeRegistry, fake_registry
from tidelog.testing import RunningBroker, running_broker

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "int"]},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "share", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
READ = ("--from", "earliest", "--exit-at-end")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


def produce(server: RunningBroker, topic: str, *values: bytes, key: bytes = b"k") -> None:
    lines = [
        json.dumps({"key": _portable(key), "value": _portable(value)}) + "\n" for value in values
    ]
    ok("produce", topic, "-q", "--format", "json", server=server, given="".join(lines))


def _portable(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


def flights(registry: FakeRegistry, *delays: int | None) -> list[bytes]:
    number = registry.register("flights-value", FLIGHT)
    write = avro_writer(parse_avro([("", json.dumps(FLIGHT))]), number)
    common = {"tail": "Ü1", "raw": b"\xff", "day": 1, "share": math.nan, "at": 5}
    return [write({**common, "delay": delay}) for delay in delays]


def test_avro_is_shown_filtered_and_taken_apart(
    server: RunningBroker, registry: FakeRegistry
) -> None:
    produce(server, "avro", *flights(registry, 7, None, 90))
    ask = ("--schema-registry", registry.url)
    found = [
        json.loads(line)
        for line in ok("consume", "avro", *READ, *ask, "--json", server=server).splitlines()
    ]
    assert [json.loads(one["value"]) for one in found] == [
        {
            "tail": "Ü1",
            "delay": delay,
            "raw": {"base64": "/w=="},
            "day": "1970-01-02",
            "share": "nan",
            "at": "1970-01-01T00:00:00.005000+00:00",
        }
        for delay in (7, None, 90)
    ]
    late = ok(
        "consume", "avro", *READ, *ask, "--where", "value.delay > 60",
        "--format", "{value.tail} {value.delay}", server=server,
    )  # fmt: skip
    assert late == "Ü1 90\n"
    assert registry.asked == ["GET /schemas/ids/1"] * 2, "once in each run"


def test_keys_and_json_values_lose_their_frame(
    server: RunningBroker, registry: FakeRegistry
) -> None:
    number = registry.register("j-value", {"type": "object"}, "JSON")
    produce(server, "framed", framed(number, b'{"a": 1.50}'), key=framed(number, b'"k"'))
    shown = ok(
        "consume", "framed", *READ, "--schema-registry", registry.url, "--format", "{key} {value}",
        server=server,
    )  # fmt: skip
    assert shown == '"k" {"a": 1.50}\n'


def test_what_no_schema_reads_is_shown_as_stored_with_one_warning(
    server: RunningBroker, registry: FakeRegistry
) -> None:
    (fits,) = flights(registry, 7)
    produce(server, "odd", framed(99, b"abc"), framed(99, b"abc"), fits, fits[:6], b"plain")
    done = tidelog(
        "consume", "odd", *READ, "--schema-registry", registry.url, "--json", server=server
    )
    assert done.returncode == ExitCode.OK
    values = [json.loads(line)["value"] for line in done.stdout.splitlines()]
    assert values[:2] == ["\0\0\0\0cabc"] * 2
    assert json.loads(values[2])["delay"] == 7
    assert values[4] == "plain"
    warnings = done.stderr.splitlines()
    assert len(warnings) == 2
    assert warnings[0].startswith("tidelog: schema 99: the registry answered /schemas/ids/99")
    assert warnings[1].startswith("tidelog: schema 1: ")
    assert "shown as they are stored" in warnings[1]
    assert registry.asked.count("GET /schemas/ids/99") == 1


def test_a_group_commits_nothing_while_the_registry_is_away(
    server: RunningBroker, registry: FakeRegistry
) -> None:
    produce(server, "away", *flights(registry, 7))
    words = ("consume", "away", *READ, "--group", "g", "--schema-registry", registry.url)
    registry.fails_with = 503
    refused = tidelog(*words, server=server)
    assert refused.returncode == ExitCode.FAILED
    assert "status 503" in refused.stderr
    assert not refused.stdout
    registry.fails_with = 0
    assert '"delay":7' in ok(*words, server=server)


def test_a_port_that_is_no_registrys_ends_the_run_with_a_reason(
    server: RunningBroker, registry: FakeRegistry
) -> None:
    produce(server, "wrong", *flights(registry, 7))
    url = f"http://{server.bootstrap}"
    done = tidelog("consume", "wrong", *READ, "--schema-registry", url, server=server)
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith(f"tidelog: registry {url} gave no answer: ")


def test_a_user_of_the_registry(
    server: RunningBroker, registry: FakeRegistry, tmp_path: Path
) -> None:
    produce(server, "private", *flights(registry, 7))
    registry.authorization = f"Basic {base64.b64encode(b'reader:secret').decode()}"
    password = tmp_path / "password"
    password.write_text("secret\n")
    words = ("consume", "private", *READ, "--schema-registry", registry.url)
    user = ("--schema-registry-user", "reader", "--schema-registry-password-file", str(password))
    assert '"delay":7' in ok(*words, *user, server=server)
    refused = tidelog(*words, server=server)
    assert refused.returncode == ExitCode.FAILED
    assert "status 401" in refused.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--schema-registry", "nowhere"], "registry url 'nowhere': write http://HOST:PORT"),
        (["--schema-registry", "http://localhost:abc"], "Port could not be cast"),
        (["--schema-registry", "http://[::1"], "Invalid IPv6 URL"),
        (["--schema-registry-user", "u"], "need --schema-registry"),
        (
            ["--schema-registry", "http://127.0.0.1:1", "--schema-registry-user", "u"],
            "need each other: give both",
        ),
    ],
)
def test_a_registry_that_cannot_be_asked_is_refused(
    server: RunningBroker, words: list[str], sentence: str
) -> None:
    done = tidelog("consume", "t", *words, server=server)
    assert done.returncode == ExitCode.USAGE
    assert sentence in done.stderr
