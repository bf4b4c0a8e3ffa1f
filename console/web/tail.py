"""The live tail: what is appended to a topic, as server-sent events.

A tail has a place, the next offset of each partition, and each event that moves it carries it, so a
page that was cut off continues where it was: no record is missing and none comes twice. At the end
of the log it rests after each event, so that a busy topic is not asked for single records. Between
two events a tail keeps its place and nothing else. A reader that takes no more events costs the
one that is in the buffer of its connection, until `console.web.stalled` ends that: the next one is
made only when a comment has gone through.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from client.admin import Admin
from client.core.offsets import EARLIEST, LATEST
from client.errors import BrokerRefused, ClientError
from client.types import TopicPartition
from console.data.conditions import Condition, fulfils, parse_condition
from console.data.decoders import row_of
from console.data.hub import TIMEOUT_MS, Hub
from console.data.records import select
from console.web import questions as ask
from console.web.answers import status_of
from protocol.error_codes import ErrorCode

TAILS_MAX: Final = 16
TAIL_PARTITIONS_MAX: Final = 64
SHOWN_PER_S: Final = 200
REST_S: Final = 0.2
"""Between two questions about a log that is read to its end: so late a record may be shown."""

_WAIT_MS: Final = 1000
_COMMENT: Final = b":\n\n"
"""What an EventSource ignores."""

Place = dict[TopicPartition, int]
"""The next offset of each partition that a tail follows."""


async def tail(request: Request) -> Response:
    """The records that are appended from now on, or from a cursor on.

    Refusals are events as well, since an EventSource shows neither the status nor the body of one.
    """
    return StreamingResponse(
        _events(request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(request: Request) -> AsyncIterator[bytes]:
    running = request.app.state.tails
    if len(running) >= TAILS_MAX:
        sentence = f"{TAILS_MAX} tails are open already: close one."
        yield _event("failed", {"error": sentence, "again": True})
        return
    mark = object()
    running.add(mark)
    hub = ask.hub_of(request)
    # Its own connections: a waiting request would hold up the answers to those after it.
    admin = Admin(
        hub.options.bootstrap,
        security=hub.options.security,
        client_id="tidelog-console-tail",
        request_timeout_ms=TIMEOUT_MS,
        timeout_ms=TIMEOUT_MS,
    )
    try:
        condition = await _condition(request)
        place, left_out, passed = await _start(request)
        yield _event(
            "start", {"partitions": len(place), "left_out": left_out, "cursor": _cursor(place)}
        )
        if passed:
            yield _gap(place, passed)
        pace = _Pace()
        while not await request.is_disconnected():
            # It waits for a reader that has not taken the event before, so that no other waits.
            yield _COMMENT
            yield await _next_event(hub, admin, place, condition, pace)
            if pace.is_at_end:
                await rest()
    except ClientError as error:
        is_passing = status_of(error) >= HTTPStatus.BAD_GATEWAY
        yield _event("failed", {"error": str(error), "again": is_passing})
    finally:
        running.discard(mark)
        await admin.close()


async def rest() -> None:
    """Let records come together for the next event."""
    await asyncio.sleep(REST_S)


async def _condition(request: Request) -> Condition | None:
    now_ms = await ask.hub_of(request).now_ms()
    return parse_condition(ask.text_of(request, "f"), now_ms=now_ms, zone=ask.zone_of(request))


async def _start(request: Request) -> tuple[Place, int, int]:
    """(the place that a tail begins at, partitions that it leaves out, offsets that it passes).

    It begins at the cursor, without one at the ends.

    A partition that the cursor does not name is younger than it, so all its records are unread.
    """
    topic, cursor = request.path_params["topic"], ask.cursor_of(request)
    hub = ask.hub_of(request)
    partitions = await hub.partitions(topic, ask.partitions_of(request))
    followed = sorted(partitions)[:TAIL_PARTITIONS_MAX]
    if cursor is None:
        return await _offsets(hub, followed, LATEST), len(partitions) - len(followed), 0
    wanted = {tp: cursor.get(tp.partition, 0) for tp in followed}
    place, passed = await _within_the_log(hub, wanted)
    return place, len(partitions) - len(followed), passed


async def _offsets(hub: Hub, partitions: list[TopicPartition], timestamp: int) -> Place:
    found = await hub.admin.list_offsets(dict.fromkeys(partitions, timestamp))
    return {tp: hit.offset for tp, hit in found.items() if hit is not None}


async def _within_the_log(hub: Hub, place: Mapping[TopicPartition, int]) -> tuple[Place, int]:
    """(the place with offsets outside of a log moved to its nearest end, how many were passed)."""
    starts = await _offsets(hub, list(place), EARLIEST)
    ends = await _offsets(hub, list(place), LATEST)
    moved = {
        tp: min(max(offset, starts[tp]), max(starts[tp], ends[tp]))
        for tp, offset in place.items()
        if tp in starts and tp in ends
    }
    return moved, sum(max(0, moved[tp] - place[tp]) for tp in moved)


async def _next_event(
    hub: Hub, admin: Admin, place: Place, condition: Condition | None, pace: "_Pace"
) -> bytes:
    """What comes within a second as an event; the place moves past it."""
    try:
        found = await admin.read_records(place, max_wait_ms=_WAIT_MS)
    except BrokerRefused as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        moved, passed = await _within_the_log(hub, place)
        place.update(moved)
        return _gap(place, passed)
    rows = []
    for tp, read in found.items():
        place[tp] = read.next_offset
        rows += (await select(read.records, partial(fulfils, condition)))[0]
    rows.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    shown = rows[: pace.take(len(rows))]
    pace.is_at_end = all(place[tp] >= read.end for tp, read in found.items())
    return _event(
        "records",
        {
            "rows": [row_of(one) for one in shown],
            "skipped": len(rows) - len(shown),
            "cursor": _cursor(place),
        },
    )


def _gap(place: Place, passed: int) -> bytes:
    """That records before the place are deleted or lost, `passed` of them unread."""
    return _event("gap", {"passed": passed, "cursor": _cursor(place)})


def _cursor(place: Place) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in place.items()}


class _Pace:
    """How many records may still be shown in the present second, and whether more are there."""

    def __init__(self) -> None:
        self.is_at_end = False
        self._second = 0
        self._left = SHOWN_PER_S

    def take(self, wanted: int) -> int:
        """So many of the wanted ones may be shown."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, SHOWN_PER_S
        taken = min(wanted, self._left)
        self._left -= taken
        return taken


def _event(name: str, document: dict[str, Any]) -> bytes:
    # Without escapes for other letters than ASCII's, which make a text six times as large.
    text = f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False)}\n\n"
    return text.encode(errors="backslashreplace")


TAIL: Final = Route("/topics/{topic}/tail", tail)
