"""Karapace, a schema registry written in Python, on top of the broker.

It keeps every schema in one compacted topic that each instance reads from the start (librdkafka),
and elects the instance that may write by a group of type "sr", whose members' metadata is theirs
(aiokafka). Karapace is on no package index: it is installed from its repository, which needs
Python 3.12, Go and the way there, or KARAPACE_PYTHON names an interpreter that has it.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from client.admin import Admin
from tests.compat.brokers import TidelogProcess
from tests.compat.programs import ask, running, wait_for
from tests.support import kafka_peer, toolchains

pytestmark = pytest.mark.timeout(900)

KARAPACE = "karapace @ git+https://github.com/Aiven-Open/karapace@6.2.0"
JSON_OF_REGISTRIES = "application/vnd.schemaregistry.v1+json"
GROUP = "schemas"
OLD_FIELDS: list[dict[str, Any]] = [{"name": "callsign", "type": "string"}]
NEW_FIELDS: list[dict[str, Any]] = [
    *OLD_FIELDS,
    {"name": "altitude", "type": ["null", "int"], "default": None},
]
BROKEN_FIELDS = [{"name": "callsign", "type": "int"}]
PROTOBUF = 'syntax = "proto3"; message Flight { string callsign = 1; int32 altitude = 2; }'
JSON_SCHEMA = {"type": "object", "properties": {"callsign": {"type": "string"}}}


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that has Karapace."""
    return os.environ.get("KARAPACE_PYTHON") or str(toolchains.python_with("3.12", KARAPACE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One running instance."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def ask(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        return ask(method, self.url + path, document, JSON_OF_REGISTRIES)

    def wait_until_primary_is(self, url: str) -> None:
        """Until this instance reads schemas and knows who may write them."""

        def knows() -> bool:
            status, answer = self.ask("GET", "/_health")
            state = answer["status"] if status == 200 else {}
            if not state.get("schema_registry_ready"):
                return False
            is_writable = url != self.url or bool(state["schema_registry_is_primary"])
            return is_writable and bool(state["schema_registry_primary_url"] == url)

        wait_for(knows, self.process, self.log)

    def register(self, subject: str, schema: object, kind: str = "AVRO") -> tuple[int, Any]:
        """Status of the answer, and the schema's id, or None where it was refused."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        document = {"schema": text, "schemaType": kind}
        status, answer = self.ask("POST", f"/subjects/{subject}/versions", document)
        return status, answer.get("id")


def record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """An Avro record schema."""
    return {"type": "record", "name": "Flight", "fields": fields}


@contextmanager
def registry(interpreter: str, bootstrap: str, folder: Path) -> Iterator[Registry]:
    """A Karapace that is killed at the end."""
    (port,) = kafka_peer.free_ports(1)
    settings = {
        "BOOTSTRAP_URI": bootstrap,
        "HOST": "127.0.0.1",
        "ADVERTISED_HOSTNAME": "127.0.0.1",
        "PORT": str(port),
        "CLIENT_ID": f"registry-{port}",
        "GROUP_ID": GROUP,
        "SESSION_TIMEOUT_MS": "6000",
        "LOG_LEVEL": "WARNING",
        "KARAPACE_REGISTRY": "true",
        "KARAPACE_REST": "false",
    }
    environment = os.environ | {f"KARAPACE_{key}": value for key, value in settings.items()}
    log = folder / f"karapace-{port}.log"
    with running([interpreter, "-m", "karapace"], log, environment) as process:
        yield Registry(url=f"http://127.0.0.1:{port}", process=process, log=log)


async def group_type(bootstrap: str) -> tuple[str, int]:
    """The type of the registries' group and how many there are."""
    async with Admin(bootstrap) as admin:
        described = await admin.describe_group(GROUP)
    return described.protocol_type, len(described.members)


def test_karapace_keeps_schemas_while_its_primary_and_the_broker_change(
    interpreter: str, tmp_path: Path
) -> None:
    with TidelogProcess(tmp_path / "data") as broker:
        with ExitStack() as life_of_primary:
            primary = life_of_primary.enter_context(
                registry(interpreter, broker.bootstrap, tmp_path)
            )
            primary.wait_until_primary_is(primary.url)
            with registry(interpreter, broker.bootstrap, tmp_path) as other:
                other.wait_until_primary_is(primary.url)
                assert asyncio.run(group_type(broker.bootstrap)) == ("sr", 2)
                # What the other one is asked to write it hands to the primary.
                assert other.register("avro", record(OLD_FIELDS)) == (200, 1)
                assert primary.register("avro", record(NEW_FIELDS)) == (200, 2)
                assert other.register("avro", record(BROKEN_FIELDS)) == (409, None)
                assert other.register("protobuf", PROTOBUF, "PROTOBUF") == (200, 3)
                assert other.register("json", JSON_SCHEMA, "JSON") == (200, 4)
                life_of_primary.close()
                other.wait_until_primary_is(other.url)
                assert other.register("later", record(OLD_FIELDS)) == (200, 1)
                assert other.register("later", '"string"') == (409, None)
                assert other.register("text", '"string"') == (200, 5)
                assert other.ask("DELETE", "/subjects/json") == (200, [1])
        broker.stop()
        broker.start()
        with registry(interpreter, broker.bootstrap, tmp_path) as reader:
            reader.wait_until_primary_is(reader.url)
            status, subjects = reader.ask("GET", "/subjects")
            assert (status, sorted(subjects)) == (200, ["avro", "later", "protobuf", "text"])
            _, found = reader.ask("GET", "/schemas/ids/2")
            assert json.loads(found["schema"])["fields"] == NEW_FIELDS
            assert reader.register("text", '"int"') == (409, None)
            assert reader.register("number", '"int"') == (200, 6)
