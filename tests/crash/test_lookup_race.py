"""Lookups between changes equal a list, in short; `LOOKUPS=1000000` makes it a campaign."""

import os
from typing import Any

import pytest

from storage.log.log import Log
from storage.log.lookup import TimeLookup
from storage.segment.segment_list import SegmentList
from tests.crash.lookup_race import race
from tests.crash.seeded_bugs import late_flush_ends_in_a_closed_segment

LOOKUPS = int(os.environ.get("LOOKUPS", "20000"))


@pytest.mark.timeout(60 + LOOKUPS // 500)
def test_lookups_between_all_changes_equal_a_list() -> None:
    tally = race(LOOKUPS, seed=LOOKUPS)
    assert tally.examples == []
    assert tally.found > LOOKUPS // 2
    assert min(tally.while_flushing, tally.while_compacting) > LOOKUPS // 10
    assert tally.reads > LOOKUPS // 50
    assert {"append", "roll", "retain", "delete", "compact", "reopen"} <= set(tally.changes)


def skip_a_segment(patch: pytest.MonkeyPatch) -> None:
    """The binary search over segments ends one too late."""
    original = SegmentList.first_reaching

    def first_reaching(self: SegmentList, timestamp: int, start: int = 0) -> int | None:
        found = original(self, timestamp, start)
        return found if found is None else min(found + 1, len(self) - 1)

    patch.setattr(SegmentList, "first_reaching", first_reaching)


def show_the_invisible(patch: pytest.MonkeyPatch) -> None:
    """Lookups answer with records that are not durable yet."""

    def find(self: Any, timestamp: int, **_: object) -> object:
        return self.lookup.find(timestamp, self.log_start_offset)

    patch.setattr(Log, "offset_for_timestamp", find)


def forget_the_start(patch: pytest.MonkeyPatch) -> None:
    """Lookups answer with records that were deleted."""
    original = TimeLookup.find

    def find(self: TimeLookup, timestamp: int, log_start_offset: int, *more: Any) -> object:
        return original(self, timestamp, 0, *more)

    patch.setattr(TimeLookup, "find", find)


@pytest.mark.parametrize(
    "mistake",
    [
        skip_a_segment,
        show_the_invisible,
        forget_the_start,
        late_flush_ends_in_a_closed_segment,
    ],
)
def test_mistake_is_noticed(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert race(6000).wrong > 0
