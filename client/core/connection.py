"""One connection to one broker, without its socket: versions, requests, answers, authentication.

Owns the correlation ids, the choice of versions and the conversation that opens a connection. The
socket belongs to a subclass: `client.aio.connection` has an event loop's, `client.blocking` a
thread's. It knows no topics, leaders or retries. A failed connection fails every request that waits
on it, once, and is never reused; `cluster` opens another.

Invariant: Kafka answers the requests of a connection in their order, so the oldest waiting
request owns the next frame. An answer with another correlation id therefore ends the connection:
from there on the two sides may disagree.

Versions: ApiVersions is the first request. A broker that does not know our version of *that*
answers in the layout of version 0 with error 35 and the range it knows (KIP-511).

Source: Kafka ``NetworkClient``, ``RequestContext``.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from client.core.options import ClusterOptions
from client.errors import (
    BrokerRefused,
    BrokerUnreachable,
    InvalidUse,
    NameUnknown,
    UnsupportedByBroker,
)
from client.types import format_address
from protocol import registry
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api_keys import ApiKey, VersionRange
from protocol.declare.primitives import message_spec
from protocol.error_codes import ErrorCode
from protocol.errors import MalformedFrame, MalformedRequest, ProtocolError
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from values.version import VERSION

MAX_FRAME_BYTES = 512 * 1024 * 1024
"""The largest answer that is accepted; fetches request far less."""

_CORRELATION_ID_MASK = 0x7FFFFFFF

_FOREIGN = {
    "HTTP": "that is no Kafka listener, perhaps the metrics port; give the port of a listener",
    "TLS": "set security.protocol=SSL or SASL_SSL, for commands --tls",
}
"""What to do about a port where another protocol is spoken."""


@dataclass(slots=True, eq=False)
class Question:
    """A request on its way: what its answer must look like."""

    correlation_id: int
    key: ApiKey
    version: int

    def match(self, frame: memoryview) -> int:
        """Where the body of the answer begins.

        Raises:
            ProtocolError: the frame is the answer to another request.
        """
        correlation_id, position = decode_response_header(frame, self.key, self.version)
        if correlation_id != self.correlation_id:
            raise ProtocolError(f"answer {correlation_id} came where {self.correlation_id} was due")
        return position

    def decode(self, frame: memoryview, position: int) -> Any:
        """The answer's message; raises ProtocolError."""
        version = self.version
        if self.key == ApiKey.API_VERSIONS:
            error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
            if error_code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        return registry.decode_response(self.key, version, frame, position)

    def unreadable(self, address: str, problem: object) -> BrokerUnreachable:
        """The error for an answer that is not this request's or does not parse."""
        return BrokerUnreachable(
            f"{address} sent an answer to {self.key.name} v{self.version} that cannot be read: "
            f"{problem}",
            broker=address,
        )


