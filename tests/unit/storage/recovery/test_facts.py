"""Each rule of `storage.recovery.loss` by itself: which facts, which files, which loss.

`test_loss.py` damages whole directories. Here the facts are given, so that each limit can be met
exactly: an end that is one offset too low, a base that lies right at the recovery point.
"""

from dataclasses import replace

import pytest

from config import TopicConfig, load, topic_config
from protocol.records.layout import INT64_MAX
from storage.disk.file_names import LOG_SUFFIX, MANIFEST_NAME, SNAPSHOT_SUFFIX, segment_file_path
from storage.errors import QuarantineKind
from storage.log.leader_epochs import LeaderEpochs
from storage.log.producers import LogProducers
from storage.producers.snapshots import encode_snapshot
from storage.producers.state import ProducerState
from storage.recovery.loss import Loss, StoredFacts
from storage.recovery.opening import DirectoryOpening
from storage.segment.facts import UNKNOWN_MINIMUM, SegmentFacts
from storage.segment.manifest import Manifest
from storage.segment.segment import Segment
from tests.support.simulated_disk import SimulatedDisk

PATH = "/data/t-0"
Range = tuple[int, int]


PLAIN = topic_config({}, load())
COMPACTED = replace(PLAIN, cleanup_policy=frozenset({"compact"}))
TIERED = replace(PLAIN, remote_storage_enable=True)


def facts_of(base_offset: int, next_offset: int) -> SegmentFacts:
    """Of a segment of 100 bytes for each offset; the timestamps are the offsets in seconds."""
    return SegmentFacts(
        base_offset=base_offset,
        next_offset=next_offset,
        size_bytes=100 * (next_offset - base_offset),
        max_timestamp=1000 * (next_offset - 1),
        max_timestamp_offset=next_offset - 1,
        first_timestamp=1000 * base_offset,
        appended_ms=0,
        records=next_offset - base_offset,
        offset_index_bytes=0,
        time_index_bytes=0,
        txn_index_bytes=0,
        offset_index_crc=0,
        time_index_crc=0,
        min_timestamp=1000 * base_offset,
    )


def opening_of(
    *segments: Range,
    start: int = 0,
    stored_start: int = -1,
    recovery_point: int = 0,
    cleaned: int = -1,
    config: TopicConfig = PLAIN,
    is_clean: bool = True,
    has_manifest: bool = True,
    snapshots: tuple[int, ...] = (),
) -> DirectoryOpening:
    """A directory whose manifest has the `segments`, each from its base to its end."""
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.make_directory(PATH)
    manifest = Manifest(PATH, disk)
    manifest.facts = {base: facts_of(base, end) for base, end in segments}
    manifest.log_start_offset = stored_start
    manifest.cleaned_offset = cleaned
    names = [MANIFEST_NAME] if has_manifest else []
    for offset in snapshots:
        names.append(f"{offset:020d}{SNAPSHOT_SUFFIX}")
        disk.create(f"{PATH}/{names[-1]}").append(encode_snapshot(ProducerState()))
    return DirectoryOpening(
        files=disk,
        path=PATH,
        config=config,
        now_ms=0,
        is_clean=is_clean,
        recovery_point=recovery_point,
        start=start,
        manifest=manifest,
        producers=LogProducers.empty(PATH, disk, names=names),
        epochs=LeaderEpochs(directory=PATH, files=disk),
        names=names,
    )


def segment_of(base_offset: int, next_offset: int) -> Segment:
    """A segment as it was found, of 100 bytes for each offset."""
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.make_directory(PATH)
    segment = Segment.create(disk, PATH, base_offset, now_ms=0)
    segment.log.append(bytes(100 * (next_offset - base_offset)))
    segment.next_offset = next_offset
    return segment


def path_of(base_offset: int) -> str:
    return segment_file_path(PATH, base_offset, LOG_SUFFIX)


def lost(first_offset: int, next_offset: int, found: str = "no file has them") -> Loss:
    return Loss(first_offset=first_offset, next_offset=next_offset, found=found)


# --- where the log ended --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recovery_point", "segments", "snapshots", "end"),
    [
        (9, [(0, 6)], (3, 6), 9),
        (6, [(0, 6), (6, 9)], (6,), 9),
        (6, [(6, 9), (0, 6)], (6,), 9),
        (0, [(0, 6)], (6, 9), 9),
        (0, [], (9,), 9),
        (0, [], (), 0),
    ],
)
def test_after_a_clean_stop_the_highest_fact_is_the_end(
    recovery_point: int, segments: list[Range], snapshots: tuple[int, ...], end: int
) -> None:
    opening = opening_of(*segments, recovery_point=recovery_point, snapshots=snapshots)
    assert StoredFacts(opening).durable_end == end


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_snapshot_that_is_not_whole_proves_nothing(content: bytes) -> None:
    """A clean stop leaves none: something else has put it there."""
    opening = opening_of((0, 6), snapshots=(6, 9, 12))
    opening.files.replace_atomically(f"{PATH}/{12:020d}{SNAPSHOT_SUFFIX}", content)
    assert StoredFacts(opening).durable_end == 9


