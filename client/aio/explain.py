"""Requests to a broker's metrics port: lookups explained, counts by time, the settable clock.

Kafka's protocol has no such requests, so they go to the HTTP port that also serves the metrics.
This module owns the requests only and passes the broker's answers on unchanged, but for pages that
add up.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from client.core.options import NOT_SECURED, Security
from client.core.tls import basic_authorization, tls_context
from client.errors import BrokerUnreachable, InvalidUse, UnsupportedByBroker
from client.types import format_address

if TYPE_CHECKING:
    import h11

TIMEOUT_S: Final = 30.0

_PAGE: Final = 1000
"""Partitions that are counted by one answer of /histogram."""

_COUNTED: Final = (
    "before", "after", "without_time", "records", "markers", "missing_segments", "missing_bytes",
    "bytes_read",
)  # fmt: skip
"""What the pages of an answer of /histogram add up."""

_LAG_IN_SECONDS: Final = "tidelog_group_lag_seconds"

ANSWER_BYTES_MAX: Final = 256 << 20
"""More than the metrics of 100,000 partitions; a longer answer is another server's."""

_READ_BYTES: Final = 64 << 10

_NO_METRICS_PORT: Final = "what answered there is no Tidelog metrics port"

_NOT_SERVED: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


class GroupLag(NamedTuple):
    """How far a group is behind in a partition.

    Attributes:
        seconds: the age of the first record that it has not committed, None while unknown.
        slope: by how many seconds that grows per second, None while unknown.
    """

    seconds: float | None
    slope: float | None


class MetricsPort(NamedTuple):
    """The metrics port of a broker: `url` is `http://HOST:PORT` or `https://HOST:PORT`.

    The user of `security` is named there, in clear on loopback only.
    """

    url: str
    security: Security = NOT_SECURED

    async def document(self, path: str, asked: Mapping[str, object]) -> dict[str, Any]:
        """The JSON document of a path of the metrics port, such as ``/explain``.

        Raises:
            BrokerUnreachable: no answer from there.
            InvalidUse: the broker refused the request; the message gives the reason.
            UnsupportedByBroker: the server that answered is no metrics port.
        """
        return _decode(*await self._request("GET", f"{path}?{urlencode(asked)}"))

    async def group_lags(self, group_id: str) -> dict[tuple[str, int], GroupLag]:
        """How far a group is behind in time, by topic and partition. Raises as `document`."""
        lines = await self._exposition(_LAG_IN_SECONDS)
        # Imported here: it costs 50 ms, and few programs ask for this.
        from prometheus_client.parser import text_string_to_metric_families

        text = "\n".join(lines)
        found: dict[tuple[str, int], dict[str, float]] = {}
        for family in text_string_to_metric_families(f"{text}\n"):
            for sample in family.samples:
                if sample.labels["group"] == group_id:
                    place = (sample.labels["topic"], int(sample.labels["partition"]))
                    found.setdefault(place, {})[sample.name] = sample.value
        return {
            place: GroupLag(figures.get(_LAG_IN_SECONDS), figures.get(f"{_LAG_IN_SECONDS}_slope"))
            for place, figures in found.items()
        }

    async def metrics(self, names: Sequence[str]) -> dict[str, float]:
        """Metrics without labels, by name; missing ones are left out. Raises as `document`."""
        lines = await self._exposition(tuple(f"{name} " for name in names))
        return {name: float(value) for name, value in (line.split(" ") for line in lines)}

    async def clock(self, changes: Mapping[str, float]) -> dict[str, Any]:
        """Apply `changes` to the broker's settable clock, none to read it; the clock's answer.

        The changes and the answer's keys are those of the broker's /clock.

        Raises:
            BrokerUnreachable: no answer from there.
            InvalidUse: the broker refused a change; the message gives the reason.
            UnsupportedByBroker: its clock cannot be set.
        """
        method, target = ("POST", f"/clock?{urlencode(changes)}") if changes else ("GET", "/clock")
        answer = await self._request(method, target, ("X-Tidelog-Clock", "set"))
        if answer[0] in _NOT_SERVED:
            raise UnsupportedByBroker(
                "the broker's clock cannot be set: start it with tidelog serve --clock settable"
            )
        return _decode(*answer)

    async def standby(self, *, promotes: bool = False) -> dict[str, Any]:
        """The state of a standby; with `promotes` it first takes its bucket over.

        Raises:
            BrokerUnreachable: no answer from there.
            InvalidUse: it could not take the bucket over.
            UnsupportedByBroker: it is no standby.
        """
        method, target = ("POST", "/standby?promote") if promotes else ("GET", "/standby")
        answer = await self._request(method, target, ("X-Tidelog-Command", "promote"))
        if answer[0] in _NOT_SERVED:
            raise UnsupportedByBroker("the broker is no standby: see tidelog serve --standby")
        return _decode(*answer)

    async def _exposition(self, beginnings: str | tuple[str, ...]) -> list[str]:
        """The lines of /metrics that begin so."""
        status, body = await self._request("GET", "/metrics")
        if status != HTTPStatus.OK:
            raise InvalidUse(f"the metrics port refused: {body.decode(errors='replace').strip()}")
        return [line for line in body.decode().split("\n") if line.startswith(beginnings)]

    async def _request(
        self, method: str, target: str, *headers: tuple[str, str]
    ) -> tuple[int, bytes]:
        """The status and the body that answer a request without a body."""
        host, port, tls = parse_metrics_url(self.url)
        address = format_address(host, port)
        sent = [("Host", address), ("Connection", "close"), *headers]
        authorization = basic_authorization(self.security, host, tls=tls)
        if authorization is not None:
            sent.append(("Authorization", authorization))
        context = tls_context(replace(self.security, tls=True)) if tls else None
        # Imported here: few programs ask this port.
        import h11

        connection = h11.Connection(our_role=h11.CLIENT)
        request = connection.send(h11.Request(method=method, target=target, headers=sent)) or b""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                try:
                    writer.write(request + (connection.send(h11.EndOfMessage()) or b""))
                    return await _receive(connection, reader)
                finally:
                    writer.close()
        except h11.RemoteProtocolError:
            raise UnsupportedByBroker(_NO_METRICS_PORT) from None
        except (OSError, TimeoutError) as error:
            raise BrokerUnreachable(
                f"no metrics port answered at {address}: {error}", broker=address
            ) from error


