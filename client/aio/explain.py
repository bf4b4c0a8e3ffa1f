"""The explanation of a lookup by time, from a broker's metrics port.

Kafka's protocol has no such request, so this goes to the HTTP port that also serves the metrics. It
owns the request only and passes the broker's answer on unchanged.
"""

import asyncio
import ipaddress
import json
from typing import Any, Final
from urllib.parse import quote, urlsplit

from client.errors import BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.types import format_address

SETTING: Final = "metrics.listener"
"""The broker setting that names the port."""

TIMEOUT_S: Final = 30.0

_ANY_HOST: Final = ("", "0.0.0.0", "::")


async def explain_lookup(
    metrics_url: str, topic: str, partition: int, timestamp_ms: int
) -> dict[str, Any]:
    """The steps of the lookup of `timestamp_ms`: segments, index entries, bytes, the neighbours.

    `metrics_url` is `http://host:port` of the broker's metrics port. The keys are those of the
    broker's `LookupExplanation`; times are ms, `found`, `before` and `after` are None or have
    `timestamp`, `offset` and `leader_epoch`.

    Raises:
        BrokerUnreachable: no answer from there.
        InvalidUse: the broker refused the request; the message gives the reason.
        UnsupportedByBroker: the server that answered explains no lookups.
    """
    url = urlsplit(metrics_url if "//" in metrics_url else f"//{metrics_url}")
    if url.hostname is None or url.port is None:
        raise InvalidUse(f"{metrics_url} is no address of a metrics port: write host:port")
    path = f"/explain?topic={quote(topic)}&partition={partition}&at={timestamp_ms}"
    request = f"GET {path} HTTP/1.1\r\nHost: {url.hostname}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            try:
                writer.write(request.encode("ascii"))
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise BrokerUnreachable(
            f"no metrics port answered at {url.hostname}:{url.port}: {error}",
            broker=f"{url.hostname}:{url.port}",
        ) from error
    return _decode(answer)


def metrics_address(listener: str | None, broker_host: str) -> str:
    """Where the metrics port of a broker is reached, from its setting and its advertised host.

    Raises:
        UnsupportedByBroker: it has none, or none that can be reached from other machines.
    """
    if not listener:
        raise UnsupportedByBroker(
            f"the broker at {broker_host} has no metrics port, which explains lookups "
            f"(it is no Tidelog, or its {SETTING} is empty)"
        )
    url = urlsplit(f"//{listener}")
    host = url.hostname or ""
    if host in _ANY_HOST:
        host = broker_host
    elif _is_loopback(host) and not _is_loopback(broker_host):
        raise UnsupportedByBroker(
            f"the metrics port of {broker_host} listens on {listener}, for that machine only: "
            f"ask there, or set {SETTING} to an address that others reach"
        )
    return format_address(host, url.port or 0)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _decode(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        document: dict[str, Any] = json.loads(body)
    except ValueError:
        raise UnsupportedByBroker("what answered there is no Tidelog metrics port") from None
    if not head.startswith(b"HTTP/1.1 200"):
        raise InvalidUse(str(document.get("error", "the question was refused")))
    return document
