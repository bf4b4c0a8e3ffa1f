"""Addresses as Kafka writes them: `NAME://HOST:PORT`, in lists, with a map of names to protocols.

An empty or `0.0.0.0` host in `listeners` means all interfaces; the address for clients is then the
host name, which the broker looks up (`broker.node`). IPv6 hosts are in brackets.
"""

import ipaddress
import re
from collections.abc import Mapping

from config.model import Listener
from config.values import InvalidValue, Value

_LISTENER = re.compile(
    r"^(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d+)$"
)
_ADDRESS = re.compile(r"^(?P<host>\[[^\]]*\]|[^:/]*):(?P<port>\d+)$")
METRICS = "METRICS"
"""The name of the metrics port among the listeners, for the settings `listener.name.metrics.*`."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def parse_protocol_map(value: Value) -> tuple[tuple[str, str], ...]:
    """(listener name, security protocol) pairs from a list of `NAME:PROTOCOL`.

    Raises:
        InvalidValue: not of that form.
    """
    pairs = []
    for item in value if isinstance(value, tuple) else ():
        name, colon, protocol = item.partition(":")
        if not colon or not name or not protocol:
            raise InvalidValue(f"{item!r} is not NAME:PROTOCOL")
        pairs.append((name.upper(), protocol.upper()))
    return tuple(pairs)


def parse_listeners(value: Value, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners of a list, in its order.

    Raises:
        InvalidValue: an entry that is not a listener, a name or a fixed port used twice, or an
            unsupported protocol.
    """
    listeners: list[Listener] = []
    for item in value if isinstance(value, tuple) else ():
        match = _LISTENER.match(item)
        if match is None:
            raise InvalidValue(f"{item!r} is not NAME://HOST:PORT")
        name = match["name"].upper()
        protocol = protocols.get(name, name)
        if protocol not in PROTOCOLS:
            raise InvalidValue(
                f"listener {name} has the protocol {protocol}; map its name to one of "
                f"{', '.join(PROTOCOLS)} in listener.security.protocol.map"
            )
        if any(name == other.name for other in listeners):
            raise InvalidValue(f"listener name {name} stands twice")
        listeners.append(
            Listener(
                name=name,
                host=match["host"].strip("[]"),
                port=_port(match["port"]),
                protocol=protocol,
            )
        )
    return tuple(listeners)


def parse_address(value: Value, protocol: str) -> Listener | None:
    """The address `HOST:PORT` of the metrics port, or None for an empty text.

    Raises:
        InvalidValue: not of that form.
    """
    text = str(value)
    if not text:
        return None
    match = _ADDRESS.match(text)
    if match is None:
        raise InvalidValue(f"{text!r} is not HOST:PORT")
    return Listener(
        name=METRICS,
        host=match["host"].strip("[]"),
        port=_port(match["port"]),
        protocol=protocol,
    )


def canonical_address(text: str) -> str:
    """An address as the broker writes those of clients: IPv4 as such, also when IPv6 carries it.

    The zone of a link-local address (`%eth0`) is left out, as it is of clients' addresses: Kafka
    compares addresses without it, too (Java's `Inet6Address.equals`).

    Raises:
        ValueError: this is no address.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        address = ipaddress.IPv6Address(int(address))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def parse_limits(items: tuple[str, ...]) -> dict[str, int]:
    """Numbers by address, from items of the form `ADDRESS:NUMBER`.

    Raises:
        InvalidValue: one is not of that form.
    """
    limits = {}
    for item in items:
        host, _, number = item.rpartition(":")
        try:
            address = canonical_address(host.strip().removeprefix("[").removesuffix("]"))
            limit = int(number)
        except ValueError:
            raise InvalidValue(f"{item!r} is not ADDRESS:NUMBER") from None
        if limit < 0:
            raise InvalidValue(f"{item!r} is below 0")
        limits[address] = limit
    return limits


def complaint_about_limits(value: Value) -> str | None:
    """Why a setting has no limits by address, or None."""
    try:
        parse_limits(value if isinstance(value, tuple) else ())
    except InvalidValue as error:
        return str(error)
    return None


def _port(text: str) -> int:
    port = int(text)
    if port > 65535:
        raise InvalidValue(f"port {port} is above 65535")
    return port
