"""The driver that callgrind watches serves each kind of request between two marks."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import instructions
from broker.net.lane_connection import LaneConnection


def test_every_row_is_served_between_two_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def counting(ready: Path) -> bool:
        seen.append("on")
        return True

    serve = instructions._serve

    async def served(connection: LaneConnection, frame: bytes) -> None:
        seen.append("request")
        await serve(connection, frame)

    monkeypatch.setattr(instructions, "_wait_for_counting", counting)
    monkeypatch.setattr(instructions, "_serve", served)
    monkeypatch.setattr(f"os.{instructions.MARK}", lambda _: seen.append("mark"))
    asyncio.run(instructions._drive(str(tmp_path / "data"), "1 record;at the end", 4, "batch"))
    assert seen[seen.index("on") :] == [
        "on", "mark", *["request"] * 4, "mark", *["request"] * 4, "mark", *["request"] * 4, "mark",
    ]  # fmt: skip


def test_rows_that_make_something_new_ask_once_for_each() -> None:
    ((title, frames),) = instructions._rows("new partitions", 100)
    assert title == "Produce to 200 new partitions"
    assert len(set(frames)) == len(frames) == 3
