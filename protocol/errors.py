"""The errors for invalid bytes from a peer.

The family is small on purpose: a server needs one class per *treatment* of a fault, and the
treatments are few. A broken frame ends the connection. So does a broken request, since its answer
cannot be trusted to line up. An unknown version is answered where the protocol has an answer, and
bad records fail one partition. The broker owns the translation to Kafka's numeric codes.

    ProtocolError
    ├── MalformedFrame               the size prefix itself cannot be true
    ├── MalformedRequest             a header or body does not match its declared layout
    ├── UnsupportedVersion           a (key, version) pair that is not declared
    └── RecordsError                 the records payload; the request around it is fine
        ├── CorruptRecords           checksum, short data, sizes that contradict each other
        ├── InvalidRecords           readable, yet against the rules of the format
        ├── UnsupportedCompression   a codec number or library that is not there
        └── DecompressionLimitExceeded

Messages never carry payload bytes: they name the place, what was expected and what was found.
"""

import struct

_HTTP_STARTS = ("GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "PRI ", "HTTP")
_CURES = {
    "TLS": "the listener speaks Kafka's protocol without TLS; set security.protocol=PLAINTEXT in "
    "the client",
    "HTTP": "the listener speaks Kafka's protocol; metrics and probes are at metrics.listener",
}


def _protocol_of(start: bytes) -> str:
    """Which protocol other than Kafka's begins with four bytes; empty when none is known."""
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        # An alert or a handshake of TLS 1.0 to 1.3.
        return "TLS"
    return "HTTP" if start.decode("latin-1") in _HTTP_STARTS else ""


class ProtocolError(Exception):
    """Base of every fault found while turning bytes into values or values into bytes."""


class MalformedFrame(ProtocolError):
    """A size prefix is negative or above the configured limit; the stream cannot be resumed.

    Attributes:
        size: the claimed size in bytes.
        limit: the largest size accepted, in bytes.
        foreign: the protocol that begins with these four bytes, empty when none is known.
    """

    def __init__(self, size: int, limit: int) -> None:
        """Keep the claimed size and the accepted range."""
        self.size = size
        self.limit = limit
        # A size that was received fits an int32; one that was to be sent may not.
        prefix = struct.pack(">i", size) if -(2**31) <= size < 2**31 else b""
        self.foreign = _protocol_of(prefix)
        hint = f"; it begins as {self.foreign} does: {_CURES[self.foreign]}" if self.foreign else ""
        super().__init__(f"frame of {size} bytes is outside 1..{limit}{hint}")


class MalformedRequest(ProtocolError):
    """A header or body does not match the layout declared for its key and version.

    Used for both directions: a client that reads a broken answer raises it as well.

    Attributes:
        message: the message type, for example ``FetchRequest v12``.
        field: dotted path of the field, empty when no single field is to blame.
        position: byte position inside the frame, or -1 when unknown.
        problem: what was expected and what was found.
    """

    def __init__(self, message: str, field: str, position: int, problem: str) -> None:
        """Build the one-line explanation from its parts."""
        place = f"{message}.{field}" if field else message
        where = f" at byte {position}" if position >= 0 else ""
        super().__init__(f"{place}{where}: {problem}")
        self.message = message
        self.field = field
        self.position = position
        self.problem = problem


class UnsupportedVersion(ProtocolError):
    """No layout is declared for this API key and version.

    Attributes:
        api_key: the key as received, possibly unknown.
        api_version: the version as received.
    """

    def __init__(self, api_key: int, api_version: int) -> None:
        """Name the undeclared pair."""
        super().__init__(f"API key {api_key} has no version {api_version}")
        self.api_key = api_key
        self.api_version = api_version


class RecordsError(ProtocolError):
    """Base of the faults of a records payload; they fail a partition, never a connection."""


class CorruptRecords(RecordsError):
    """The bytes contradict themselves: checksum, truncated data, sizes that do not add up."""


class InvalidRecords(RecordsError):
    """The bytes are intact but break a rule of the record format."""


class UnsupportedCompression(RecordsError):
    """The codec is unknown, forbidden for this format, or its library is missing."""


class DecompressionLimitExceeded(RecordsError):
    """Decompressed output would pass the caller's cap; no bytes beyond the cap were produced."""
