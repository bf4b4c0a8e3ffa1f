"""The fetch loop of a task against answers that a broker may give, and what it makes of them."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

pytest.importorskip("pyarrow")

from client.errors import BrokerUnreachable
from pipeline.net.cluster import Cluster, Fetched
from pipeline.plan.reading import RangeReader
from pipeline.plan.splits import OffsetRange
from pipeline.records.batches import DecodeRules
from protocol.api.fetch import FetchResponse
from protocol.records.builder import build_batch
from protocol.records.record import Record

FETCHES_MAX = 20


def batch(first: int, count: int) -> bytes:
    records = [Record(0, 1000 + first + n, None, b"x", ()) for n in range(count)]
    return build_batch(records, base_offset=first)


class Answers:
    """Stands for a cluster whose leader answers by the fetched offset."""

    def __init__(self, answer: Callable[[int, int], bytes | None]) -> None:
        self._answer = answer
        self._offset = 0
        self.fetches = 0

    def send_fetch(self, _: Any, offset: int, **__: Any) -> object:
        self._offset = offset
        return object()

    def receive_fetch(self, _: object) -> Fetched | None:
        self.fetches += 1
        assert self.fetches < FETCHES_MAX, f"still fetching at {self._offset}"
        data = self._answer(self._offset, self.fetches)
        if data is None:
            return None
        return Fetched(
            error_code=0, high_watermark=155, last_stable_offset=155, log_start_offset=0,
            aborted=(), records=memoryview(data),
        )  # fmt: skip


def read(answers: Answers, start: int, end: int, *, fail: bool = True) -> list[int]:
    reader = RangeReader(
        cast("Cluster", answers), OffsetRange("t", 0, start, end),
        DecodeRules(columns=("offset",)), fetch_bytes=1 << 20, fail_on_data_loss=fail,
    )  # fmt: skip
    return [offset for one in reader.batches() for offset in one.column(0).to_pylist()]


@pytest.mark.parametrize("start", [0, 5, 99])
def test_reading_ends_at_a_gap_that_reaches_over_the_end(start: int) -> None:
    """Compaction has removed 5 to 149."""
    compacted = Answers(lambda at, _: (batch(0, 5) if at < 5 else b"") + batch(150, 5))
    assert read(compacted, start, 100) == list(range(start, 5))
    assert compacted.fetches == 1


def test_an_answer_without_partitions_is_asked_again_and_not_taken_for_emptiness() -> None:
    throttled = Answers(lambda _, number: None if number < 10 else batch(0, 5))
    assert read(throttled, 0, 5) == [0, 1, 2, 3, 4]


def test_no_more_is_fetched_than_the_range_needs() -> None:
    """A slice of 3 MB of a long log; whole batches of 100 records of a kilobyte."""
    records = [Record(0, 1000, None, b"x" * 1000, ()) for _ in range(100)]
    batches = [build_batch(records, base_offset=first) for first in range(0, 20_000, 100)]
    sent: list[int] = []

    class Log(Answers):
        def send_fetch(self, _: Any, offset: int, **named: Any) -> object:
            self.room = named["max_bytes"]
            return super().send_fetch(_, offset)

    def answer(at: int, _: int) -> bytes:
        first = at // 100
        data = b"".join(batches[first : first + max(log.room // len(batches[0]), 1)])
        sent.append(len(data))
        return data

    log = Log(answer)
    reader = RangeReader(
        cast("Cluster", log), OffsetRange("t", 0, 5000, 8000), DecodeRules(columns=("offset",)),
        fetch_bytes=8 << 20, fail_on_data_loss=True,
    )  # fmt: skip
    rows = [offset for one in reader.batches() for offset in one.column(0).to_pylist()]
    assert rows == list(range(5000, 8000))
    assert len(sent) <= 3
    assert sum(sent) < 34 * len(batches[0])


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_was_deleted_amid_a_task_is_loss_or_the_end(
    monkeypatch: pytest.MonkeyPatch, fail: bool
) -> None:
    class Gone(Answers):
        def send_fetch(self, *_: Any, **__: Any) -> object:
            raise BrokerUnreachable("t-0 has no leader")

        def drop_metadata(self, _: str) -> None:
            """Nothing is remembered."""

        def topics(self, _: object) -> dict[str, object]:
            return {}

    monkeypatch.setattr(time, "sleep", lambda _: None)
    gone = Gone(lambda *_: None)
    if fail:
        with pytest.raises(BrokerUnreachable):
            read(gone, 0, 5)
    else:
        assert read(gone, 0, 5, fail=False) == []


def test_a_throttled_fetch_waits_as_long_as_the_broker_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer() -> FetchResponse:
        return FetchResponse(throttle_time_ms=250, responses=[])

    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    assert Cluster.receive_fetch(answer()) is None
    assert waited == [0.25]