def test_after_a_crash_only_the_recovery_point_was_durable() -> None:
    opening = opening_of((0, 9), recovery_point=3, snapshots=(12,), is_clean=False)
    assert StoredFacts(opening).durable_end == 3


# --- the start ------------------------------------------------------------------------------------


def test_a_log_without_segments_has_no_first_one() -> None:
    """Its end is compared instead."""
    assert StoredFacts(opening_of((0, 3), stored_start=0)).find_missing_start([]) is None


@pytest.mark.parametrize(
    ("start", "bases", "config", "found"),
    [
        (5, [10, 20], TIERED, lost(5, 10)),
        (5, [10], TIERED, lost(5, 10)),
        (10, [10, 20], TIERED, None),
        (11, [10, 20], TIERED, None),
        (5, [10, 20], PLAIN, None),
    ],
)
def test_without_a_manifest_only_a_log_in_a_store_has_to_begin_at_its_start(
    start: int, bases: list[int], config: TopicConfig, found: Loss | None
) -> None:
    opening = opening_of(start=start, config=config, has_manifest=False)
    assert StoredFacts(opening).find_missing_start(bases) == found


@pytest.mark.parametrize(("is_clean", "found"), [(False, lost(0, 5)), (True, None)])
def test_an_empty_manifest_proves_something_after_a_crash_only(
    is_clean: bool, found: Loss | None
) -> None:
    """The crash may have kept its name and not its lines; a clean stop writes no empty one."""
    opening = opening_of(stored_start=0, is_clean=is_clean)
    assert StoredFacts(opening).find_missing_start([5]) == found


FIRST = f"{path_of(0)} is missing"
SECOND = f"{path_of(3)} is missing"
BOTH = f"2 segments from {path_of(0)} on are missing"


@pytest.mark.parametrize(
    ("segments", "stored_start", "start", "first", "found"),
    [
        # The start is stored.
        ([(0, 3), (3, 6)], 0, 0, 0, None),
        ([(0, 3), (3, 6)], 0, 0, 3, lost(0, 3, FIRST)),
        ([(0, 3), (3, 6), (6, 9)], 0, 0, 6, lost(0, 6, BOTH)),
        ([(0, 3), (3, 6)], 3, 3, 3, None),
        ([(0, 3), (3, 6)], 4, 4, 3, None),
        ([(0, 3), (3, 6)], 2, 2, 3, lost(2, 3)),
        ([(0, 3), (3, 6), (6, 9)], 4, 4, 6, lost(4, 6)),
        ([(5, 8)], 0, 0, 5, lost(0, 5)),
        ([(3, 6)], 0, 0, 6, lost(0, 6, SECOND)),
        # Apache Kafka's directory: no file stores where it began.
        ([(5, 8)], -1, 0, 5, None),
        ([(3, 6), (6, 9)], -1, 0, 6, lost(3, 6, SECOND)),
        ([(3, 6), (6, 9)], -1, 4, 6, lost(4, 6)),
        ([(0, 3)], -1, 3, 5, None),
        ([(3, 3)], -1, 0, 5, None),
        ([(0, 3), (3, 6)], -1, 6, 6, None),
    ],
)
def test_the_first_segment_lies_at_the_start(
    segments: list[Range], stored_start: int, start: int, first: int, found: Loss | None
) -> None:
    opening = opening_of(*segments, stored_start=stored_start, start=start)
    assert StoredFacts(opening).find_missing_start([first, first + 100]) == found


# --- between two segments -------------------------------------------------------------------------


@pytest.mark.parametrize("following", [3, 6, 9])
def test_without_a_manifest_every_gap_and_overlap_is_of_apache_kafka(following: int) -> None:
    stored = StoredFacts(opening_of(recovery_point=99, has_manifest=False))
    assert stored.find_gap(segment_of(0, 6), following) is None


