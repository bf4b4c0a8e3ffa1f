"""The questions that change something; with ``--read-only`` none of these addresses exists.

Every change, also a refused one, is a line of the audit log: who, what, where, and the result.
"""

import base64
import binascii
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from client.errors import ClientError, InvalidTime, InvalidUse
from client.times import parse_time, to_ms
from client.types import TopicPartition
from console.data.copying import Target, copy_page
from console.data.deletion import delete_previewed, preview_deletion
from console.data.groups import TARGETS, commit_reset, preview_reset
from console.data.records import LIMIT_MAX
from console.web import questions as ask
from console.web.answers import answer
from console.web.audit import write_change
from console.web.names import GROUP
from console.web.reading import window_of

POSITIONS_MAX: Final = 10_000
CHANGES_MAX: Final = 100

_ENCODINGS: Final[dict[str, Callable[[str], bytes]]] = {
    "text": str.encode,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}

Change = Callable[[Request], Awaitable[tuple[str, dict[str, Any]]]]
"""Does it, and returns what was changed, for the audit log, and the answer."""


def audited(name: str, change: Change) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that writes a line for each change."""

    async def endpoint(request: Request) -> Response:
        target = request.url.path
        result = "failed"
        try:
            target, document = await change(request)
            result = "done"
            return answer(document)
        except ClientError as error:
            result = f"refused: {error}"
            raise
        finally:
            write_change(name, request.scope, target, result)

    return endpoint


async def _reset_preview(request: Request) -> Response:
    """Where a group would go; the positions of the answer are what a reset sends back."""
    body = await ask.body_of(request, "to")
    hub, group = ask.hub_of(request), request.path_params["group"]
    topics = body.get("topics") or []
    if not isinstance(topics, list) or not all(isinstance(name, str) for name in topics):
        raise InvalidUse("topics is a list of names")
    target = TARGETS.get(str(body["to"]))
    if target is None:
        now_ms = await hub.now_ms()
        target = parse_time(str(body["to"]), now_ms=now_ms, zone=ask.zone_of(request))
    return answer(await preview_reset(hub, group, target, topics))


async def _reset(request: Request) -> tuple[str, dict[str, Any]]:
    positions = await _positions_of(request)
    group = request.path_params["group"]
    return f"group {group}", await commit_reset(ask.hub_of(request), group, positions)


async def _positions_of(request: Request) -> dict[TopicPartition, tuple[int | None, int]]:
    """Of each partition (now, then), as a preview gave them."""
    positions: dict[TopicPartition, tuple[int | None, int]] = {}
    given = (await ask.body_of(request, "positions"))["positions"]
    if not isinstance(given, list) or not 0 < len(given) <= POSITIONS_MAX:
        raise InvalidUse(f"positions is a list of 1 to {POSITIONS_MAX}, as the preview gave it")
    for one in given:
        try:
            tp = TopicPartition(str(one["topic"]), int(one["partition"]))
            now = None if one["now"] is None else int(one["now"])
            positions[tp] = (now, int(one["then"]))
        except (TypeError, KeyError, ValueError):
            raise InvalidUse("a position has topic, partition, now and then") from None
    return positions


async def _deletion_preview(request: Request) -> Response:
    """What is older than a time; the positions of the answer are what a deletion sends back."""
    body = await ask.body_of(request, "before")
    hub, chosen = ask.hub_of(request), ask.partitions_of(request)
    now_ms = await hub.now_ms()
    before_ms = parse_time(str(body["before"]), now_ms=now_ms, zone=ask.zone_of(request))
    topic = request.path_params["topic"]
    return answer(await preview_deletion(hub, topic, before_ms, chosen))


async def _deletion(request: Request) -> tuple[str, dict[str, Any]]:
    topic, positions = request.path_params["topic"], await _positions_of(request)
    foreign = [tp for tp in positions if tp.topic != topic]
    if foreign:
        raise InvalidUse(f"{foreign[0]} is no partition of {topic}")
    cut = " ".join(f"{tp.partition}:{then}" for tp, (_, then) in sorted(positions.items()))
    done = await delete_previewed(ask.hub_of(request), positions)
    return f"records of {topic} before {cut}", done


async def _settings(request: Request) -> tuple[str, dict[str, Any]]:
    topic, changes = request.path_params["topic"], await _changes_of(request)
    await ask.hub_of(request).admin.alter_topic_configs(topic, changes)
    return f"topic {topic} {_shown(changes)}", {"topic": topic, "changed": list(changes)}


async def _settings_preview(request: Request) -> Response:
    """Whether the brokers would take changes of settings; nothing is changed."""
    topic, changes = request.path_params["topic"], await _changes_of(request)
    admin = ask.hub_of(request).admin
    configs = await admin.topic_configs(topic)
    await admin.alter_topic_configs(topic, changes, validate_only=True)
    rows = [
        {"name": name, "now": configs[name].value if name in configs else None, "then": value}
        for name, value in changes.items()
    ]
    return answer({"topic": topic, "changes": rows})


async def _changes_of(request: Request) -> dict[str, str | None]:
    changes = (await ask.body_of(request, "changes"))["changes"]
    if not isinstance(changes, dict) or not 0 < len(changes) <= CHANGES_MAX:
        raise InvalidUse(f"changes has 1 to {CHANGES_MAX} settings with their values")
    for name, value in changes.items():
        if not isinstance(value, str | None):
            raise InvalidUse(f"{name[:60]} needs a text, or null for its default")
    return changes


def _shown(changes: dict[str, str | None]) -> str:
    return " ".join(f"{name}={'default' if v is None else v}" for name, v in changes.items())


async def _produce(request: Request) -> tuple[str, dict[str, Any]]:
    body = await ask.body_of(request, "value")
    topic, hub = request.path_params["topic"], ask.hub_of(request)
    partition = body.get("partition")
    if partition is not None and not (isinstance(partition, int) and partition >= 0):
        raise InvalidUse(f"partition={str(partition)[:20]} is no number: leave it out for any")
    await hub.partitions(topic)  # an unknown topic is not created
    async with hub.producer() as producer:
        delivery = await producer.send(
            topic,
            _bytes_of(body, "value"),
            key=_bytes_of(body, "key"),
            partition=partition,
            timestamp_ms=await _timestamp_of(request, body.get("time")),
            headers=_headers_of(body),
        )
        await producer.flush()
        stored = await delivery
    where = {"partition": stored.partition, "offset": stored.offset, "time_ms": stored.timestamp_ms}
    return f"record {topic}-{stored.partition}@{stored.offset}", {"topic": topic, **where}


async def _copy(request: Request) -> tuple[str, dict[str, Any]]:
    """A page of the window in the address, copied to the topic in the body."""
    body = await ask.body_of(request, "target")
    flags = {name: body.get(name, False) for name in ("keep_time", "dry_run")}
    cursor, limit = body.get("cursor") or "", body.get("limit", LIMIT_MAX)
    wrong = [name for name, flag in flags.items() if not isinstance(flag, bool)]
    if wrong:
        raise InvalidUse(f"{wrong[0]} is true or false")
    if not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidUse(f"limit={str(limit)[:20]} is out of range: give 1 to {LIMIT_MAX}")
    if not isinstance(body["target"], str) or not isinstance(cursor, str):
        raise InvalidUse("target is the name of a topic, cursor a text")
    target = Target(topic=body["target"], keeps_time=flags["keep_time"], is_dry=flags["dry_run"])
    window = await window_of(request, limit=limit)
    found = await copy_page(ask.hub_of(request), window, target, ask.parse_cursor(cursor))
    what = "count" if target.is_dry else "copy"
    return f"{what} {found['copied']} records {window.topic} to {target.topic}", found


async def _timestamp_of(request: Request, given: Any) -> int:
    """The time of a record to produce: the brokers' present unless one is given."""
    now_ms = await ask.hub_of(request).now_ms()
    if given in (None, ""):
        return now_ms
    if isinstance(given, int):
        return to_ms(given, now_ms=now_ms)
    try:
        return parse_time(str(given), now_ms=now_ms, zone=ask.zone_of(request))
    except InvalidTime as error:
        raise InvalidTime(f"time: {error}") from None


