"""The search for records: other requests get their turn, and what is left is examined later."""

import asyncio
import json
import time

import pytest

from client.types import ConsumerRecord
from console.data import conditions, decoders, records
from protocol.records.layout import TimestampType


def record(offset: int, value: bytes = b"{}") -> ConsumerRecord:
    return ConsumerRecord("flights", 0, offset, 0, TimestampType.CREATE_TIME, b"key", value, (), -1)


def test_a_long_search_gives_other_requests_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_TURN_S", 0.0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def search() -> None:
        other = asyncio.create_task(count_turns())
        found, unexamined = await records.select([record(n) for n in range(50)], lambda _: True)
        other.cancel()
        assert len(found) == 50
        assert unexamined is None

    asyncio.run(search())
    assert turns >= 40


def test_a_search_ends_at_its_deadline_and_names_the_next_record() -> None:
    found, unexamined = asyncio.run(
        records.select([record(7), record(8)], lambda _: True, time.monotonic() - 1)
    )
    assert [one.offset for one in found] == [7]
    assert unexamined is not None
    assert unexamined.offset == 8


def test_a_filter_decodes_a_value_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = json.loads

    def counted(text: str) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(json, "loads", counted)
    condition = conditions.parse_condition(" or ".join(["value.a = 1"] * 20), now_ms=0)
    value = json.dumps({"a": 2, "unique": "decoded once"}).encode()
    assert not conditions.fulfils(condition, record(0, value))
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("text", "too_deep"),
    [
        ("[" * 65, True),
        ("[" * 64 + "]" * 64, False),
        ('"' + "[" * 100 + '"', False),
        ('"' + "[" * 100, False),
        ('"\\"' + "[" * 100 + '"', False),
        ('"\\\\"' + "[" * 100, True),
        ("[]" * 100, False),
    ],
)
def test_nesting_is_counted_outside_of_strings(text: str, *, too_deep: bool) -> None:
    assert decoders._is_too_deep(text) is too_deep
