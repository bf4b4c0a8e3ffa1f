"""One blocking connection to one broker: a request out, its answer in.

Spark's tasks and its planner are threads of plain Python, so this is a plain socket: no loop, no
thread. A request may be sent before the answer to the last one is read (`send`, then `receive`),
which is how a reader overlaps the network with decoding. After any failure the connection is closed
and not reused; `cluster` opens another.

TLS comes from Python's `ssl` with PEM files; SASL is PLAIN and SCRAM-SHA-256/512.

Source: KIP-35, KIP-511 (versions), KIP-152 (SASL frames), RFC 5802 (SCRAM). Read next: `cluster`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Self

from pipeline.errors import BadOptions, BrokerRefused, BrokerUnreachable
from pipeline.options.options import ConnectionOptions
from protocol import registry
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.sasl_authenticate import SaslAuthenticateRequest
from protocol.api.sasl_handshake import SaslHandshakeRequest
from protocol.api_keys import ApiKey, VersionRange
from protocol.declare.primitives import message_spec
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.headers import RequestHeader, decode_response_header, encode_request_header

MAX_FRAME_BYTES: Final = 512 * 1024 * 1024
SOFTWARE_NAME: Final = "tidelog-spark"

_SIZE: Final = struct.Struct(">i")
_RECEIVE_BUFFER_BYTES: Final = 4 << 20
_API_VERSIONS_MAX: Final = 3


class Connection:
    """A negotiated, authenticated connection. Belongs to one thread; close it after use."""

    def __init__(self, host: str, port: int, options: ConnectionOptions) -> None:
        """Connect, query the versions, authenticate.

        Raises:
            BadOptions: a file of the options is missing or holds no PEM.
            BrokerUnreachable: no broker listens there, TLS failed, or no answer came in time.
            BrokerRefused: the credentials were not accepted.
        """
        self.address = f"{host}:{port}"
        self.versions: Mapping[int, VersionRange] = {}
        self._options = options
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int]] = deque()
        timeout_s = options.request_timeout_ms / 1000
        context = _tls_context(options)
        try:
            raw = socket.create_connection((host, port), timeout=timeout_s)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            self._socket = (
                raw if context is None else context.wrap_socket(raw, server_hostname=host)
            )
        except OSError as error:
            raise BrokerUnreachable(
                f"cannot connect to {self.address} ({options.security_protocol}): {error}; is the "
                "broker running there, and does the listener use this security protocol?"
            ) from error
        try:
            self._negotiate()
            if options.security_protocol.startswith("SASL_"):
                self._authenticate()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End it; may be called again."""
        self._socket.close()

    def version_of(self, api_key: int, wanted: int, lowest: int = 0) -> int:
        """The highest version of `api_key` in `lowest..wanted` that the broker offers.

        Raises:
            BrokerRefused: there is none.
        """
        offered = self.versions.get(api_key)
        if offered is None or min(offered.max, wanted) < max(offered.min, lowest):
            name = ApiKey(api_key).name
            raise BrokerRefused(
                f"{self.address} offers {name} {offered or 'not at all'}, and this needs "
                f"{VersionRange(lowest, wanted)}: another broker version is needed",
                int(ErrorCode.UNSUPPORTED_VERSION),
            )
        return min(offered.max, wanted)

    def call(self, message: Any, wanted: int, lowest: int = 0) -> Any:
        """The answer to `message`, sent in the highest common version up to `wanted`.

        Raises:
            BrokerUnreachable: the connection broke or the answer came too late.
            BrokerRefused: the broker offers no such version.
        """
        self.send(message, wanted, lowest)
        return self.receive()

    def send(self, message: Any, wanted: int, lowest: int = 0) -> None:
        """Send `message`; `receive` reads the answers in the order of the requests."""
        api_key = message_spec(type(message)).api_key
        version = (
            wanted if api_key == ApiKey.API_VERSIONS else self.version_of(api_key, wanted, lowest)
        )
        self._correlation_id += 1
        header = RequestHeader(
            api_key=api_key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._options.client_id,
        )
        body = encode_request_header(header) + registry.encode_request(message, version)
        try:
            self._socket.sendall(_SIZE.pack(len(body)) + body)
        except OSError as error:
            self.close()
            raise BrokerUnreachable(f"{self.address}: sending failed: {error}") from error
        self._waiting.append((api_key, version, self._correlation_id))

    def receive(self) -> Any:
        """The answer to the oldest request without one; raises as `call`."""
        api_key, version, correlation_id = self._waiting.popleft()
        try:
            frame = self._read_frame()
            found, position = decode_response_header(frame, api_key, version)
            if found != correlation_id:
                raise ProtocolError(f"answer {found} came instead of {correlation_id}")
            return registry.decode_response(api_key, version, memoryview(frame), position)
        except (OSError, ProtocolError) as error:
            self.close()
            raise BrokerUnreachable(
                f"{self.address}: no usable answer to {ApiKey(api_key).name}: {error}"
            ) from error

    def _read_frame(self) -> bytearray:
        (size,) = _SIZE.unpack(self._read_exactly(_SIZE.size))
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {size} bytes is beyond {MAX_FRAME_BYTES}")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytearray:
        frame = bytearray(size)
        view = memoryview(frame)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]
        return frame

    def _negotiate(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version="0.1.0"
        )
        answer = self.call(request, _API_VERSIONS_MAX)
        self.versions = {
            entry.api_key: VersionRange(entry.min_version, entry.max_version)
            for entry in answer.api_keys
        }

    def _authenticate(self) -> None:
        options = self._options
        handshake = self.call(SaslHandshakeRequest(mechanism=options.sasl_mechanism), 1, 1)
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise BrokerRefused(
                f"{self.address} does not accept SASL mechanism {options.sasl_mechanism}; it "
                f"offers: {offered} (option kafka.sasl.mechanism)",
                handshake.error_code,
            )
        if options.sasl_mechanism == "PLAIN":
            self._sasl(f"\0{options.sasl_username}\0{options.sasl_password}".encode())
        else:
            self._scram(options.sasl_mechanism.removeprefix("SCRAM-").replace("-", "").lower())

    def _sasl(self, payload: bytes) -> bytes:
        answer = self.call(SaslAuthenticateRequest(auth_bytes=payload), 2)
        if answer.error_code:
            raise BrokerRefused(
                f"{self.address} refused the credentials of {self._options.sasl_username!r}: "
                f"{answer.error_message or ErrorCode(answer.error_code).name} "
                "(option kafka.sasl.jaas.config)",
                answer.error_code,
            )
        return bytes(answer.auth_bytes)

    def _scram(self, algorithm: str) -> None:
        """The four messages of RFC 5802, without channel binding."""
        name = self._options.sasl_username.replace("=", "=3D").replace(",", "=2C")
        nonce = secrets.token_urlsafe(24)
        first_bare = f"n={name},r={nonce}"
        server_first = self._sasl(f"n,,{first_bare}".encode()).decode()
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        if not fields["r"].startswith(nonce):
            raise BrokerUnreachable(f"{self.address}: the SCRAM answer has a foreign nonce")
        salted = hashlib.pbkdf2_hmac(
            algorithm,
            self._options.sasl_password.encode(),
            base64.b64decode(fields["s"]),
            int(fields["i"]),
        )
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{first_bare},{server_first},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        signature = hmac.digest(stored_key, signed, algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        last = f"{without_proof},p={base64.b64encode(proof).decode()}"
        server_final = self._sasl(last.encode()).decode()
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        expected = base64.b64encode(hmac.digest(server_key, signed, algorithm)).decode()
        if f"v={expected}" not in server_final.split(","):
            raise BrokerUnreachable(f"{self.address}: the SCRAM answer does not know the password")


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext | None:
    """The context for TLS, or None for a security protocol without it; raises BadOptions."""
    if not options.security_protocol.endswith("SSL"):
        return None
    name, path = "truststore", options.ssl_ca_file
    try:
        context = ssl.create_default_context(cafile=path or None)
        context.check_hostname = options.ssl_check_hostname
        name, path = "keystore", options.ssl_certificate_file
        if path:
            context.load_cert_chain(path, password=options.ssl_key_password or None)
    except OSError as error:
        raise BadOptions(
            [
                f"option kafka.ssl.{name}.location={path!r}: {error}, looked for as "
                f"{os.path.abspath(path)}; give a PEM file that is at this path on the driver and "
                "on every executor, or the name of one that --files brings to both"
            ]
        ) from error
    return context
