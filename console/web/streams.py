"""Answers without a foreseen end: the live tail as server-sent events, a window as a file."""

import csv
import io
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from client.admin import Admin
from client.errors import BrokerRefused, ClientError, InvalidUse
from client.times import format_time
from client.types import ConsumerRecord, TopicPartition
from console.data.conditions import Condition, fulfils, parse_condition
from console.data.decoders import portable, preview, row_of
from console.data.hub import TIMEOUT_MS, Hub
from console.data.overview import log_ends
from console.data.records import LIMIT_MAX, PARTITIONS_MAX, Window, find_records, select
from console.web import questions as ask
from console.web.answers import status_of
from console.web.reading import window_of
from protocol.error_codes import ErrorCode

TAILS_MAX: Final = 16
TAIL_PARTITIONS_MAX: Final = 64
SHOWN_PER_S: Final = 200
EXPORT_RECORDS_MAX: Final = 1_000_000
EXPORT_BYTES_MAX: Final = 1024**3

_WAIT_MS: Final = 1000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp_ms", "time", "key", "value")


async def tail(request: Request) -> Response:
    """The records that are appended from now on, or from a cursor on.

    Refusals are events as well, since an EventSource shows neither the status nor the body of one.
    """
    return StreamingResponse(
        _events(request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(request: Request) -> AsyncIterator[str]:
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
        offsets, left_out = await _starts(request)
        yield _event("start", {"partitions": len(offsets), "left_out": left_out})
        allowance = _Allowance()
        while not await request.is_disconnected():
            try:
                found = await admin.read_records(offsets, max_wait_ms=_WAIT_MS)
            except BrokerRefused as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                ends = await log_ends(hub, next(iter(offsets)).topic, None)
                offsets = {tp: ends[tp.partition] for tp in offsets if tp.partition in ends}
                yield _event("gap", {})
                continue
            rows = []
            for tp, read in found.items():
                offsets[tp] = read.next_offset
                rows += (await select(read.records, partial(fulfils, condition)))[0]
            rows.sort(key=lambda record: (record.timestamp_ms, record.partition, record.offset))
            shown = rows[: allowance.take(len(rows))]
            yield _event(
                "records",
                {
                    "rows": [row_of(one) for one in shown],
                    "skipped": len(rows) - len(shown),
                    "cursor": {tp.partition: offset for tp, offset in offsets.items()},
                },
            )
    except ClientError as error:
        is_passing = status_of(error) >= HTTPStatus.BAD_GATEWAY
        yield _event("failed", {"error": str(error), "again": is_passing})
    finally:
        running.discard(mark)
        await admin.close()


async def _condition(request: Request) -> Condition | None:
    now_ms = await ask.hub_of(request).now_ms()
    return parse_condition(ask.text_of(request, "f"), now_ms=now_ms, zone=ask.zone_of(request))


async def _starts(request: Request) -> tuple[dict[TopicPartition, int], int]:
    """(where a tail begins: at the cursor, else at the ends; how many partitions it leaves out)."""
    topic, cursor = request.path_params["topic"], ask.cursor_of(request) or {}
    ends = await log_ends(ask.hub_of(request), topic, ask.partitions_of(request))
    offsets = {
        TopicPartition(topic, number): min(end, cursor.get(number, end))
        for number, end in sorted(ends.items())[:TAIL_PARTITIONS_MAX]
    }
    if not offsets:
        raise InvalidUse(f"{topic} has none of these partitions")
    return offsets, len(ends) - len(offsets)


class _Allowance:
    """How many records may still be shown in the present second."""

    def __init__(self) -> None:
        self._second = 0
        self._left = SHOWN_PER_S

    def take(self, wanted: int) -> int:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, SHOWN_PER_S
        taken = min(wanted, self._left)
        self._left -= taken
        return taken


def _event(name: str, document: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n"


async def export(request: Request) -> Response:
    """The records of a window as a file: JSON Lines that ``tidelog produce`` takes back, or CSV."""
    kind = ask.text_of(request, "format", "jsonl")
    if kind not in ("jsonl", "csv"):
        raise InvalidUse(f"format={kind[:20]} does not exist: choose jsonl, csv")
    window = await window_of(request, limit=LIMIT_MAX)
    hub = ask.hub_of(request)
    await hub.partitions(window.topic)
    guard = ask.text_of(request, "formulas") != "1"
    lines = _csv(_pages(hub, window), guard=guard) if kind == "csv" else _json(_pages(hub, window))
    bounds = [format_time(t, ask.zone_of(request)) for t in (window.from_ms, window.to_ms) if t]
    name = re.sub(r"[^\w.+-]+", "-", "_".join([window.topic, *bounds]))
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/x-ndjson"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.{kind}"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(lines, media_type=media, headers=headers)


async def _pages(hub: Hub, window: Window) -> AsyncIterator[list[ConsumerRecord]]:
    """All records of a window up to the caps, a page at a time."""
    numbers = [tp.partition for tp in await hub.partitions(window.topic, window.chosen)]
    count = size = 0
    # A page leaves partitions out above this number, so a wide topic is read in parts.
    for start in range(0, len(numbers), PARTITIONS_MAX):
        part = replace(window, chosen=frozenset(numbers[start : start + PARTITIONS_MAX]))
        cursor: dict[int, int] | None = None
        while count < EXPORT_RECORDS_MAX and size < EXPORT_BYTES_MAX:
            records, found = await find_records(hub, part, cursor)
            yield records[: EXPORT_RECORDS_MAX - count]
            count += len(records)
            size += sum(len(one.key or b"") + len(one.value or b"") for one in records)
            if found["cursor"] is None:
                break
            cursor = {int(partition): offset for partition, offset in found["cursor"].items()}


async def _json(pages: AsyncIterator[list[ConsumerRecord]]) -> AsyncIterator[str]:
    async for page in pages:
        yield "".join(f"{json.dumps(_portable(record), ensure_ascii=False)}\n" for record in page)


def _portable(record: ConsumerRecord) -> dict[str, Any]:
    has_time = record.timestamp_ms >= 0
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms if has_time else None,
        "time": format_time(record.timestamp_ms) if has_time else None,
        "key": portable(record.key),
        "value": portable(record.value),
        "headers": [[name, portable(value)] for name, value in record.headers],
    }


async def _csv(pages: AsyncIterator[list[ConsumerRecord]], *, guard: bool) -> AsyncIterator[str]:
    yield ",".join(_COLUMNS) + "\r\n"
    async for page in pages:
        text = io.StringIO()
        writer = csv.writer(text)
        for record in page:
            texts = [_cell(record.key, guard=guard), _cell(record.value, guard=guard)]
            time_text = format_time(record.timestamp_ms)
            where = (record.topic, record.partition, record.offset, record.timestamp_ms)
            writer.writerow([*where, time_text, *texts])
        yield text.getvalue()


def _cell(data: bytes | None, *, guard: bool) -> str:
    """Text that a spreadsheet does not take for a formula."""
    if data is None:
        return ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = preview(data) or ""
    return f"'{text}" if guard and text.startswith(_FORMULA) else text


TAIL: Final = Route("/topics/{topic}/tail", tail)
EXPORT: Final = Route("/topics/{topic}/export", export)
