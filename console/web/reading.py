"""The questions that change nothing; `ROUTES` has the addresses below /api."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from client.errors import BrokerRefused, InvalidUse
from client.times import find_unit_mistake, format_time
from client.types import ConsumerRecord
from console.data import overview, records, timeline
from console.data.conditions import filter_by_key, parse_condition
from console.data.decoders import FORMATS, portable
from console.data.groups import readers_of
from console.data.held import held_partitions
from console.data.hub import Hub
from console.data.skew import sample_times
from console.web import questions as ask
from console.web.answers import answer, failure
from console.web.names import GROUP
from protocol.error_codes import ErrorCode

_OFFSET_MAX: Final = 2**63 - 1
_PARTS: Final = ("key", "value")


Question = Callable[[Request], Awaitable[object]]


def asked(path: str, question: Question) -> Route:
    """The route of a question whose document is the whole answer."""

    async def endpoint(request: Request) -> Response:
        return answer(await question(request))

    return Route(path, endpoint)


def of_topic(path: str, question: Callable[[Request, Hub, str], Awaitable[object]]) -> Route:
    """The same, about the topic of the address."""
    return asked(
        f"/topics/{{topic}}/{path}", lambda r: question(r, ask.hub_of(r), r.path_params["topic"])
    )


async def topics(request: Request) -> Response:
    """The list of topics: names, partitions, bytes."""
    return answer(
        await overview.list_topics(
            ask.hub_of(request),
            name=ask.text_of(request, "name"),
            order=ask.text_of(request, "order", "name"),
            is_internal=ask.text_of(request, "internal") == "1",
        )
    )


async def topic(request: Request) -> Response:
    """One topic; an unknown name is answered with near ones."""
    hub, name = ask.hub_of(request), request.path_params["topic"]
    try:
        return answer(await overview.describe_topic(hub, name))
    except BrokerRefused as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        near = await overview.near_names(hub, name)
        sentence = f"There is no topic {name}."
        if (window := await hub.window_of(name)) is not None:
            sentence += (
                " It is a time window: a broker serves these with time.windows.enable=true, if "
                f"there is a topic {window.topic}."
            )
        return failure(request, 404, sentence, near=near)


async def draw_timeline(request: Request) -> Response:
    """The bars of a topic."""
    from_ms, to_ms = await ask.span_of(request)
    return answer(
        await timeline.draw(
            ask.hub_of(request),
            request.path_params["topic"],
            from_ms=from_ms,
            to_ms=to_ms,
            chosen=ask.partitions_of(request),
            buckets=ask.number_of(request, "buckets", timeline.EDGES_MAX, 1, timeline.EDGES_MAX),
            has_sizes=ask.text_of(request, "unit") == "bytes",
        )
    )


async def window_of(request: Request, *, limit: int | None = None) -> records.Window:
    """The window of records that an address asks for."""
    now_ms = await ask.hub_of(request).now_ms()
    condition = parse_condition(ask.text_of(request, "f"), now_ms=now_ms, zone=ask.zone_of(request))
    from_ms, to_ms = await ask.span_of(request)
    return records.Window(
        topic=request.path_params["topic"],
        from_ms=from_ms,
        to_ms=to_ms,
        chosen=ask.partitions_of(request),
        condition=condition,
        order=ask.text_of(request, "order", "time"),
        limit=limit or ask.number_of(request, "limit", 100, 1, records.LIMIT_MAX),
    )


async def topic_records(request: Request) -> Response:
    """A page of the records of a window."""
    window = await window_of(request)
    hub, cursor = ask.hub_of(request), ask.cursor_of(request)
    if window.condition is None:
        return answer(await records.read_page(hub, window, cursor))
    async with ask.search_of(request):
        return answer(await records.read_page(hub, window, cursor))


async def record(request: Request) -> Response:
    """One record in full, decoded as asked, with the times of its neighbours."""
    hub, registry = ask.hub_of(request), ask.registry_of(request)
    partition = ask.partition_of(request)
    offset = ask.number_of(request, "offset", 0, 0, _OFFSET_MAX)
    formats = {part: ask.text_of(request, f"{part}_format") for part in _PARTS}
    for part, name in formats.items():
        if name not in ("", *FORMATS):
            raise InvalidUse(f"{part}_format={name[:20]}: choose {', '.join(FORMATS)}")
    found, batch = await records.read_one(hub, partition, offset)
    before, after = await records.neighbours_of(hub, partition, offset)
    now_ms = await hub.now_ms()
    return answer(
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": offset,
            "time_ms": found.timestamp_ms,
            "time": format_time(found.timestamp_ms, ask.zone_of(request)),
            "time_type": found.timestamp_type.name,
            "now_ms": now_ms,
            "unit_mistake": find_unit_mistake(found.timestamp_ms),
            "leader_epoch": found.leader_epoch,
            "batch": records.batch_of(batch),
            "headers": [
                {"name": name, "value": await registry.shown(value, ""), "exact": portable(value)}
                for name, value in found.headers[:100]
            ],
            "headers_count": len(found.headers),
            "key": await registry.shown(found.key, formats["key"]),
            "value": await registry.shown(found.value, formats["value"]),
            "same_key": filter_by_key(found.key),
            "previous": _place(before),
            "next": _place(after),
        }
    )


def _place(found: ConsumerRecord | None) -> dict[str, int] | None:
    return found and {"offset": found.offset, "time_ms": found.timestamp_ms}


async def raw_record(request: Request) -> Response:
    """A key or value as it is, as a download."""
    partition, part = ask.partition_of(request), ask.text_of(request, "part", "value")
    if part not in _PARTS:
        raise InvalidUse(f"part={part[:20]}: choose {', '.join(_PARTS)}")
    offset = ask.number_of(request, "offset", 0, 0, _OFFSET_MAX)
    found, _ = await records.read_one(ask.hub_of(request), partition, offset)
    data = found.key if part == "key" else found.value
    name = f"{partition.topic}-{partition.partition}-{offset}-{part}.bin"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
    }
    return Response(data or b"", media_type="application/octet-stream", headers=headers)


async def parse_time(request: Request) -> Response:
    """A time as a person wrote it, in ms."""
    found = await ask.time_of(request, "text")
    now_ms = await ask.hub_of(request).now_ms()
    return answer({"ms": found, "now_ms": now_ms})


def _tidelog(path: str, *allowed: str) -> Any:
    """A question that only a Tidelog's metrics port answers; `allowed` are its parameters."""

    async def endpoint(request: Request) -> Response:
        given = request.query_params
        asked: dict[str, object] = {name: given[name] for name in allowed if name in given}
        if "partition" in asked:
            asked["partition"] = ask.partition_of(request).partition
        asked["topic"] = request.path_params["topic"]
        return answer(await ask.hub_of(request).ask_tidelog(path, asked))

    return endpoint


