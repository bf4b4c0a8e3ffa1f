"""The blocking connection: what it says of a broker that closes it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from client.blocking import BlockingConnection, run
from client.core.options import ClusterOptions
from client.errors import BrokerUnreachable
from protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from protocol.api.metadata import MetadataRequest, MetadataResponse
from protocol.api_keys import ApiKey
from protocol.declare.primitives import Buffer
from protocol.frames import FrameDecoder, encode_frame
from protocol.headers import encode_response_header
from tests.support.codec import decode_request_header, encode_response

OFFER = [
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4),
    ApiVersion(api_key=ApiKey.METADATA, min_version=2, max_version=5),
]


class ClosingBroker:
    """Answers some requests of one connection, reads one more and closes."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self.answers = 1

    def start(self, answers: int) -> None:
        self.answers = answers
        self._thread.start()

    def _serve(self) -> None:
        peer, _ = self._listening.accept()
        with peer:
            frames = FrameDecoder(1 << 20)
            seen = 0
            while seen <= self.answers:
                frames.feed(peer.recv(65536))
                while (frame := frames.next_frame()) is not None:
                    if seen < self.answers:
                        peer.sendall(_answer(frame))
                    seen += 1

    def close(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        self._listening.close()


def _answer(frame: Buffer) -> bytes:
    header = decode_request_header(frame)[0]
    key, version = header.api_key, header.api_version
    response = (
        ApiVersionsResponse(api_keys=OFFER) if key == ApiKey.API_VERSIONS else MetadataResponse()
    )
    head = encode_response_header(key, version, header.correlation_id)
    return b"".join(encode_frame([head, *encode_response(response, version)]))


@pytest.fixture
def broker() -> Iterator[ClosingBroker]:
    made = ClosingBroker()
    yield made
    made.close()


@pytest.mark.parametrize("answers", [1, 2])
def test_a_broker_that_closes_at_the_first_request_may_want_a_user(
    broker: ClosingBroker, answers: int
) -> None:
    broker.start(answers)
    connection = BlockingConnection("127.0.0.1", broker.port, ClusterOptions(bootstrap=()), None)
    run(connection.greet())
    for _ in range(answers - 1):
        run(connection.call(MetadataRequest()))
    with pytest.raises(BrokerUnreachable) as failed:
        run(connection.call(MetadataRequest()))
    assert "the broker closed the connection" in str(failed.value)
    assert ("want a user" in str(failed.value)) is (answers == 1)
    assert not connection.is_open