async def count_by_time(
    ask: Callable[[Mapping[str, object]], Awaitable[dict[str, Any]]], asked: Mapping[str, object]
) -> dict[str, Any]:
    """All pages of an answer of /histogram as one document, in bars of the widest page.

    `ask` asks the metrics port; what is asked with None is left out. Raises what `ask` raises.
    """
    pages = await _count_pages(ask, asked)
    if len(pages) > 1:
        # Each page has the bars of its own partitions; now all get the same.
        filled = [page for page in pages if page["buckets"]] or pages
        span = {
            "from": min(page["from_ms"] for page in filled),
            "to": max(page["to_ms"] for page in filled),
        }
        given = {name: value for name, value in asked.items() if value is not None}
        pages = await _count_pages(ask, span | given)
    return join_counts(pages)


async def _count_pages(
    ask: Callable[[Mapping[str, object]], Awaitable[dict[str, Any]]], asked: Mapping[str, object]
) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    while not pages or pages[-1]["next"] is not None:
        after = pages[-1]["next"] if pages else None
        pages.append(await ask({"limit": _PAGE, **asked, "after": after}))
    return pages


def join_counts(pages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several documents of /histogram."""
    first, *others = pages
    if not others:
        return first
    width_ms = max(page["width_ms"] for page in pages)
    bars: dict[int, int] = {}
    for page in pages:
        for start, count in page["buckets"]:
            start -= start % width_ms
            bars[start] = bars.get(start, 0) + count
    start_ms, end_ms = min(page["from_ms"] for page in pages), max(page["to_ms"] for page in pages)
    lists = [name for name, value in first.items() if isinstance(value, list)]
    return {
        **first,
        **{name: sum(page[name] for page in pages) for name in _COUNTED},
        **{name: [one for page in pages for one in page[name]] for name in lists},
        "from_ms": start_ms - start_ms % width_ms,
        "to_ms": end_ms + -end_ms % width_ms,
        "width_ms": width_ms,
        "wanted_width_ms": max(page["wanted_width_ms"] for page in pages),
        "buckets": [list(bar) for bar in sorted(bars.items())],
        "is_complete": all(page["is_complete"] for page in pages),
        "next": None,
    }


def parse_metrics_url(text: str) -> tuple[str, int, bool]:
    """(host, port, whether over TLS) of the address of a metrics port.

    Raises:
        InvalidUse: it is none.
    """
    try:
        url = urlsplit(text if "//" in text else f"//{text}")
        host, port = url.hostname, url.port
    except ValueError:
        host = port = None
    if not host or not port or not text.isascii() or url.scheme not in ("", "http", "https"):
        raise InvalidUse(
            f"{text[:80]} is no address of a metrics port: write HOST:PORT or https://HOST:PORT, "
            "with a port from 1 to 65535"
        )
    return host, port, url.scheme == "https"


async def _receive(connection: "h11.Connection", reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next response; raises `h11.RemoteProtocolError` if these bytes are none."""
    import h11

    status, body = 0, bytearray()
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection was closed before an answer")
        if len(body) > ANSWER_BYTES_MAX:
            raise h11.RemoteProtocolError("the answer is too long")
    return status, bytes(body)


def _decode(status: int, body: bytes) -> dict[str, Any]:
    if status == HTTPStatus.UNAUTHORIZED:
        raise InvalidUse(
            "the metrics port asks who you are: give a user and a password that it knows, and "
            "https or an address on this machine"
        )
    try:
        document: dict[str, Any] = json.loads(body)
    except ValueError:
        raise UnsupportedByBroker(_NO_METRICS_PORT) from None
    if status != HTTPStatus.OK:
        raise InvalidUse(str(document.get("error", "the question was refused")))
    return document
