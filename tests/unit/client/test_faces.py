"""One connection against a broker of a few lines: versions, SASL, TLS, and what goes wrong."""

import base64
import hashlib
import hmac
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline.net.wire import Connection

from pipeline.errors import BadOptions, BrokerRefused, BrokerUnreachable
from pipeline.options.options import ConnectionOptions
from protocol import registry
from protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from protocol.api.metadata import MetadataRequest, MetadataResponse
from protocol.api.sasl_authenticate import SaslAuthenticateResponse
from protocol.api.sasl_handshake import SaslHandshakeResponse
from protocol.api_keys import ApiKey
from protocol.headers import decode_request_header, encode_response_header

VERSIONS = {
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.METADATA: (4, 9),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
Answer = Callable[[int, Any], Any]


class SmallBroker:
    """Answers the requests of one connection in a thread of its own."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._context = context
        self.seen: list[tuple[int, int]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            peer, _ = self._server.accept()
            if self._context is not None:
                peer = self._context.wrap_socket(peer, server_side=True)
            with peer, peer.makefile("rwb") as stream:
                while size := stream.read(4):
                    frame = stream.read(struct.unpack(">i", size)[0])
                    stream.write(self._respond(frame))
                    stream.flush()
        except OSError:
            return

    def _respond(self, frame: bytes) -> bytes:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.seen.append((key, version))
        request = registry.decode_request(key, version, memoryview(frame), position)
        body = registry.encode_response(self._answer(key, request), version)
        whole = encode_response_header(key, version, header.correlation_id) + b"".join(body)
        return struct.pack(">i", len(whole)) + whole

    def close(self) -> None:
        self._server.close()


def plain(key: int, request: Any) -> Any:
    if key == ApiKey.API_VERSIONS:
        entries = [
            ApiVersion(api_key=api, min_version=low, max_version=high)
            for api, (low, high) in VERSIONS.items()
        ]
        return ApiVersionsResponse(api_keys=entries)
    assert key == ApiKey.METADATA
    return MetadataResponse(cluster_id="small")


def options(port: int, **fields: Any) -> ConnectionOptions:
    return ConnectionOptions(bootstrap=(("127.0.0.1", port),), request_timeout_ms=5000, **fields)


@pytest.fixture
def brokers() -> Iterator[Callable[..., SmallBroker]]:
    made: list[SmallBroker] = []

    def make(*arguments: Any) -> SmallBroker:
        made.append(SmallBroker(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_highest_common_version_is_spoken(brokers: Callable[..., SmallBroker]) -> None:
    broker = brokers(plain)
    with Connection("127.0.0.1", broker.port, options(broker.port)) as connection:
        assert connection.call(MetadataRequest(topics=[]), 12, 1).cluster_id == "small"
        with pytest.raises(BrokerRefused, match="offers METADATA 4-9, and this needs 10-12"):
            connection.call(MetadataRequest(topics=[]), 12, 10)
    assert broker.seen == [(ApiKey.API_VERSIONS, 3), (ApiKey.METADATA, 9)]


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port} \\(PLAINTEXT\\)"):
        Connection("127.0.0.1", port, options(port))


def sasl(mechanism: str, name: str, password: str) -> Answer:
    """A broker that knows one user; it asks as RFC 5802 has it."""
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    state: dict[str, str] = {}

    def answer(key: int, request: Any) -> Any:
        if key == ApiKey.SASL_HANDSHAKE:
            known = request.mechanism == mechanism
            return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=[mechanism])
        if key != ApiKey.SASL_AUTHENTICATE:
            return plain(key, request)
        text = bytes(request.auth_bytes).decode()
        if mechanism == "PLAIN":
            good = text == f"\0{name}\0{password}"
            return SaslAuthenticateResponse(error_code=0 if good else 58)
        if "client" not in state:
            state["client"] = text.removeprefix("n,,")
            nonce = state["client"].partition("r=")[2] + "server"
            salt = base64.b64encode(b"salt").decode()
            state["server"] = f"r={nonce},s={salt},i=4096"
            return SaslAuthenticateResponse(auth_bytes=state["server"].encode())
        without, _, proof = text.partition(",p=")
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b"salt", 4096)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        stored = hashlib.new(algorithm, client_key).digest()
        signed = f"{state['client']},{state['server']},{without}".encode()
        signature = hmac.digest(stored, signed, algorithm)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return SaslAuthenticateResponse(error_code=58, error_message="no")
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        final = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
        return SaslAuthenticateResponse(auth_bytes=f"v={final}".encode())

    return answer


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_is_let_in_and_a_stranger_is_not(
    brokers: Callable[..., SmallBroker], mechanism: str
) -> None:
    def connect(password: str) -> Connection:
        broker = brokers(sasl(mechanism, "ann", "secret"))
        fields = options(
            broker.port, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
            sasl_username="ann", sasl_password=password,
        )  # fmt: skip
        return Connection("127.0.0.1", broker.port, fields)

    with connect("secret") as connection:
        assert connection.call(MetadataRequest(topics=[]), 9).cluster_id == "small"
    with pytest.raises(BrokerRefused, match="refused the credentials of 'ann'") as caught:
        connect("wrong")
    assert "wrong" not in str(caught.value)


def test_a_foreign_mechanism_is_answered_with_those_offered(
    brokers: Callable[..., SmallBroker],
) -> None:
    broker = brokers(sasl("SCRAM-SHA-256", "ann", "secret"))
    fields = options(broker.port, security_protocol="SASL_PLAINTEXT", sasl_username="ann")
    with pytest.raises(BrokerRefused, match="it offers: SCRAM-SHA-256"):
        Connection("127.0.0.1", broker.port, fields)


@pytest.mark.parametrize("side", ["truststore", "keystore"])
@pytest.mark.parametrize("content", [None, b"\xfe\xed\xfe\xed"], ids=["missing", "no PEM"])
def test_a_file_that_cannot_be_used_is_named_with_its_option(
    tmp_path: Path, side: str, content: bytes | None
) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    field = "ssl_ca_file" if side == "truststore" else "ssl_certificate_file"
    with pytest.raises(BadOptions, match=f"option kafka.ssl.{side}.location='{path}'"):
        Connection("127.0.0.1", 1, options(1, security_protocol="SSL", **{field: str(path)}))


def test_tls_with_a_pem_file_of_ones_own(
    brokers: Callable[..., SmallBroker], tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key,
         "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    broker = brokers(plain, context)
    trusting = options(broker.port, security_protocol="SSL", ssl_ca_file=str(certificate))
    with Connection("127.0.0.1", broker.port, trusting) as connection:
        assert connection.call(MetadataRequest(topics=[]), 9).cluster_id == "small"
    other = brokers(plain, context)
    with pytest.raises(BrokerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        Connection("127.0.0.1", other.port, options(other.port, security_protocol="SSL"))