def test_segments_that_follow_each_other_have_no_gap() -> None:
    assert StoredFacts(opening_of((0, 6))).find_gap(segment_of(0, 6), 6) is None


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
def test_a_segment_that_begins_inside_of_the_one_before_it_repeats_offsets(
    config: TopicConfig,
) -> None:
    stored = StoredFacts(opening_of((0, 6), (4, 9), recovery_point=99, config=config))
    found = f"{path_of(4)} begins below offset 6, where {path_of(0)} ends"
    assert stored.find_gap(segment_of(0, 6), 4) == lost(4, 6, found)


GAPS = {
    "nothing accounts for it": (False, [(0, 6)], {"recovery_point": 0}, PLAIN),
    "both sides are known: Kafka's compaction left it": (
        True, [(0, 6), (9, 12)], {"recovery_point": 0}, PLAIN,
    ),
    "the end is known, the base lies right at the recovery point": (
        True, [(0, 6)], {"recovery_point": 9}, PLAIN,
    ),
    "the end is known, the base lies one above the recovery point": (
        False, [(0, 6)], {"recovery_point": 8}, PLAIN,
    ),
    "the end is not known": (False, [(0, 5), (9, 12)], {"recovery_point": 99}, PLAIN),
    "the segment was longer": (False, [(0, 7), (9, 12)], {"recovery_point": 99}, COMPACTED),
    "one that is gone lay between": (
        False, [(0, 6), (6, 9), (9, 12)], {"recovery_point": 99}, COMPACTED,
    ),
    "one that is gone lay between, and others before it": (
        False, [(-9, -6), (-6, 0), (0, 6), (6, 9)], {"recovery_point": 99}, COMPACTED,
    ),
    "a compacted log, below its recovery point": (
        True, [], {"recovery_point": 10, "cleaned": 3}, COMPACTED,
    ),
    "a compacted log, right at its recovery point": (True, [], {"recovery_point": 9}, COMPACTED),
    "a compacted log, above its recovery point": (False, [], {"recovery_point": 8}, COMPACTED),
    "a compacted log, right at what was compacted": (True, [], {"cleaned": 9}, COMPACTED),
    "a compacted log, above what was compacted": (False, [], {"cleaned": 8}, COMPACTED),
    "a compacted log whose next segments are known": (
        True, [(9, 12)], {"recovery_point": 99}, COMPACTED,
    ),
    "a log that is not compacted": (False, [], {"recovery_point": 99, "cleaned": 99}, PLAIN),
}  # fmt: skip
"""Whether offsets 6 to 8 may be absent, and from which facts this follows."""


@pytest.mark.parametrize("situation", GAPS)
def test_a_gap_is_meant_or_a_loss(situation: str) -> None:
    is_meant, segments, offsets, config = GAPS[situation]
    opening = opening_of(
        *segments,
        config=config,
        is_clean=False,
        recovery_point=offsets.get("recovery_point", 0),
        cleaned=offsets.get("cleaned", -1),
    )
    stored = StoredFacts(opening)
    assert stored.is_meant(6, 9) is is_meant
    loss = stored.find_gap(segment_of(0, 6), 9)
    assert (loss is None) is is_meant
    if loss is not None:
        assert (loss.first_offset, loss.next_offset) == (6, 9)


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "is_cut"), [(5, True), (6, False), (7, False)])
def test_a_segment_that_ends_before_its_stored_end_was_cut(end: int, is_cut: bool) -> None:
    found = StoredFacts(opening_of((0, 6))).find_cut(segment_of(0, end))
    text = f"{path_of(0)} has 500 bytes and ends at offset 5, it had 600 and ended at 6"
    assert found == (lost(5, 6, text) if is_cut else None)


def test_a_segment_without_stored_facts_cannot_be_known_to_be_cut() -> None:
    assert StoredFacts(opening_of((0, 6), recovery_point=99)).find_cut(segment_of(6, 7)) is None


CUT = f"{path_of(3)} has 200 bytes and ends at offset 5, it had 300 and ended at 6"


