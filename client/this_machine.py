"""Which hosts are this machine: a metrics port on loopback is reached from here alone."""

from contextlib import suppress
from socket import SOCK_DGRAM, getaddrinfo, socket


def is_here(host: str) -> bool:
    """Whether a name or an address is one of this machine: only then can a socket be bound to it.

    Looks the name up, which the client has done a moment ago to connect to it.
    """
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in getaddrinfo(host, 0, type=SOCK_DGRAM):
            with suppress(OSError), socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
    return False
