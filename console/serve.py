"""Run the console: bind, start, print the URL, serve until SIGTERM or Ctrl-C."""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn

from client.types import format_address
from console.options import ConsoleOptions
from console.web.app import build
from console.web.stalled import BoundedProtocol

_STOP_S = 2


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at the address.

    Raises:
        OSError: the address is not of this machine, or in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


def local_hosts(host: str, port: int) -> frozenset[str]:
    """What the Host header of a browser on this machine may be."""
    names = ("127.0.0.1", "localhost", "::1", host)
    return frozenset(format_address(name, port) for name in names)


class _Server(uvicorn.Server):
    """Says when it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def serve(options: ConsoleOptions, bound: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve on a bound socket until the process is to end; `on_ready` gets the URL."""
    host, port = bound.getsockname()[:2]
    hosts = options.allowed_hosts | local_hosts(host, port)
    config = uvicorn.Config(
        build(replace(options, allowed_hosts=hosts)),
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=64 * 1024,
    )
    url = f"http://{format_address(host, port)}/"
    _Server(config, lambda: on_ready(url)).run(sockets=[bound])
