"""The recorder reads requests however the network cuts them."""

import socket

import pytest

from tests.compat.recorder import Recorder, _note

pytestmark = pytest.mark.core

REQUESTS = b"".join(
    (len(body) + 4).to_bytes(4, "big") + key.to_bytes(2, "big") + version.to_bytes(2, "big") + body
    for key, version, body in ((18, 3, b"x" * 20), (0, 9, b"y" * 300), (3, 13, b""), (1, 17, b"z"))
)
SENT = {(18, 3), (0, 9), (3, 13), (1, 17)}


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 8, 9, 30, 31, len(REQUESTS)])
def test_requests_are_read_from_pieces_of_any_size(step: int) -> None:
    head, left = bytearray(), 0
    seen: set[tuple[int, int]] = set()
    for start in range(0, len(REQUESTS), step):
        left = _note(REQUESTS[start : start + step], head, left, seen)
    assert (seen, left, len(head)) == (SENT, 0, 0)


def test_connections_belong_to_the_client_that_runs_and_pass_unchanged() -> None:
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        recorder.serve(f"127.0.0.1:{broker.getsockname()[1]}")
        host, _, port = recorder.address.partition(":")
        for client in ("mine", ""):
            with recorder.attributing(client):
                near = socket.create_connection((host, int(port)), 10)
                far, _ = broker.accept()
                with near, far, far.makefile("rb") as received:
                    near.sendall(REQUESTS)
                    assert received.read(len(REQUESTS)) == REQUESTS
                    far.sendall(b"answer")
                    assert near.recv(6, socket.MSG_WAITALL) == b"answer"
    assert dict(recorder.versions) == {"mine": SENT}
