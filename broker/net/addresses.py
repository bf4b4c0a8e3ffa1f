"""Addresses of listeners: their sockets, why one cannot be had, and what a start announces."""

import errno
import logging
import socket
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from broker.errors import AddressUnavailable
from config import BrokerConfig, Listener
from values.dataclasses import dataclass

logger = logging.getLogger("tidelog.broker.net.addresses")

ANY_HOST = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyInfo:
    """The identity of a started broker; host and port are those of the first listener."""

    host: str
    port: int
    metrics_port: int | None
    node_id: int
    cluster_id: str
    data_dir: str
    ports: Mapping[str, int] = field(default_factory=dict)
    """The ports taken, by listener name."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """The address (HOST:PORT) that the clients of each listener get, by listener name."""

    workers: "tuple[ReadyInfo, ...]" = ()
    """The workers beside the first, if there are several."""


def bound_socket(
    listener: Listener, config: BrokerConfig | None = None, *, listens: bool = False
) -> socket.socket:
    """A socket bound to the address of `listener`, which may listen already. Raises OSError.

    With `config` its connections get the buffers that socket.*.buffer.bytes say.
    """
    name = listener.host
    # A text would load the codec of international names, with all tables of Unicode.
    host = name.encode("ascii") if name.isascii() else name
    infos = socket.getaddrinfo(
        host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # An empty host means every interface; a dual-stack socket, if available, covers both families.
    family, kind, protocol, _, address = infos[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if config is not None:
            _size_buffers(bound, config)
        if listens:
            bound.listen()
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


def address_for_clients(
    listener: Listener, bound: socket.socket, config: BrokerConfig
) -> tuple[str, int]:
    """What clients of `listener` get: its advertised address, else the bound one.

    A listener on every interface has no host of its own; the name of the machine stands for it.
    """
    host, port = listener.host, int(bound.getsockname()[1])
    for advertised in config.advertised_listeners:
        if advertised.name == listener.name:
            host, port = advertised.host, advertised.port or port
    return (socket.gethostname() if host in ANY_HOST else host), port


def addresses_for_clients(
    sockets: Iterable[tuple[Listener, socket.socket]], config: BrokerConfig
) -> dict[str, str]:
    """HOST:PORT that clients of each listener get, by listener name."""
    found = {}
    for listener, bound in sockets:
        host, port = address_for_clients(listener, bound, config)
        found[listener.name] = replace(listener, host=host, port=port).address
    return found


def _size_buffers(bound: socket.socket, config: BrokerConfig) -> None:
    # Before `listen`, which fixes the scale of TCP's windows.
    for option, size in (
        (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
    ):
        if size != -1:
            bound.setsockopt(socket.SOL_SOCKET, option, size)


def address_error(listener: Listener, error: OSError) -> AddressUnavailable:
    """The error for an address that is not available."""
    where = f"{listener.host or '*'}:{listener.port}"
    if isinstance(error, socket.gaierror):
        return AddressUnavailable(f"{where}: the host name is unknown", "correct it")
    if error.errno == errno.EADDRINUSE:
        return AddressUnavailable(
            f"{where} is taken by another process",
            "stop that process, or choose another port (port 0 picks a free one)",
        )
    if error.errno == errno.EACCES:
        return AddressUnavailable(
            f"{where} may not be opened by this user", "use a port above 1023"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressUnavailable(f"{where} is not an address of this machine", "correct the host")
    return AddressUnavailable(f"{where} cannot be opened ({error.strerror})", "choose another")


def bound_metrics_socket(config: BrokerConfig) -> socket.socket | None:
    """The listening socket of the metrics port; None when no port is configured.

    A port that is taken is replaced by a free one, unless it was configured. It listens at once:
    several sockets may be bound to a port of which none listens, and all but one fail later.

    Raises:
        AddressUnavailable: it cannot be used.
    """
    listener = config.metrics_listener
    if listener is None:
        return None
    try:
        bound = bound_socket(listener, listens=True)
    except OSError as error:
        if config.is_set("metrics.listener") or error.errno != errno.EADDRINUSE:
            raise address_error(listener, error) from error
        bound = bound_socket(replace(listener, port=0), listens=True)
        logger.warning(
            "metrics port %d is taken; serving metrics on port %d",
            listener.port,
            bound.getsockname()[1],
        )
    return bound
