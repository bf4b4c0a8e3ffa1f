"""Requests to a broker's metrics port: lookups explained, the settable clock, retention.

Kafka's protocol has no such requests, so they go to the HTTP port that also serves the metrics.
This module owns the requests only and passes the broker's answers on unchanged.
"""

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

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
    path = f"/explain?topic={quote(topic)}&partition={partition}&at={timestamp_ms}"
    return _decode(await _request(metrics_url, f"GET {path}"))


async def forecast_retention(
    metrics_url: str, topic: str, settings: Mapping[str, str], partition: int | None = None
) -> dict[str, Any]:
    """When retention deletes each segment of a topic, as if `settings` were the topic's.

    Keys as of the broker's /retention. Raises as `explain_lookup`.
    """
    asked: dict[str, str] = {"topic": topic, **settings}
    if partition is not None:
        asked["partition"] = str(partition)
    return _decode(await _request(metrics_url, f"GET /retention?{urlencode(asked)}"))


async def audit_times(
    metrics_url: str, topic: str, size_bytes: int, partition: int | None = None
) -> dict[str, Any]:
    """How disordered the newest `size_bytes` of a topic are, and which producers are off.

    Keys as of the broker's /skew. Raises as `explain_lookup`.
    """
    asked: dict[str, object] = {"topic": topic, "bytes": size_bytes}
    if partition is not None:
        asked["partition"] = partition
    return _decode(await _request(metrics_url, f"GET /skew?{urlencode(asked)}"))


async def request_clock(metrics_url: str, changes: Mapping[str, float]) -> dict[str, Any]:
    """Apply `changes` to the broker's settable clock, none to read it; the clock's answer.

    The changes and the answer's keys are those of the broker's /clock.

    Raises:
        BrokerUnreachable: no answer from there.
        InvalidUse: the broker refused a change; the message gives the reason.
        UnsupportedByBroker: its clock cannot be set.
    """
    line = f"POST /clock?{urlencode(changes)}" if changes else "GET /clock"
    answer = await _request(metrics_url, line, "X-Tidelog-Clock: set\r\n")
    if answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405")):
        raise UnsupportedByBroker(
            "the broker's clock cannot be set: start it with tidelog serve --clock settable"
        )
    return _decode(answer)


async def _request(metrics_url: str, line: str, headers: str = "") -> bytes:
    """The answer, head and body, to a request without a body; `line` is method and target."""
    url = urlsplit(metrics_url if "//" in metrics_url else f"//{metrics_url}")
    if url.hostname is None or url.port is None:
        raise InvalidUse(f"{metrics_url} is no address of a metrics port: write host:port")
    host = format_address(url.hostname, url.port)
    request = f"{line} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n"
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
    return answer


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
