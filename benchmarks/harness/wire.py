"""As much of the Kafka protocol as raw loads need: four requests, by hand, over one socket.

Written with `struct` and nothing of ours, so that a mistake in our codec cannot flatter or
hide: ApiVersions v0, CreateTopics v2, ListOffsets v1 and, as current clients send, Produce v12 (the
newest with topic names), all understood by Apache Kafka 4.x. Record batches come from aiokafka's
builder.
"""

import socket
import ssl
import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

CLIENT_ID = b"bench"
_PRODUCE, _LIST_OFFSETS, _API_VERSIONS, _CREATE_TOPICS = 0, 2, 18, 19
_PRODUCE_VERSION, _LIST_OFFSETS_VERSION, _CREATE_TOPICS_VERSION = 12, 1, 2


_NULL, _NO_TAGS, _ONE = b"\0", b"\0", b"\2"
"""Of flexible versions: no string, an empty tag section, the length of an array of one."""


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _compact(data: bytes) -> bytes:
    """The data after its length plus one, as flexible versions have it."""
    return _varint(len(data) + 1) + data


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, correlation_id) + _string(CLIENT_ID)
    return struct.pack(">i", len(header) + len(body)) + header + body


def record_batch(values: Sequence[bytes], timestamps: Sequence[int], codec: int = 0) -> bytes:
    """One uncommitted v2 batch; offsets from 0."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, (value, timestamp) in enumerate(zip(values, timestamps, strict=True)):
        builder.append(offset, timestamp, None, value, [])
    return bytes(builder.build())


def produce_request(topic: str, partition: int, batch: bytes, correlation_id: int = 0) -> bytes:
    """A whole Produce v12 frame with acks=all; `set_correlation_id` numbers copies of it."""
    body = (
        _NO_TAGS  # of the header
        + _NULL
        + struct.pack(">hi", -1, 30_000)
        + _ONE
        + _compact(topic.encode())
        + _ONE
        + struct.pack(">i", partition)
        + _compact(batch)
        + 3 * _NO_TAGS
    )
    return _request(_PRODUCE, _PRODUCE_VERSION, correlation_id, body)


def set_correlation_id(frame: bytearray, correlation_id: int) -> None:
    """Numbers a frame in place."""
    struct.pack_into(">i", frame, 8, correlation_id)


def produce_error(response: bytes) -> int:
    """The error code of a Produce v12 response to one partition of a topic with a short name."""
    # Correlation id, tags, one topic; its name; one partition, its number.
    topic_length = response[6] - 1
    return int(struct.unpack_from(">h", response, 7 + topic_length + 1 + 4)[0])


def api_versions_request() -> bytes:
    """An ApiVersions v0 frame; its response starts with the correlation id and an error code."""
    return _request(_API_VERSIONS, 0, 0, b"")


def create_topic_request(topic: str) -> bytes:
    """A CreateTopics v2 frame: one partition, one replica, no settings, 30 seconds."""
    asked = _string(topic.encode()) + struct.pack(">ihii", 1, 1, 0, 0)
    body = struct.pack(">i", 1) + asked + struct.pack(">ib", 30_000, 0)
    return _request(_CREATE_TOPICS, _CREATE_TOPICS_VERSION, 0, body)


def create_topic_error(response: bytes) -> int:
    """The error code of a CreateTopics v2 response about one topic."""
    # Correlation id, throttle time, one topic; its name.
    (topic_length,) = struct.unpack_from(">h", response, 12)
    return int(struct.unpack_from(">h", response, 14 + topic_length)[0])


def list_offsets_request(
    topic: str, partition: int, timestamps: Sequence[int], correlation_id: int = 0
) -> bytes:
    """A ListOffsets v1 frame that asks one partition once for every timestamp."""
    entries = b"".join(struct.pack(">iq", partition, timestamp) for timestamp in timestamps)
    body = struct.pack(">ii", -1, 1) + _string(topic.encode()) + struct.pack(">i", len(timestamps))
    return _request(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, correlation_id, body + entries)


def list_offsets_answers(response: bytes) -> list[tuple[int, int, int]]:
    """(error code, timestamp, offset) of every partition entry of a ListOffsets v1 response."""
    topic_length = struct.unpack_from(">h", response, 8)[0]
    position = 8 + 2 + topic_length
    (count,) = struct.unpack_from(">i", response, position)
    entries = struct.iter_unpack(">ihqq", response[position + 4 : position + 4 + count * 22])
    return [(error, timestamp, offset) for _, error, timestamp, offset in entries]


class Connection:
    """A blocking connection; `send` and `receive` may run ahead of each other."""

    def __init__(
        self, bootstrap: str, timeout_s: float = 60, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def send(self, frame: bytes | bytearray) -> None:
        """Sends a whole frame."""
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The next response without its length: correlation id and body."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def ask(self, frame: bytes | bytearray) -> bytes:
        """Sends a request and returns its response."""
        self.send(frame)
        return self.receive()

    def _exactly(self, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            chunk = self._socket.recv(count - len(chunks))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks += chunk
        return bytes(chunks)
