"""A lookup by time, step by step: the text of ``tidelog offsets --at T --explain``."""

from collections.abc import Iterable
from typing import Any

import click

from client.times import format_time
from values.words import format_count

SHIPPED_INDEX = "timeindex"
"""The index of a topic without an auxiliary index; older brokers did not report it."""


def show_explanations(explanations: Iterable[dict[str, Any]]) -> None:
    """Print the steps in each partition, and the records on both sides of the answer."""
    for explanation in explanations:
        for line in lines(explanation):
            click.echo(line)


def lines(explanation: dict[str, Any]) -> Iterable[str]:
    """One explanation as sentences."""
    found, searched = explanation["found"], explanation["searched"]
    yield f"{explanation['topic']}-{explanation['partition']}: {_answer(explanation)}"
    yield (
        f"  {len(searched)} of {explanation['segments']} segments searched, "
        f"{explanation['bytes_read']:,} bytes of log read"
    )
    for search in searched:
        entry, start = search["time_entry"], search["offset_entry"]
        yield (f"  segment {search['base_offset']}, newest record {_time(search['max_timestamp'])}")
        yield f"    {_index_words(search.get('index', SHIPPED_INDEX), entry)}"
        yield f"    offset index: offset {start['offset']} is at or after byte {start['position']}"
        yield (
            f"    scanned from there: "
            f"{format_count(search['batches_scanned'], 'batch', 'batches')}, "
            f"{format_count(search['records_scanned'], 'record')}, "
            f"{format_count(search['bytes_read'], 'byte')}"
        )
    if found is not None:
        for name in ("before", "after"):
            record = explanation[name]
            where = "none" if record is None else _record(record)
            yield f"  {name}: {where}"


def _index_words(index: str, entry: dict[str, int]) -> str:
    """The meaning of the entry in the time index, or in an auxiliary index."""
    is_shipped = index == SHIPPED_INDEX
    name = "time index" if is_shipped else f"auxiliary index ({index})"
    offset, time = entry["offset"], entry["timestamp"]
    if time < 0:
        return f"{name}: no entry before the time"
    if is_shipped:
        return f"{name}: nothing up to offset {offset} is newer than {_time(time)}"
    if index == "minute-map":
        return f"{name}: the minute {_time(time)} is the first to count, from offset {offset} on"
    return f"{name}: nothing before the batch of offset {offset} is as new as {_time(time)}"


def _answer(explanation: dict[str, Any]) -> str:
    found = explanation["found"]
    if found is None:
        return f"no record at or after {_time(explanation['timestamp'])}"
    hidden = "" if explanation["visible"] else ", not visible to consumers yet"
    return f"{_record(found)}{hidden}"


def _record(record: dict[str, int]) -> str:
    return f"offset {record['offset']}, {_time(record['timestamp'])}"


def _time(timestamp_ms: int) -> str:
    return f"{format_time(timestamp_ms)} ({timestamp_ms})" if timestamp_ms >= 0 else "no time"
