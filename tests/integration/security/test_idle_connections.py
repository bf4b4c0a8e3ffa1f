"""What a connection costs that does nothing: bounded, so that idle clients do not fill the memory.

`IDLE_CONNECTIONS=10000` opens that many in clear, and a fifth of them over TLS.
"""

import os
import resource
import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker import broker_process
from tests.support.certificates import authority, signed

COUNT = int(os.environ.get("IDLE_CONNECTIONS", "1000"))
WARM_UP = 100
"""Connections that are not counted: with them the process has what all of them share."""


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def settled_bytes(pid: int) -> int:
    """The memory of a process whose warm-up after the first client is over."""
    size = resident_bytes(pid)
    while True:
        time.sleep(0.5)
        if (now := resident_bytes(pid)) == size:
            return size
        size = now


@pytest.mark.parametrize(
    ("protocol", "count", "bytes_max"),
    [("PLAINTEXT", COUNT, 8 << 10), ("SSL", COUNT // 5, 40 << 10)],
)
def test_an_idle_connection_costs_few_bytes(
    protocol: str, count: int, bytes_max: int, tmp_path: Path
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signer = authority(tmp_path)
    settings = {
        "listeners": f"{protocol}://127.0.0.1:0",
        "ssl.keystore.location": str(signed(tmp_path, signer, "server")),
        "max.connections": "30000",
        "max.connections.per.ip": "30000",
    }
    context = ssl.create_default_context(cafile=str(signer))
    context.check_hostname = False
    with ExitStack() as stack:
        broker = stack.enter_context(broker_process(tmp_path / "data", **settings))

        def connect() -> None:
            client = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
            if protocol == "SSL":
                client = context.wrap_socket(client)
                # The end of the handshake, and the broker has taken the connection.
                client.settimeout(None)
            stack.callback(client.close)

        for _ in range(WARM_UP):
            connect()
        before = settled_bytes(broker.process.pid)
        for _ in range(count):
            connect()
        each = (resident_bytes(broker.process.pid) - before) / count
        print(f"{protocol}: {each:,.0f} bytes for each of {count} idle connections")
        assert each <= bytes_max
