"""The table of KIP-33's first draft: an entry per second or minute, a day, 3,500 partitions.

The draft counts entries of 12 bytes for one partition-day, times 3,500 partitions, and calls them
3.4 GB and 57 MB of memory. Here a day is written by the storage engine in each variant, a batch
every second or five, and its index files have exactly those entries. What the draft had in memory
lies on disk; what is in memory is measured by `python -m benchmarks.density`.
"""

import pytest

from storage.segment.density import parse_density
from storage.segment.feed import TIME_ENTRY_SIZE
from tests.support.logs import LogHarness

PARTITIONS = 3_500
DAY_S = 86_400
DAY_BEGINS_MS = 1_700_006_400_000
MIB, GIB = 2**20, 2**30

DRAFT = {
    "second": (86_400, "3.4 GB"),
    "minute": (1_440, "57 MB"),
}
"""Each row of the draft's table: granularity, entries of a partition-day, memory of 3,500."""


def test_the_drafts_figures_follow_from_its_entry() -> None:
    sizes = {row: entries * TIME_ENTRY_SIZE * PARTITIONS for row, (entries, _) in DRAFT.items()}
    assert f"{sizes['second'] / GIB:.1f} GB" == DRAFT["second"][1]
    # 57.7: the draft cuts off.
    assert f"{int(sizes['minute'] / MIB)} MB" == DRAFT["minute"][1]


@pytest.mark.parametrize(
    ("row", "variant", "step_s", "settings"),
    [
        ("second", "interval", 1, {"time_index_interval_ms": 1_000}),
        ("minute", "interval", 5, {}),
        ("minute", "minute", 5, {}),
        ("minute", "minute-map", 5, {}),
    ],
)
def test_a_partition_day_has_the_entries_of_the_drafts_table(
    row: str, variant: str, step_s: int, settings: dict[str, object]
) -> None:
    log = LogHarness(None, time_index_variant=variant, **settings)
    for second in range(0, DAY_S, step_s):
        log.now_ms = DAY_BEGINS_MS + 1_000 * second
        log.append(log.now_ms, value=b"v" * 100 * step_s, flush=False)
    log.log.roll(log.now_ms)
    log.log.flush()
    names = [name for name in log.names() if name.endswith(".density")]
    entries = sum(
        len(parse_density(log.files.read_all(f"{log.path}/{name}")).entries) // TIME_ENTRY_SIZE
        for name in names
    )
    expected, _ = DRAFT[row]
    # `interval` closes a segment with the newest time, which is an entry more unless one is there.
    assert expected <= entries <= expected + (variant == "interval")
