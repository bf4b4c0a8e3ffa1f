"""The density variants: when the drafts add an entry, and where a lookup starts from it."""

import pytest

from storage.segment.auxiliary_index import Coverage
from storage.segment.density import (
    MS_PER_MINUTE,
    DensityIndex,
    DensityRule,
    Variant,
)
from storage.segment.time_index import TimestampedOffset
from tests.support.logs import DIRECTORY, LogHarness, config, disk, one_record
from tests.support.simulated_disk import SimulatedDisk

PATH = f"{DIRECTORY}/00000000000000000100.density"
MIN = MS_PER_MINUTE
NOTHING = (-1, 100)


def made(
    variant: Variant,
    *,
    interval_ms: int = MIN,
    carried_ms: int = -1,
    files: SimulatedDisk | None = None,
) -> DensityIndex:
    rule = DensityRule(variant=variant, interval_ms=interval_ms)
    return rule.create(files or disk(), PATH, 100, carried_ms)


def note(index: DensityIndex, *timestamps: int) -> DensityIndex:
    """One batch per timestamp from offset 100 on, each of which the offset index takes up."""
    newest, newest_offset = -1, 100
    for offset, timestamp in enumerate(timestamps, 100):
        if timestamp > newest:
            newest, newest_offset = timestamp, offset
        index.note_entry(newest, newest_offset)
        index.note_batch(one_record(timestamp, offset), 0, timestamp)
    return index


def entries(index: DensityIndex) -> list[tuple[int, int]]:
    """(timestamp, offset) of all entries, through the file."""
    index.write_out()
    return [(time, index.base_offset + relative) for time, relative in index.entries()]


# --- the setting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("none", None),
        ("interval", (Variant.INTERVAL, 5_000)),
        ("minute", (Variant.MINUTE, MIN)),
        ("minute-map", (Variant.MINUTE_MAP, MIN)),
    ],
)
def test_setting_names_the_rule(name: str, rule: tuple[Variant, int] | None) -> None:
    found = DensityRule.from_config(config(time_index_variant=name, time_index_interval_ms=5_000))
    assert (None if found is None else (found.variant, found.interval_ms)) == rule
    assert found is None or found.variant.setting == name


# --- time.index.interval.ms, the later draft ----------------------------------------------------


def test_interval_adds_the_start_of_each_new_bucket() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10), 13, 14, 27, 29, 55)
    assert entries(index) == [(10, 100), (20, 102), (50, 104)]


def test_interval_adds_nothing_for_buckets_at_or_below_the_last_one() -> None:
    assert entries(note(made(Variant.INTERVAL, interval_ms=10), 57, 13, 51, 59)) == [(50, 100)]


def test_interval_carries_the_largest_timestamp_over_segments_so_an_index_may_be_empty() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10, carried_ms=99), 13, 27, 95)
    index.close_with(95, 102)
    assert entries(index) == []
    assert index.floor(50) == NOTHING


def test_interval_adds_a_closing_entry_if_the_largest_timestamp_ever_is_in_the_segment() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10, carried_ms=15), 13, 27, 29)
    index.close_with(29, 102)
    assert entries(index) == [(20, 101), (29, 102)]


def test_interval_continues_after_a_closing_entry() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10), 13)
    index.close_with(13, 100)
    for offset, timestamp in enumerate((14, 20), 101):
        index.note_batch(one_record(timestamp, offset), 0, timestamp)
    assert entries(index) == [(10, 100), (13, 100), (20, 102)]


def test_interval_lookup_starts_at_the_last_bucket_not_above_the_time() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10), 13, 14, 27, 29, 55)
    assert index.floor(9) == NOTHING
    assert index.floor(10) == (10, 100)
    assert index.floor(26) == (20, 102)
    assert index.floor(1_000) == (50, 104)


# --- option 1 of the first draft: a minute index by append time ---------------------------------


def test_minute_adds_an_entry_when_the_offset_index_gets_one_in_another_minute() -> None:
    index = made(Variant.MINUTE)
    index.note_batch(one_record(MIN + 5, 100), 0, MIN + 5)
    index.note_batch(one_record(MIN + 6, 101), 0, MIN + 6)
    index.note_entry(MIN + 7, 102)
    index.note_entry(MIN + 8, 103)
    index.note_entry(2 * MIN, 104)
    assert entries(index) == [(MIN + 7, 102), (2 * MIN, 104)]


