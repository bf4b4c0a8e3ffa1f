"""A small schema registry with Confluent's interface, for tests of clients of one.

Schemas of Protobuf are kept as descriptors, as a real registry serves them for
``format=serialized``. Compatibility is not judged, except where a test says so.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    """Schemas by id and by subject; `asked` lists method and path of every request."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.authorization = ""
        self.fails_with = 0
        self.incompatible: set[str] = set()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}

    def register(
        self, subject: str, schema: object, kind: str = "AVRO", references: Any = ()
    ) -> int:
        """The id of a schema, as a new version of its subject if it is one."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        document = {"schema": text, "schemaType": kind, "references": list(references)}
        if document not in self._schemas:
            self._schemas.append(document)
        number = self._schemas.index(document) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and document for a request."""
        url = urlsplit(path)
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                return 200, self._served(int(number), url.query)
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions"] if method == "POST":
                if subject in self.incompatible:
                    return 409, {"error_code": 409, "message": "Schema being registered is older"}
                kind = body.get("schemaType", "AVRO")
                registered = self.register(subject, body["schema"], kind, body["references"])
                return 200, {"id": registered}
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                numbers = self._subjects[subject]
                place = len(numbers) if version == "latest" else int(version)
                if 0 < place <= len(numbers):
                    found = self._served(numbers[place - 1], url.query)
                    return 200, {**found, "id": numbers[place - 1], "version": place}
                return 404, {"error_code": 40402, "message": "Version not found"}
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def _served(self, number: int, query: str) -> dict[str, Any]:
        document = dict(self._schemas[number - 1])
        if document["schemaType"] == "AVRO":
            # A registry leaves out what it takes for granted.
            del document["schemaType"]
        elif document["schemaType"] == "PROTOBUF" and query != "format=serialized":
            document["schema"] = 'syntax = "proto3";'
        return document


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """One that runs on a free port of this machine."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve({})

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, body: dict[str, Any]) -> None:
            registry.asked.append(f"{self.command} {self.path}")
            if registry.fails_with:
                status, document = registry.fails_with, {"message": "out of order"}
            elif registry.authorization != (self.headers["Authorization"] or ""):
                status, document = 401, {"message": "Unauthorized"}
            else:
                status, document = registry.answer(self.command, self.path, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def descriptor(text: str) -> str:
    """A `FileDescriptorProto` in its text form as registries serve it."""
    from google.protobuf import descriptor_pb2, text_format

    file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
    return base64.b64encode(file.SerializeToString()).decode()