def _bytes_of(body: dict[str, Any], name: str) -> bytes | None:
    text, encoding = body.get(name), body.get(f"{name}_encoding", "text")
    if text is None:
        return None
    if not isinstance(text, str) or encoding not in _ENCODINGS:
        raise InvalidUse(f"{name} is a text; {name}_encoding is one of {', '.join(_ENCODINGS)}")
    try:
        return _ENCODINGS[encoding](text)
    except (ValueError, binascii.Error) as error:
        raise InvalidUse(f"{name} is not {encoding}: {error}") from None


def _headers_of(body: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    headers = body.get("headers") or []
    try:
        return [(str(name), _header_value(value)) for name, value in headers]
    except (TypeError, ValueError, LookupError):
        raise InvalidUse(
            'headers is a list of [name, value]; a value is a text, null, or {"base64": TEXT}'
        ) from None


def _header_value(value: Any) -> bytes | None:
    """The bytes of what `console.data.decoders.portable` makes of a header's value."""
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return str(value).encode()


async def _clock(request: Request) -> tuple[str, dict[str, Any]]:
    hub, body = ask.hub_of(request), await ask.body_of(request)
    allowed = ("rate", "set_ms", "advance_ms", "jump_ms")
    changes = {name: body[name] for name in allowed if name in body}
    wrong = [v for v in changes.values() if isinstance(v, bool) or not isinstance(v, int | float)]
    if not changes or wrong:
        raise InvalidUse(f"give numbers for some of {', '.join(allowed)}")
    started = time.monotonic()
    found = await hub.admin.clock(changes, metrics_url=hub.options.broker_http)
    found["took_ms"] = round(1000 * (time.monotonic() - started))
    return f"clock {changes}", found


def post(path: str, name: str, change: Change) -> Route:
    """The route of a change."""
    return Route(path, audited(name, change), methods=["POST"])


ROUTES: Final = [
    Route(f"{GROUP}/reset-preview", _reset_preview, methods=["POST"]),
    post(f"{GROUP}/reset", "group-reset", _reset),
    Route("/topics/{topic}/deletion-preview", _deletion_preview, methods=["POST"]),
    post("/topics/{topic}/deletion", "delete-records", _deletion),
    Route("/topics/{topic}/settings-preview", _settings_preview, methods=["POST"]),
    post("/topics/{topic}/settings", "topic-settings", _settings),
    post("/topics/{topic}/records", "produce", _produce),
    post("/topics/{topic}/copy", "copy", _copy),
    post("/clock", "clock", _clock),
]