class Connection(ABC):
    """A connection to a broker; usable once `greet` has returned, until the first failure."""

    def __init__(self, host: str, port: int, options: ClusterOptions) -> None:
        """Prepare; the subclass connects."""
        self.address = format_address(host, port)
        self.versions: Mapping[int, VersionRange] = {}
        self._options = options
        self._correlation_id = 0
        self._has_served = False
        self._foreign = ""
        self._failure: BrokerUnreachable | None = None

    # The socket's part.

    @property
    def is_open(self) -> bool:
        """Whether calls can still be made."""
        return self._failure is None

    @abstractmethod
    def send(
        self, request: Any, key: ApiKey, version: int, *, timeout_ms: int | None = None
    ) -> Awaitable[Any]:
        """Write the request now; awaiting the result gives the answer, and raises as `call`."""

    @abstractmethod
    def send_unanswered(self, request: Any, key: ApiKey, version: int) -> None:
        """Write a request that has no answer, which is Produce with acks=0 alone.

        Raises:
            BrokerUnreachable: the connection has ended.
        """

    @abstractmethod
    async def drained(self) -> None:
        """Return once the socket takes more; this bounds the bytes that wait to be written."""

    @abstractmethod
    def close(self) -> None:
        """End the connection; all waiting requests fail. May be called twice."""

    # What is the same for every socket.

    def version_of(self, key: ApiKey, *, max_version: int, min_version: int = 0) -> int:
        """The highest version of `key` from `min_version` to `max_version` that the broker offers.

        Raises:
            UnsupportedByBroker: there is none.
        """
        theirs = self.versions.get(key)
        if theirs is None:
            raise UnsupportedByBroker(
                f"{self.address} does not offer {key.name}; use a newer broker for it",
                broker=self.address,
            )
        highest = min(theirs.max, max_version)
        if highest < max(theirs.min, min_version):
            raise UnsupportedByBroker(
                f"{self.address} offers {key.name} {theirs}, and this call needs "
                f"{VersionRange(min_version, max_version)}; use a newer broker for it",
                broker=self.address,
            )
        return highest

    async def call(
        self,
        request: Any,
        *,
        max_version: int | None = None,
        min_version: int = 0,
        timeout_ms: int | None = None,
    ) -> Any:
        """The broker's answer to `request`, in the highest version both sides share.

        Raises:
            BrokerUnreachable: the connection ended, or no answer came within `timeout_ms`
                (None: the options' own request timeout).
            UnsupportedByBroker: no common version.
            InvalidUse: a value does not fit into its field of the request.
        """
        spec = message_spec(type(request))
        version = self.version_of(
            spec.api_key,
            max_version=spec.max_version if max_version is None else max_version,
            min_version=min_version,
        )
        await self.drained()
        return await self.send(request, spec.api_key, version, timeout_ms=timeout_ms)

    async def greet(self) -> None:
        """Find out the broker's versions, and authenticate if the options say so.

        Raises:
            BrokerRefused: the broker denies either.
            BrokerUnreachable: as `call`.
        """
        try:
            await self._negotiate()
        except BrokerUnreachable as error:
            raise self._not_connected(error, is_met=True) from None
        if self._options.security.mechanism:
            from client.core.sasl import authenticate

            await authenticate(self.call, self.address, self._options.security)

    async def _negotiate(self) -> None:
        key = ApiKey.API_VERSIONS
        version = message_spec(ApiVersionsRequest).max_version
        for _ in range(3):
            request = ApiVersionsRequest(
                client_software_name=self._options.software,
                client_software_version=VERSION,
            )
            response = await self.send(request, key, version)
            offered = {
                api.api_key: VersionRange(api.min_version, api.max_version)
                for api in response.api_keys
            }
            if response.error_code == ErrorCode.NONE:
                self.versions = offered
                return
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            version = min(offered[key].max, version - 1) if key in offered else 0
        raise BrokerRefused("asking for versions", response.error_code, broker=self.address)

    def _encode(self, request: Any, key: ApiKey, version: int) -> tuple[Question, list[bytes]]:
        """The request's frame without its size, and what its answer is checked against."""
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MASK
        header = RequestHeader(
            api_key=key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._options.client_id,
        )
        try:
            body = registry.encode_request(request, version)
        except MalformedRequest as error:
            raise InvalidUse(
                f"{key.name} cannot be asked: its field {error.field} cannot hold what was given "
                f"({error.problem})",
                broker=self.address,
            ) from error
        question = Question(self._correlation_id, key, version)
        return question, [encode_request_header(header), body]

    def _decoded(self, question: Question, frame: memoryview, position: int) -> Any:
        """The answer to `question`; raises ProtocolError."""
        self._has_served |= question.key != ApiKey.API_VERSIONS
        return question.decode(frame, position)

    def _unreadable(self, error: ProtocolError) -> str:
        """Why a connection ends whose bytes are no frames."""
        self._foreign = error.foreign if isinstance(error, MalformedFrame) else ""
        if self._foreign:
            return f"{self._foreign} is spoken there: {_FOREIGN[self._foreign]}"
        return f"the answer cannot be read: {error}"

    def _closed_by_broker(self) -> str:
        """Why a connection has ended that the broker closed, with the cure that may help."""
        reason = "the broker closed the connection"
        security = self._options.security
        if self._has_served or security.mechanism or not self.versions:
            return reason
        return (
            f"{reason} after it answered nothing but its API versions; does the listener want a "
            f"user and a password? This client has none ({security.protocol})"
        )

    def _not_connected(self, reason: object, *, is_met: bool = False) -> BrokerUnreachable:
        """The error for a connection that could not be opened.

        `is_met`: a broker has ended it, maybe because of what this client has shown of itself.
        """
        security = self._options.security
        if self._foreign:
            where = f"cannot connect to {self.address} ({security.protocol})"
            return BrokerUnreachable(f"{where}: {reason}", broker=self.address)
        cure = ""
        if is_met and not security.tls:
            cure = (
                " One with TLS needs its authority: Security(ca_file=FILE), for commands --tls-ca "
                "FILE, or ssl.truststore.location"
            )
        elif is_met and not security.certificate_file:
            cure = (
                " One that asks for clients' certificates needs that of this client: "
                "Security(certificate_file=FILE), for commands --tls-cert FILE, or "
                "ssl.keystore.location"
            )
        elif is_met:
            cure = (
                f" It may refuse the certificate of this client, {security.certificate_file}: is "
                "that in force, and signed by an authority that the broker trusts?"
            )
        return BrokerUnreachable(
            f"cannot connect to {self.address} ({security.protocol}): {reason}; is the broker "
            "running, is the address right, and does the listener use this security protocol?"
            f"{cure}",
            broker=self.address,
        )

    def _not_resolved(self, error: OSError, *, is_unknown: bool) -> BrokerUnreachable:
        """The error for a host name that led to no address.

        Unless it `is_unknown`, no server of names has answered, or the name has no address now.
        """
        if not is_unknown:
            reason = error.strerror or str(error)
            return self._not_connected(f"its name was not looked up ({reason})")
        return NameUnknown(
            f"cannot connect to {self.address}: its name is unknown; is the address right?",
            broker=self.address,
        )

    def _not_opened(self, error: OSError) -> BrokerUnreachable:
        """The error for a socket, or its handshake of TLS, that failed."""
        if isinstance(error, ConnectionRefusedError):
            return BrokerUnreachable(
                f"cannot connect to {self.address} ({self._options.security.protocol}): nothing "
                "listens there; is the broker running, and is the address right?",
                broker=self.address,
            )
        reason = error.strerror or str(error)
        if not self._options.security.tls:
            return self._not_connected(reason)
        # Slow to import; with TLS it is there.
        import ssl

        if isinstance(error, ConnectionError | ssl.SSLEOFError):
            closed = "the broker closed the connection in the handshake of TLS"
            return self._not_connected(closed, is_met=True)
        is_alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
        return self._not_connected(reason, is_met=is_alert)
