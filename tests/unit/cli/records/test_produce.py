"""From lines of input to records."""

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.output import Progress
from cli.record_format import from_json
from cli.records.produce import LineRules, read_chunks, split_lines
from client.errors import InvalidTime, InvalidUse


def rules(**given: Any) -> LineRules:
    defaults: dict[str, Any] = {
        "form": None,
        "key_separator": None,
        "null": None,
        "timestamp_ms": None,
        "timestamp_field": None,
        "key_field": None,
        "partition": None,
        "headers": (),
    }
    return LineRules(**defaults | given)


def test_a_raw_line_is_a_value() -> None:
    record = rules().record(b"a:b")
    assert (record.key, record.value, record.timestamp_ms) == (None, b"a:b", None)


def test_the_first_separator_ends_the_key() -> None:
    record = rules(key_separator=b":").record(b"k:v:w")
    assert (record.key, record.value) == (b"k", b"v:w")


def test_a_line_without_the_separator_is_refused() -> None:
    with pytest.raises(InvalidUse, match="no key separator ':'"):
        rules(key_separator=b":").record(b"kv")


def test_options_win_over_what_a_json_line_says() -> None:
    line = b'{"value":"v","timestamp_ms":5,"partition":1,"headers":[["a","1"]]}'
    record = rules(form=from_json, timestamp_ms=7, partition=2, headers=(("b", b"2"),)).record(line)
    assert (record.timestamp_ms, record.partition) == (7, 2)
    assert record.headers == (("a", b"1"), ("b", b"2"))


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def lines_of(*parts: bytes, end: bytes = b"\n") -> list[tuple[int, bytes]]:
    with Progress("", None) as progress:
        return [item async for item in split_lines(chunks(*parts), end, progress)]


async def test_records_may_end_with_other_bytes_than_a_line() -> None:
    assert await lines_of(b"a\r\n", b"\0b", b"\0", end=b"\0") == [(1, b"a\r\n"), (2, b"b")]
    assert await lines_of(b"a<", b">b<c", b"<><>d", end=b"<>") == [
        (1, b"a"),
        (2, b"b<c"),
        (3, b""),
        (4, b"d"),
    ]


async def test_without_an_end_all_input_is_one_record() -> None:
    assert await lines_of(b"a\nb", b"\n", end=b"") == [(1, b"a\nb\n")]


def test_a_text_may_stand_for_null() -> None:
    assert rules(null=b"").record(b"").value is None
    record = rules(key_separator=b":", null=b"NULL").record(b"k:NULL")
    assert (record.key, record.value) == (b"k", None)
    assert rules(key_separator=b":", null=b"NULL").record(b"NULL:v").key is None


def test_a_time_in_data_is_not_relative_to_the_present() -> None:
    with pytest.raises(InvalidTime, match="'yesterday' is relative to the present"):
        rules(timestamp_field="at").record(b'{"at":"yesterday"}')


@pytest.mark.parametrize("text", ["1M", "", "x" * 201])
def test_examples_for_a_time_in_data_are_times_that_data_may_have(text: str) -> None:
    with pytest.raises(InvalidTime, match="1372939200000") as refused:
        rules(timestamp_field="at").record(json.dumps({"at": text}).encode())
    assert not re.search("-15m|now|today|yesterday", str(refused.value))


async def test_lines_are_put_together_over_chunks() -> None:
    assert await lines_of(b"a\nb", b"c\r\n", b"\nd") == [(1, b"a"), (2, b"bc"), (3, b""), (4, b"d")]


async def test_no_input_is_no_lines() -> None:
    assert await lines_of() == []


async def test_files_and_pipes_are_read_to_their_end(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 300_000)
    with file.open("rb") as stream:
        assert len(b"".join([chunk async for chunk in read_chunks(stream.fileno())])) == 300_000
    reading, writing = os.pipe()
    os.write(writing, b"hello")
    os.close(writing)
    assert [chunk async for chunk in read_chunks(reading)] == [b"hello"]
    os.close(reading)


async def test_waiting_for_a_chunk_holds_up_nothing() -> None:
    """A loop may report one chunk twice; a read for the second report blocked it."""
    reading, writing = os.pipe()
    chunks = read_chunks(reading)
    late = threading.Timer(5, os.write, (writing, b"late"))
    late.start()
    for number in range(20):
        waiting = asyncio.ensure_future(anext(chunks))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.02)
        os.write(writing, b"%d" % number)
        assert await waiting == b"%d" % number
    late.cancel()
    os.close(writing)
    assert [chunk async for chunk in chunks] == []
    os.close(reading)
