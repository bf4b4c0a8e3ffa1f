"""The library's stores: what was sent in parts is there whole, and is compared without a copy."""

from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from protocol.records.checksums import crc32c
from storage.errors import ObjectExists, ObjectMissing
from storage.remote import engine
from storage.remote.engine import describe_error, open_store, signing_options
from storage.remote.object_store import ObjectStore


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store("memory:" if request.param == "memory" else f"file://{tmp_path}/b", "cluster")


def parts_of(data: bytes, *sizes: int) -> list[bytes]:
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def test_parts_make_one_object(store: ObjectStore) -> None:
    data = Random(1).randbytes(300_000)
    store.put_new("whole", *parts_of(data, 1, 99_999, 0, 200_000))
    assert store.get("whole", 0, len(data)) == data
    with pytest.raises(ObjectExists):
        store.put_new("whole", b"other")
    upload = store.begin_put("upload", len(data))
    for part in parts_of(data, 100_000, 150_000, 50_000):
        upload.write(memoryview(part))
    upload.finish()
    assert store.get("upload", 0, len(data)) == data
    store.put_new("empty")
    assert store.size_of("empty") == 0
    assert store.has("empty", [])


def test_an_object_has_exactly_its_bytes(store: ObjectStore) -> None:
    data = Random(2).randbytes(300_000)
    store.put_new("k", data)
    assert store.has("k", [data])
    assert store.has("k", parts_of(data, 1, 0, 199_999, 100_000))
    for at in (0, 99_999, 100_000, 299_999):
        other = bytearray(data)
        other[at] ^= 1
        assert not store.has("k", parts_of(bytes(other), 100_000, 200_000))
    assert not store.has("k", [data[:-1]])
    assert not store.has("k", [data, b"x"])
    assert not store.has("k", [])
    assert not store.has("nowhere", [data])
    assert not store.has("nowhere", [])


def test_a_checksum_continues(store: ObjectStore) -> None:
    data = Random(3).randbytes(300_000)
    store.put_new("k", data)
    first = store.crc32c_of("k", 0, 100_001)
    assert first == crc32c(data[:100_001])
    assert store.crc32c_of("k", 100_001, len(data), first) == crc32c(data)
    with pytest.raises(ObjectMissing):
        store.crc32c_of("nowhere", 0, 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            'GET http://h/b - 403 Forbidden: <?xml version="1.0"?>\n'
            "<Error><Code>SignatureDoesNotMatch</Code><Message>A &#34;sum&#34; differs.</Message>"
            "<StringToSign>AWS4 secret",
            'GET http://h/b - 403 Forbidden: SignatureDoesNotMatch: A "sum" differs. '
            "(look at the credentials in the environment, and at what they may do)",
        ),
        (
            "GET http://h/b - 404 Not Found: <?xml?>\n<Error><Code>NoSuchBucket</Code></Error>",
            "GET http://h/b - 404 Not Found: NoSuchBucket "
            "(create the bucket, or correct its name in the URL)",
        ),
        (
            "PUT http://169.254.169.254/latest/api/token - timed out\n\nDebug source:",
            "PUT http://169.254.169.254/latest/api/token - timed out (the environment has no "
            "credentials: s3:// takes AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
        ),
        ("GET http://h/b - connection refused\nDebug", "GET http://h/b - connection refused"),
        ("", "OSError"),
    ],
)
def test_an_error_says_what_the_store_says_and_what_to_do(text: str, shown: str) -> None:
    assert describe_error(OSError(text) if text else OSError()) == shown


@pytest.mark.parametrize(
    ("scheme", "environment", "is_signed"),
    [
        ("s3", {}, False),
        ("s3", {"AWS_ENDPOINT_URL": "https://store.example"}, False),
        ("s3", {"AWS_ENDPOINT_URL": "http://store.example"}, True),
        ("s3", {"aws_endpoint": "HTTP://store.example"}, True),
        ("s3", {"AWS_UNSIGNED_PAYLOAD": "false"}, True),
        ("gs", {}, True),
    ],
)
def test_payloads_are_signed_unless_tls_protects_them(
    scheme: str, environment: dict[str, str], is_signed: bool
) -> None:
    assert signing_options(scheme, environment) == ({} if is_signed else {"unsigned_payload": True})


@pytest.mark.parametrize("is_signed", [True, False])
def test_what_a_server_gets_as_the_signature_of_a_payload(
    is_signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            got.append(self.headers["x-amz-content-sha256"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        if not is_signed:
            # As over TLS, for which this server has no certificate.
            monkeypatch.setattr(engine, "_ENDPOINTS", ())
        open_store("s3://bucket/prefix", "cluster").put_new("a", b"content")
        server.shutdown()
    assert got == [sha256(b"content").hexdigest() if is_signed else "UNSIGNED-PAYLOAD"]
