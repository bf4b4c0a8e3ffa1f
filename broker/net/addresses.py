"""Addresses of listeners: the sockets bound to them, and why one cannot be had."""

import errno
import socket

from broker.errors import AddressUnavailable
from config import Listener


def bound_socket(listener: Listener) -> socket.socket:
    """A socket bound to the address of `listener`; it does not listen yet. Raises OSError."""
    host = listener.host or None
    infos = socket.getaddrinfo(
        host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    # An empty host means every interface; a dual-stack socket, if available, covers both families.
    family, kind, protocol, _, address = infos[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError:
        bound.close()
        raise
    return bound


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