@pytest.mark.parametrize(
    ("segments", "recovery_point", "start", "ends", "found"),
    [
        # What was found ends where it ended, or after it.
        ([(0, 3), (3, 6)], 6, 0, [(0, 3), (3, 6)], None),
        ([(0, 3)], 0, 0, [(0, 3), (3, 6)], None),
        # It ends before.
        ([(0, 3), (3, 6)], 6, 0, [(0, 3), (3, 5)], lost(5, 6, CUT)),
        ([(0, 3), (3, 6)], 8, 0, [(0, 3), (3, 5)], lost(5, 8, CUT)),
        ([(0, 3), (3, 6)], 6, 0, [(0, 3)], lost(3, 6, SECOND)),
        ([(0, 3), (3, 6)], 7, 0, [(0, 3), (3, 6)], lost(6, 7)),
        ([(0, 3)], 6, 0, [(0, 3), (3, 5)], lost(5, 6)),
        # The log's start counts as an end.
        ([(0, 3)], 6, 6, [], None),
        ([(0, 3)], 6, 6, [(0, 3)], None),
        ([(0, 3)], 7, 6, [], lost(6, 7)),
        ([(0, 3)], 0, 0, [], lost(0, 3, FIRST)),
        ([], 0, 0, [], None),
    ],
)
def test_the_log_ends_where_it_ended(
    segments: list[Range],
    recovery_point: int,
    start: int,
    ends: list[Range],
    found: Loss | None,
) -> None:
    opening = opening_of(*segments, recovery_point=recovery_point, start=start)
    found_segments = [segment_of(*each) for each in ends]
    assert StoredFacts(opening).find_missing_end(found_segments) == found


def test_after_a_segment_comes_the_next_one_or_the_end() -> None:
    stored = StoredFacts(opening_of((0, 3), (3, 6), (6, 9)))
    assert stored.find_loss_after(segment_of(0, 3), 3) is None
    assert stored.find_loss_after(segment_of(0, 3), 6) == lost(3, 6, SECOND)
    assert stored.find_loss_after(segment_of(6, 9), None) is None
    assert stored.find_loss_after(segment_of(3, 6), None) == lost(6, 9, f"{path_of(6)} is missing")


# --- the quarantine -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "times"),
    [
        (lost(3, 6, "gone"), "between 1970-01-01T00:00:03.000+00:00 and 1970-01-01T00:00:05.000"),
        (lost(5, 7, "gone"), "between 1970-01-01T00:00:03.000+00:00 and 1970-01-01T00:00:08.000"),
        (lost(2, 3, "gone"), "between 1970-01-01T00:00:00.000+00:00 and 1970-01-01T00:00:02.000"),
    ],
)
def test_a_quarantine_has_the_offsets_the_reason_and_the_times(loss: Loss, times: str) -> None:
    opening = opening_of((0, 3), (3, 6), (6, 9), recovery_point=12)
    StoredFacts(opening).quarantine(loss)
    found = opening.quarantine
    assert found is not None
    first, following = loss.first_offset, loss.next_offset
    assert (found.kind, found.good_until, found.path) == (QuarantineKind.LOST, first, PATH)
    assert found.durable_end == 12
    assert found.reason.startswith(
        f"offsets {first} to {following - 1} were durable and are gone: gone; their timestamps "
        f"lie {times}"
    )
    assert opening.report.notes == [found.reason]


@pytest.mark.parametrize(
    ("oldest", "newest", "times"),
    [
        (0, 0, "between 1970-01-01T00:00:00.000+00:00 and 1970-01-01T00:00:00.000+00:00"),
        (1, 2, "between 1970-01-01T00:00:00.001+00:00 and 1970-01-01T00:00:00.002+00:00"),
        # Not collected; only markers of transactions, which have a time and are no records.
        (UNKNOWN_MINIMUM, 2, "up to 1970-01-01T00:00:00.002+00:00"),
        (INT64_MAX, 2, "up to 1970-01-01T00:00:00.002+00:00"),
        (INT64_MAX - 1, INT64_MAX, f"between {INT64_MAX - 1} ms and {INT64_MAX} ms"),
        (-1, -1, None),
    ],
)
def test_the_times_are_named_as_far_as_they_are_known(
    oldest: int, newest: int, times: str | None
) -> None:
    opening = opening_of((0, 3))
    facts = replace(facts_of(0, 3), min_timestamp=oldest, max_timestamp=newest)
    opening.manifest.facts[0] = facts
    StoredFacts(opening).quarantine(lost(0, 3, "gone"))
    assert opening.quarantine is not None
    said = "" if times is None else f"; their timestamps lie {times}"
    assert f"were durable and are gone: gone{said}; none can be read" in opening.quarantine.reason


def test_a_loss_that_no_line_of_the_manifest_touches_has_no_times() -> None:
    opening = opening_of((0, 3), recovery_point=9)
    StoredFacts(opening).quarantine(lost(3, 9, "gone"))
    assert opening.quarantine is not None
    assert "were durable and are gone: gone; offsets below" in opening.quarantine.reason


def test_a_loss_of_nothing_is_a_bug() -> None:
    opening = opening_of((0, 3))
    with pytest.raises(AssertionError, match="a loss of nothing"):
        StoredFacts(opening).quarantine(lost(3, 3))
    assert opening.quarantine is None