def test_minute_needs_no_closing_entry_and_carries_nothing_over() -> None:
    index = note(made(Variant.MINUTE, carried_ms=10 * MIN), MIN)
    index.close_with(MIN, 100)
    assert entries(index) == [(MIN, 100)]


# --- option 2 of the first draft: a map of minutes by create time -------------------------------


def test_map_has_the_first_offset_of_every_minute_in_any_order() -> None:
    index = note(made(Variant.MINUTE_MAP), 5 * MIN + 1, 2 * MIN, 5 * MIN, 2 * MIN + 9, 6 * MIN)
    assert entries(index) == [(5 * MIN, 100), (2 * MIN, 101), (6 * MIN, 104)]


def test_map_looks_at_later_minutes_too_where_the_draft_looked_at_one() -> None:
    index = note(made(Variant.MINUTE_MAP), 5 * MIN, 2 * MIN, 3 * MIN, 9 * MIN)
    # Minute 2 begins at 101, but a record of minute 5 is as new and comes before.
    assert index.floor(2 * MIN) == (5 * MIN, 100)
    assert index.floor(6 * MIN) == (9 * MIN, 103)
    assert index.floor(10 * MIN) == NOTHING


def test_map_takes_records_without_timestamp_for_none() -> None:
    assert entries(note(made(Variant.MINUTE_MAP), -1, 0, -1, 59_999)) == [(0, 101)]


def test_closed_map_answers_from_its_file_as_it_did_from_memory() -> None:
    index = note(made(Variant.MINUTE_MAP), 5 * MIN, 2 * MIN, 7 * MIN)
    before = [index.floor(minute * MIN) for minute in range(9)]
    index.seal(Coverage(1, 103, 7 * MIN), 102)
    index.release()
    assert [index.floor(minute * MIN) for minute in range(9)] == before


# --- what they share ----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", Variant)
def test_no_entry_for_records_without_timestamp(variant: Variant) -> None:
    index = note(made(variant), -1, -1)
    index.close_with(-1, 100)
    assert entries(index) == []
    assert index.floor(0) == NOTHING


@pytest.mark.parametrize("variant", Variant)
def test_index_made_from_points_starts_no_later_than_it_may(variant: Variant) -> None:
    points = [TimestampedOffset(MIN + 5, 103), TimestampedOffset(MIN + 9, 106)]
    points.append(TimestampedOffset(3 * MIN + 2, 109))
    index = made(variant)
    index.fill(points, Coverage(0, 0, 0))
    # All that is known of batches between two points is that they are below the second.
    assert index.floor(MIN).offset <= 103
    assert index.floor(2 * MIN).offset <= 106
    assert index.floor(3 * MIN + 1).offset <= 106
    assert index.count == 2


@pytest.mark.parametrize("variant", Variant)
def test_sealed_index_is_loaded_and_continues(variant: Variant) -> None:
    files = disk()
    index = note(made(variant, files=files), 0, MIN, 2 * MIN)
    coverage = Coverage(77, 103, 2 * MIN)
    index.seal(coverage, 102)
    again = DensityRule.load(files, PATH, 100, coverage)
    assert again.rule == index.rule
    for offset, timestamp in ((103, 2 * MIN + 1), (104, 3 * MIN)):
        again.note_entry(timestamp, offset)
        again.note_batch(one_record(timestamp, offset), 0, timestamp)
    assert entries(again) == [(0, 100), (MIN, 101), (2 * MIN, 102), (3 * MIN, 104)]


def test_many_entries_are_found_in_memory_and_in_the_file() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10), *range(0, 20_000, 10))
    index.write_out()
    for offset, timestamp in enumerate(range(20_000, 30_000, 10), 2_100):
        index.note_batch(one_record(timestamp, offset), 0, timestamp)
    for slot in (0, 1, 511, 512, 513, 1_999, 2_000, 2_999):
        assert index.floor(10 * slot + 9) == (10 * slot, 100 + slot)


def test_full_index_leaves_room_for_a_closing_entry() -> None:
    index = note(made(Variant.INTERVAL, interval_ms=10), 10, 20)
    assert not index.is_full(48)
    assert index.is_full(47)


def test_index_that_grows_by_time_closes_its_segment_when_full() -> None:
    log = LogHarness(
        time_index_variant="interval", time_index_interval_ms=1, segment_index_bytes=48
    )
    for timestamp in range(7):
        log.append(timestamp)
    assert log.bases() == [0, 3, 6]
