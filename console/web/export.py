"""A window of records as a file, streamed."""

import csv
import io
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from client.errors import InvalidUse
from client.times import format_time
from client.types import ConsumerRecord
from console.data.decoders import portable_record, preview
from console.data.hub import Hub
from console.data.records import LIMIT_MAX, PARTITIONS_MAX, Window, find_records
from console.web import questions as ask
from console.web.reading import window_of

EXPORT_RECORDS_MAX: Final = 1_000_000
EXPORT_BYTES_MAX: Final = 1024**3

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp_ms", "time", "key", "value")


async def export(request: Request) -> Response:
    """The records of a window as a file: JSON Lines that ``tidelog produce`` takes back, or CSV."""
    kind = ask.text_of(request, "format", "jsonl")
    if kind not in ("jsonl", "csv"):
        raise InvalidUse(f"format={kind[:20]} does not exist: choose jsonl, csv")
    window = await window_of(request, limit=LIMIT_MAX)
    hub = ask.hub_of(request)
    await hub.partitions(window.topic)
    guard = ask.text_of(request, "formulas") != "1"
    pages = await _begun(_pages(hub, window))
    lines = _csv(pages, guard=guard) if kind == "csv" else _json(pages)
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


async def _begun(
    pages: AsyncIterator[list[ConsumerRecord]],
) -> AsyncIterator[list[ConsumerRecord]]:
    """The same pages, the first of which is there: a refusal comes before the answer has begun."""
    nothing: list[ConsumerRecord] = []
    first = await anext(pages, nothing)

    async def rest() -> AsyncIterator[list[ConsumerRecord]]:
        yield first
        async for page in pages:
            yield page

    return rest()


async def _json(pages: AsyncIterator[list[ConsumerRecord]]) -> AsyncIterator[str]:
    async for page in pages:
        lines = (json.dumps(portable_record(record), ensure_ascii=False) for record in page)
        yield "".join(f"{line}\n" for line in lines)


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


EXPORT: Final = Route("/topics/{topic}/export", export)
