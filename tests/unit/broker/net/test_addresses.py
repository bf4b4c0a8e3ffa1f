"""Sockets of listeners."""

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from broker.net.addresses import bound_metrics_socket, bound_socket
from config import ConfigErrors, Listener, load


def test_a_host_of_ascii_is_bound_without_the_codec_of_international_names() -> None:
    """The codec and its tables of Unicode are a hundredth of a start's CPU."""
    probe = (
        "import sys\n"
        "from broker.net.addresses import bound_socket\n"
        "from config import Listener\n"
        "for host in ('127.0.0.1', 'localhost', ''):\n"
        "    bound_socket(Listener(name='A', host=host, port=0)).close()\n"
        "print({'encodings.idna', 'unicodedata'} & {*sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_empty_host_is_every_interface() -> None:
    with bound_socket(Listener(name="A", host="", port=0)) as bound:
        assert bound.getsockname()[0] in {"0.0.0.0", "::"}


def test_the_default_metrics_port_listens_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two brokers that start together: the second one sees that the port is taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listener = Listener(name="METRICS", host="127.0.0.1", port=port)
    config = replace(load(), metrics_listener=listener)
    first, second = (bound_metrics_socket(config) for _ in range(2))
    assert first is not None
    assert second is not None
    with first, second:
        assert first.getsockname()[1] == port != second.getsockname()[1]
    assert f"metrics port {port} is taken" in caplog.text


@pytest.mark.parametrize("size", [20_000, 200_000])  # Linux allows 212,992 by default
def test_accepted_connections_have_the_buffers_of_the_settings(size: int) -> None:
    config = load(
        command_line={"socket.send.buffer.bytes": f"{size}", "socket.receive.buffer.bytes": "-1"}
    )
    local = Listener(name="PLAINTEXT", host="127.0.0.1", port=0)
    with bound_socket(local, config) as sized, bound_socket(local, load()) as unsized:
        found = []
        for bound in (sized, unsized):
            bound.listen()
            with socket.create_connection(bound.getsockname()):
                bound.setblocking(True)
                accepted, _ = bound.accept()
                with accepted:
                    found.append(
                        tuple(
                            accepted.getsockopt(socket.SOL_SOCKET, option)
                            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
                        )
                    )
    assert found[0][0] == 2 * size, "Linux doubles it"
    assert found[0][1] == found[1][1], "the kernel's"


@pytest.mark.parametrize("key", ["socket.send.buffer.bytes", "socket.receive.buffer.bytes"])
def test_a_buffer_of_no_bytes_is_refused(key: str) -> None:
    assert load(command_line={key: "-1"})
    with pytest.raises(ConfigErrors, match="use -1 to let the kernel size it, or at least 1"):
        load(command_line={key: "0"})
