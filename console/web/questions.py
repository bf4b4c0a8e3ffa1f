"""What a request asks, read from its address and body; refusals name the field and the cure."""

import asyncio
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request

from client.errors import InvalidTime, InvalidUse
from client.times import UTC, format_time, parse_time
from client.types import TopicPartition
from console.data.groups import LagWatch
from console.data.hub import Hub
from console.data.registry import Registry

_PARTITIONS_MAX = 1000


def search_of(request: Request) -> asyncio.Lock:
    """What a search by content holds while it reads a page: there is one at a time for a user."""
    searches, user = request.app.state.searches, request.state.user
    lock: asyncio.Lock | None = searches.get(user)
    if lock is None:
        lock = searches[user] = asyncio.Lock()
    return lock


def hub_of(request: Request) -> Hub:
    """The client of the cluster."""
    hub: Hub = request.app.state.hub
    return hub


def watch_of(request: Request) -> LagWatch:
    """The samples of groups' lag."""
    watch: LagWatch = request.app.state.watch
    return watch


def registry_of(request: Request) -> Registry:
    """The schema registry."""
    registry: Registry = request.app.state.registry
    return registry


def text_of(request: Request, name: str, default: str = "") -> str:
    """A parameter of the address."""
    return request.query_params.get(name, default)


def number_of(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number of the address, from `low` to `high`.

    Raises:
        InvalidUse: it is none, or out of range.
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise InvalidUse(f"{name}={text[:40]} is out of range: give {low} to {high}")
    return int(text)


def zone_of(request: Request) -> tzinfo:
    """The zone in which the page shows times; it is UTC unless ``tz`` names another.

    Raises:
        InvalidUse: this machine knows no such zone.
    """
    name = request.query_params.get("tz", "UTC")
    if name.upper() in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidUse(f"tz={name[:60]} is no time zone that this machine knows") from None


async def time_of(request: Request, name: str) -> int | None:
    """A time of the address in ms, in any form of `client.times`; None where it is left out.

    Raises:
        InvalidTime: it is none, or in the wrong unit.
    """
    text = request.query_params.get(name, "")
    if not text:
        return None
    now_ms = await hub_of(request).now_ms()
    try:
        return parse_time(text, now_ms=now_ms, zone=zone_of(request))
    except InvalidTime as error:
        raise InvalidTime(f"{name}: {error}") from None


async def span_of(request: Request) -> tuple[int | None, int | None]:
    """The times ``from`` and ``to`` of the address in ms; None where one is left out.

    Raises:
        InvalidTime: one is none, or they are in the wrong order.
    """
    from_ms, to_ms = await time_of(request, "from"), await time_of(request, "to")
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        zone = zone_of(request)
        raise InvalidTime(
            f"to={format_time(to_ms, zone)} is not after from={format_time(from_ms, zone)}, so "
            "there is nothing in between: give the earlier time first"
        )
    return from_ms, to_ms


def partitions_of(request: Request) -> frozenset[int] | None:
    """The chosen partitions, such as ``p=0-3,7``; None for all.

    Raises:
        InvalidUse: they are no numbers.
    """
    text = request.query_params.get("p", "")
    if not text:
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        is_number = all(word.isascii() and word.isdigit() and len(word) < 10 for word in (low,))
        if not is_number or (dash and not (high.isascii() and high.isdigit() and len(high) < 10)):
            raise InvalidUse(f"p={text[:40]} names no partitions: write for example 0-3,7")
        last = int(high) if dash else int(low)
        if not int(low) <= last < int(low) + _PARTITIONS_MAX or len(chosen) > _PARTITIONS_MAX:
            raise InvalidUse(f"p={text[:40]} is out of range: choose {_PARTITIONS_MAX} or less")
        chosen.update(range(int(low), last + 1))
    return frozenset(chosen)


def cursor_of(request: Request) -> dict[int, int] | None:
    """Where a page continues, such as ``0:120,1:88``; None for a first page.

    Raises:
        InvalidUse: it is no cursor.
    """
    return parse_cursor(request.query_params.get("cursor", ""))


def parse_cursor(text: str) -> dict[int, int] | None:
    """As `cursor_of`."""
    if not text:
        return None
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise InvalidUse(f"cursor={text[:40]} is none: ask for the first page") from None


def partition_of(request: Request) -> TopicPartition:
    """The one partition of the address."""
    topic = request.path_params["topic"]
    return TopicPartition(topic, number_of(request, "partition", 0, 0, 2**31 - 1))


async def body_of(request: Request, *names: str) -> dict[str, Any]:
    """The JSON object of a change; all `names` have to be there.

    Raises:
        InvalidUse: it is no object, or lacks a field.
    """
    try:
        document = await request.json()
    except (ValueError, RecursionError):
        raise InvalidUse("the body is no JSON") from None
    if not isinstance(document, dict):
        raise InvalidUse("the body is no JSON object")
    missing = [name for name in names if name not in document]
    if missing:
        raise InvalidUse(f"the body lacks {', '.join(missing)}")
    return document