async def explain(request: Request) -> Response:
    """The steps of a lookup by time, on the map of segments."""
    partition = ask.partition_of(request)
    at = await ask.time_of(request, "at")
    if at is None:
        raise InvalidUse("at=TIME is needed")
    asked = {"topic": partition.topic, "partition": partition.partition, "at": at}
    return answer(await ask.hub_of(request).ask_tidelog("/explain", asked))


async def clock(request: Request) -> Response:
    """Where the broker's settable clock stands."""
    hub = ask.hub_of(request)
    return answer(await hub.admin.clock(metrics_url=hub.options.broker_http))


_RETENTION: Final = (
    "partition",
    "at",
    "retention.ms",
    "retention.bytes",
    "cleanup.policy",
    "retention.clamp.future",
)

ROUTES: Final = [
    asked("/cluster", lambda r: overview.describe_cluster(ask.hub_of(r))),
    asked("/activity", lambda r: ask.hub_of(r).activity()),
    Route("/topics", topics),
    asked(
        "/topic-details",
        lambda r: overview.topic_details(ask.hub_of(r), r.query_params.getlist("name")),
    ),
    asked(
        "/topic-days", lambda r: overview.topic_days(ask.hub_of(r), r.query_params.getlist("name"))
    ),
    Route("/topics/{topic}", topic),
    Route("/topics/{topic}/timeline", draw_timeline),
    Route("/topics/{topic}/records", topic_records),
    Route("/topics/{topic}/record", record),
    Route("/topics/{topic}/raw", raw_record),
    of_topic("settings", lambda _, hub, name: overview.topic_settings(hub, name)),
    Route("/topics/{topic}/segments", _tidelog("/segments", "partition", "limit", "after")),
    of_topic("held", lambda r, hub, name: held_partitions(hub, name, ask.text_of(r, "after"))),
    Route("/topics/{topic}/retention", _tidelog("/retention", *_RETENTION)),
    Route("/topics/{topic}/skew", _tidelog("/skew", "partition", "bytes")),
    of_topic("skew-sample", lambda r, hub, name: sample_times(hub, name, ask.partitions_of(r))),
    Route("/topics/{topic}/explain", explain),
    of_topic("readers", lambda _, hub, name: readers_of(hub, name)),
    asked("/groups", lambda r: ask.watch_of(r).listed()),
    asked(GROUP, lambda r: ask.watch_of(r).described(r.path_params["group"])),
    asked("/security", lambda r: overview.security_of(ask.hub_of(r))),
    Route("/clock", clock),
    Route("/time", parse_time),
]
