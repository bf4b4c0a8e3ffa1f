"""One core, two faces: versions, SASL, TLS, and what goes wrong, in a loop and in a thread.

Both carry out the same coroutine against a broker of a few lines.
"""

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.aio.connection import open_cluster as open_in_loop
from client.blocking import open_cluster as open_in_thread
from client.blocking import run
from client.core.cluster import Cluster, Role
from client.core.options import ClusterOptions, Security
from client.errors import BadFile, BrokerRefused, BrokerUnreachable, UnsupportedByBroker
from protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from protocol.api.metadata import MetadataRequest, MetadataResponse
from protocol.api.sasl_authenticate import SaslAuthenticateResponse
from protocol.api.sasl_handshake import SaslHandshakeResponse
from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.headers import encode_response_header
from tests.support.codec import decode_request, decode_request_header, encode_response

VERSIONS = {
    ApiKey.API_VERSIONS: (0, 4),
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
                while prefix := stream.read(4):
                    (size,) = struct.unpack(">i", prefix)
                    if not 0 < size < 1 << 20:
                        return
                    frame = stream.read(size)
                    stream.write(self._respond(frame))
                    stream.flush()
        except (OSError, ProtocolError):
            return

    def _respond(self, frame: bytes) -> bytes:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.seen.append((key, version))
        request = decode_request(key, version, frame[position:])
        answer = self._answer(key, request)
        body = [answer] if isinstance(answer, bytes) else encode_response(answer, version)
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


Work = Callable[[Cluster], Coroutine[Any, Any, Any]]
Face = Callable[[ClusterOptions, Work], Any]


def in_thread(options: ClusterOptions, work: Work) -> Any:
    cluster = open_in_thread(options)
    try:
        return run(work(cluster))
    finally:
        run(cluster.close())


def in_loop(options: ClusterOptions, work: Work) -> Any:
    async def whole() -> Any:
        cluster = open_in_loop(options)
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(whole())


@pytest.fixture(params=[in_thread, in_loop])
def face(request: pytest.FixtureRequest) -> Face:
    chosen: Face = request.param
    return chosen


def options(port: int, **fields: Any) -> ClusterOptions:
    return ClusterOptions(
        bootstrap=(("127.0.0.1", port),), request_timeout_ms=5000, security=Security(**fields)
    )


async def ask(cluster: Cluster, **versions: int) -> Any:
    """The name of the small broker's cluster."""
    connection = await cluster.any_connection()
    return (await connection.call(MetadataRequest(topics=[]), **versions)).cluster_id


@pytest.fixture
def brokers() -> Iterator[Callable[..., SmallBroker]]:
    made: list[SmallBroker] = []

    def make(*arguments: Any) -> SmallBroker:
        made.append(SmallBroker(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_highest_common_version_is_spoken(
    brokers: Callable[..., SmallBroker], face: Face
) -> None:
    broker = brokers(plain)

    async def work(cluster: Cluster) -> None:
        assert await ask(cluster) == "small"
        with pytest.raises(UnsupportedByBroker, match="offers METADATA 4-9, and this call needs"):
            await ask(cluster, min_version=10, max_version=12)

    face(options(broker.port), work)
    assert broker.seen == [(ApiKey.API_VERSIONS, 4), (ApiKey.METADATA, 9)]


def test_nothing_at_the_address_is_reported_with_the_address_and_the_protocol(face: Face) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=rf"127.0.0.1:{port} \(PLAIN"):
        face(options(port), ask)


def test_answers_that_no_caller_wants_any_more_are_skipped(
    brokers: Callable[..., SmallBroker], face: Face
) -> None:
    """An answer once had to be read before the next request, or was taken for another one's."""
    names = iter("abc")

    def answer(key: int, request: Any) -> Any:
        if key == ApiKey.METADATA:
            return MetadataResponse(cluster_id=next(names))
        return plain(key, request)

    async def work(cluster: Cluster) -> list[str]:
        connection = await cluster.any_connection()
        sent = [connection.send(MetadataRequest(topics=[]), ApiKey.METADATA, 9) for _ in range(2)]
        return [await ask(cluster), (await sent[1]).cluster_id]

    assert face(options(brokers(answer).port), work) == ["c", "b"]


@pytest.mark.parametrize("is_late", [True, False], ids=["silence", "nonsense"])
def test_an_answer_that_does_not_come_ends_the_connection_for_all(
    brokers: Callable[..., SmallBroker], face: Face, is_late: bool
) -> None:
    release = threading.Event()

    def answer(key: int, request: Any) -> Any:
        if key != ApiKey.METADATA:
            return plain(key, request)
        if is_late:
            release.wait(20)
        return b"\xff"

    async def work(cluster: Cluster) -> None:
        connection = await cluster.any_connection()
        request = MetadataRequest(topics=[])
        sent = [
            connection.send(request, ApiKey.METADATA, 9, timeout_ms=100 if is_late else 5000)
            for _ in range(2)
        ]
        for one in sent:
            with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1"):
                await one
        assert not connection.is_open
        with pytest.raises(BrokerUnreachable):
            await connection.call(request)

    try:
        face(options(brokers(answer).port), work)
    finally:
        release.set()


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
    brokers: Callable[..., SmallBroker], face: Face, mechanism: str
) -> None:
    def connect(password: str) -> Any:
        broker = brokers(sasl(mechanism, "ann", "secret"))
        user = options(broker.port, mechanism=mechanism, username="ann", password=password)
        return face(user, ask)

    assert connect("secret") == "small"
    with pytest.raises(BrokerRefused, match="authenticating as 'ann'") as caught:
        connect("wrong")
    assert "wrong" not in str(caught.value)
    assert "check the user name and the password" in str(caught.value)


def test_a_foreign_mechanism_is_answered_with_those_offered(
    brokers: Callable[..., SmallBroker], face: Face
) -> None:
    broker = brokers(sasl("SCRAM-SHA-256", "ann", "secret"))
    with pytest.raises(BrokerRefused, match="the broker offers: SCRAM-SHA-256"):
        face(options(broker.port, mechanism="PLAIN", username="ann", password="secret"), ask)


@pytest.mark.parametrize(
    ("server_first", "message"),
    [
        ("r=foreign,s=c2FsdA==,i=4096", "has a foreign nonce"),
        ("r={nonce}x,s=c2FsdA==,i=0", "wants 0 iterations"),
        ("r={nonce}x,s=c2FsdA==,i=2000000000", "wants 2000000000 iterations"),
        ("r={nonce}x,s=c2FsdA==", "cannot be read"),
        ("nonsense", "cannot be read"),
    ],
)
def test_a_broker_that_answers_scram_badly_gets_no_proof(
    brokers: Callable[..., SmallBroker], face: Face, server_first: str, message: str
) -> None:
    def answer(key: int, request: Any) -> Any:
        if key == ApiKey.SASL_HANDSHAKE:
            return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
        if key == ApiKey.SASL_AUTHENTICATE:
            nonce = bytes(request.auth_bytes).decode().partition("r=")[2]
            return SaslAuthenticateResponse(auth_bytes=server_first.format(nonce=nonce).encode())
        return plain(key, request)

    broker = brokers(answer)
    with pytest.raises(BrokerUnreachable, match=message):
        face(options(broker.port, mechanism="SCRAM-SHA-256", username="ann", password="s"), ask)
    assert sum(key == ApiKey.SASL_AUTHENTICATE for key, _ in broker.seen) == 1


@pytest.mark.parametrize("field", ["ca_file", "certificate_file", "key_file"])
@pytest.mark.parametrize("content", [None, b"\xfe\xed\xfe\xed"], ids=["missing", "no PEM"])
def test_a_file_that_cannot_be_used_is_named_with_its_field(
    tmp_path: Path, face: Face, field: str, content: bytes | None
) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    files = {field: str(path)}
    if field == "key_file":
        certificate, _ = self_signed(tmp_path)
        files["certificate_file"] = str(certificate)
    with pytest.raises(BadFile, match=f"{field}='{path}'"):
        face(options(1, tls=True, **files), ask)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key,
         "-out", certificate, "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def test_tls_with_a_pem_file_of_ones_own(
    brokers: Callable[..., SmallBroker], face: Face, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    broker = brokers(plain, context)
    assert face(options(broker.port, tls=True, ca_file=str(certificate)), ask) == "small"
    other = brokers(plain, context)
    with pytest.raises(BrokerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        face(options(other.port, tls=True), ask)


def test_the_wrong_security_protocol_is_suspected(
    brokers: Callable[..., SmallBroker], face: Face, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with pytest.raises(BrokerUnreachable, match=r"\(PLAINTEXT\).*this security protocol"):
        face(options(brokers(plain, context).port), ask)
    with pytest.raises(BrokerUnreachable, match=r"\(SSL\).*this security protocol"):
        face(options(brokers(plain).port, tls=True), ask)


def test_a_certificate_is_of_the_host_name_unless_the_user_says_otherwise(
    brokers: Callable[..., SmallBroker], face: Face, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def connect(**fields: Any) -> Any:
        by_address = options(0, tls=True, ca_file=str(certificate), **fields)
        port = brokers(plain, context).port
        return face(replace(by_address, bootstrap=(("localhost", port),)), ask)

    with pytest.raises(BrokerUnreachable, match=r"[Hh]ostname mismatch"):
        connect()
    assert connect(check_hostname=False) == "small"


def test_a_connection_that_may_wait_long_serves_no_other_request(
    brokers: Callable[..., SmallBroker], face: Face
) -> None:
    joining, main = brokers(plain), brokers(plain)

    async def work(cluster: Cluster) -> str:
        await cluster._pool.open("127.0.0.1", joining.port, Role.JOIN)
        return (await cluster.any_connection()).address

    assert face(options(main.port), work) == f"127.0.0.1:{main.port}"
