"""How ranges become tasks and limits become ends, by Spark's own arithmetic where it has one."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan.splits import OffsetRange, cut_by_bytes, cut_ranges, limit_ends, pack

MIB = 1 << 20


def ranges_of(*ends: int) -> list[OffsetRange]:
    return [OffsetRange("t", index, 0, end) for index, end in enumerate(ends)]


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [one.size for one in ranges]


def test_empty_ranges_become_no_task() -> None:
    assert cut_ranges(ranges_of(0, 5, 0)) == [OffsetRange("t", 1, 0, 5)]


def test_min_partitions_below_the_number_of_ranges_changes_nothing() -> None:
    assert cut_ranges(ranges_of(5, 5), min_partitions=1) == ranges_of(5, 5)


def test_min_partitions_cuts_one_range_evenly() -> None:
    assert sizes(cut_ranges(ranges_of(8), min_partitions=4)) == [2, 2, 2, 2]


def test_min_partitions_leaves_small_ranges_whole() -> None:
    """SPARK-28489: a skewed topic must still reach about the wanted number of tasks."""
    cut = cut_ranges(ranges_of(10_000, 1, 1), min_partitions=6)
    assert sizes(cut) == [2500, 2500, 2500, 2500, 1, 1]


def test_min_partitions_may_round_up() -> None:
    """SPARK-36576: `minPartitions` is a wish; rounding by share may give a few more."""
    cut = cut_ranges(ranges_of(100, 100, 100), min_partitions=4)
    assert len(cut) >= 3
    assert sum(sizes(cut)) == 300


def test_max_records_bounds_every_task() -> None:
    assert sizes(cut_ranges(ranges_of(10), max_records=4)) == [3, 3, 4]


def test_a_range_is_never_cut_into_more_parts_than_it_has_offsets() -> None:
    assert sizes(cut_ranges(ranges_of(2), min_partitions=10)) == [1, 1]


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 500)),
)
def test_cutting_loses_and_repeats_nothing(
    ends: list[int], min_partitions: int, max_records: int | None
) -> None:
    cut = cut_ranges(ranges_of(*ends), min_partitions=min_partitions, max_records=max_records)
    for index, end in enumerate(ends):
        position = 0
        for one in sorted(one for one in cut if one.partition == index):
            assert one.start == position
            assert one.size > 0
            position = one.end
        assert position == end


def test_bytes_cut_a_topic_of_middle_size_into_several_tasks() -> None:
    cut = cut_by_bytes(ranges_of(1_000_000), {("t", 0): 512.0}, 128 * MIB)
    assert len(cut) == 8


def test_bytes_leave_a_small_topic_whole() -> None:
    assert cut_by_bytes(ranges_of(1000, 1000), {("t", 0): 100.0, ("t", 1): 100.0}, 128 * MIB) == (
        ranges_of(1000, 1000)
    )


def test_a_range_of_unknown_size_stays_whole() -> None:
    assert cut_by_bytes(ranges_of(10**9), {}, 128 * MIB) == ranges_of(10**9)


def test_few_ranges_are_a_task_each() -> None:
    assert pack(ranges_of(1, 2), {}, MIB) == [(one,) for one in ranges_of(1, 2)]


def test_small_ranges_share_tasks_evenly_however_few_they_are() -> None:
    """4 MiB are read in the time that a task costs; four times 1.3 MB are two tasks."""
    slice_of_each = ranges_of(10_001, 10_000, 9999, 10_000)
    known = {("t", index): 130.0 for index in range(4)}
    tasks = pack(slice_of_each, known, 128 * MIB)
    assert tasks == [tuple(slice_of_each[:2]), tuple(slice_of_each[2:])]
    assert pack(slice_of_each, known, MIB) == [(one,) for one in slice_of_each]
    # A large one keeps its task, wherever it comes.
    mixed = ranges_of(100, 10**6, 100, 100)
    assert pack(mixed, known, 128 * MIB) == [
        (mixed[0],), (mixed[1],), tuple(mixed[2:]),
    ]  # fmt: skip


def test_many_small_ranges_share_tasks_and_keep_their_order() -> None:
    many = ranges_of(*[10] * 200)
    tasks = pack(many, {("t", index): 1024.0 for index in range(200)}, MIB)
    assert len(tasks) == 2
    assert [one for task in tasks for one in task] == many


def test_a_limit_is_shared_by_size_and_starves_no_partition() -> None:
    starts = {("t", 0): 0, ("t", 1): 0, ("t", 2): 5}
    ends = {("t", 0): 900, ("t", 1): 100, ("t", 2): 6}
    limited = limit_ends(starts, ends, 100)
    assert limited == {("t", 0): 89, ("t", 1): 9, ("t", 2): 6}


def test_a_limit_beyond_everything_changes_nothing() -> None:
    """SPARK-26718: Long.MaxValue as a limit must not overflow."""
    ends = {("t", 0): 900}
    assert limit_ends({("t", 0): 0}, ends, 2**63 - 1) == ends


def test_a_limit_with_nothing_to_read_moves_nothing() -> None:
    assert limit_ends({("t", 0): 7}, {("t", 0): 7}, 10) == {("t", 0): 7}
