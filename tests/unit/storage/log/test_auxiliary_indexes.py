"""The life of auxiliary indexes: with their segments, over restarts, other settings, damage."""

import errno

import pytest

from storage.audit.fsck import Severity
from storage.audit.partition import PartitionAudit
from storage.disk.steps import run_steps
from storage.kafka.kafka_export import is_exported
from storage.log.compaction import compact
from storage.log.retention import delete_expired
from storage.segment.auxiliary_index import AuxiliaryIndex
from storage.segment.density import MS_PER_MINUTE, parse_density
from storage.segment.segment import Segment
from tests.support.logs import LogHarness, batch
from tests.support.simulated_disk import Fault, Operation

MIN = MS_PER_MINUTE
VARIANTS = ("interval", "minute", "minute-map")


def log_of(variant: str, *timestamps: int, roll_every: int = 4, **settings: object) -> LogHarness:
    """One record per batch, indexed densely, in segments of `roll_every`."""
    log = LogHarness(
        None, **({"time_index_variant": variant, "index_interval_bytes": 0} | settings)
    )
    for count, timestamp in enumerate(timestamps):
        if count and count % roll_every == 0:
            log.log.roll(log.now_ms)
        log.append(timestamp)
    return log


def minutes(count: int) -> range:
    return range(0, count * MIN, MIN)


def guides(segment: Segment) -> tuple[AuxiliaryIndex, ...]:
    """The indexes from which lookups start; every segment also has counts."""
    return tuple(index for index in segment.auxiliary if index.rule.GUIDES_LOOKUPS)


def density_files(log: LogHarness) -> list[str]:
    return [name for name in log.names() if ".density" in name]


def path_of(log: LogHarness, base: int) -> str:
    return f"{log.path}/{base:020d}.density"


def stored(log: LogHarness, base: int) -> list[tuple[int, int]]:
    return [
        (int.from_bytes(entry[:8], "big"), base + int.from_bytes(entry[8:], "big"))
        for content in [parse_density(log.files.read_all(path_of(log, base))).entries]
        for entry in (content[at : at + 12] for at in range(0, len(content), 12))
    ]


def answers(log: LogHarness, times: range) -> list[int | None]:
    hits = [log.log.offset_for_timestamp(time) for time in times]
    return [None if hit is None else hit.offset for hit in hits]


def indexes_used(log: LogHarness, timestamp: int) -> set[str]:
    return {s.index for s in log.log.explain_offset_for_timestamp(timestamp).searched}


def problems(log: LogHarness, *, stopped_cleanly: bool = True) -> list[tuple[Severity, str]]:
    audit = PartitionAudit(log.path, log.files, stopped_cleanly=stopped_cleanly)
    audit.run()
    return [(finding.severity, finding.rule) for finding in audit.findings]


@pytest.mark.parametrize("variant", ["minute", "minute-map"])
def test_the_index_of_the_active_segment_stays_open_after_a_lookup(variant: str) -> None:
    """After a start the first lookup makes it, and later appends extend it."""
    log = log_of(variant, *minutes(6))
    log.log.close(log.now_ms)
    log.files.unlink(path_of(log, 4))
    log.open(is_clean=True)
    assert answers(log, minutes(6)) == [0, 1, 2, 3, 4, 5]
    assert path_of(log, 4).rpartition("/")[2] not in density_files(log)
    log.append(6 * MIN)
    assert answers(log, minutes(7)) == [0, 1, 2, 3, 4, 5, 6]
    log.log.close(log.now_ms)
    assert problems(log) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_lookup_makes_the_index_of_the_active_segment_that_could_not_be_made_before(
    variant: str,
) -> None:
    log = log_of("none", *minutes(6))
    log.reopen()

    def unreadable(kind: Operation, path: str) -> None:
        if kind is Operation.READ and path.endswith(".timeindex"):
            raise OSError(errno.EIO, "Input/output error", path)

    log.files.before_operation = unreadable
    log.configure(time_index_variant=variant)
    log.files.before_operation = None
    assert guides(log.log.segments.active) == ()
    assert indexes_used(log, 5 * MIN) == {variant}
    assert path_of(log, 4).rpartition("/")[2] not in density_files(log)
    log.append(6 * MIN)
    assert answers(log, minutes(7)) == [0, 1, 2, 3, 4, 5, 6]
    assert indexes_used(log, 6 * MIN) == {variant}


def test_without_a_variant_there_is_no_density_file() -> None:
    log = log_of("none", *minutes(10))
    assert indexes_used(log, MIN) == {"timeindex"}
    log.reopen()
    assert density_files(log) == []
    assert guides(log.log.segments.active) == ()


@pytest.mark.parametrize("variant", VARIANTS)
def test_closed_segment_has_a_sealed_density_file_and_lookups_start_from_it(variant: str) -> None:
    log = log_of(variant, *minutes(10))
    assert density_files(log) == [f"{base:020d}.density" for base in (0, 4)]
    assert answers(log, minutes(11)) == [*range(10), None]
    for minute in minutes(10):
        assert indexes_used(log, minute) == {variant}


@pytest.mark.parametrize("variant", VARIANTS)
def test_clean_restart_trusts_what_was_sealed(variant: str) -> None:
    log = log_of(variant, *minutes(10))
    log.log.close(log.now_ms)
    before = {name: log.files.read_all(f"{log.path}/{name}") for name in density_files(log)}
    assert len(before) == 3
    log.open(is_clean=True)
    changes = log.files.counts[Operation.APPEND]
    assert answers(log, minutes(11)) == [*range(10), None]
    assert log.files.counts[Operation.APPEND] == changes
    assert {name: log.files.read_all(f"{log.path}/{name}") for name in density_files(log)} == before


def test_interval_carries_its_largest_timestamp_into_the_next_segment() -> None:
    log = log_of(
        "interval", 9 * MIN, MIN, 2 * MIN, 3 * MIN, 4 * MIN, 5 * MIN, 6 * MIN, roll_every=4
    )
    log.log.roll(log.now_ms)
    assert stored(log, 0) == [(9 * MIN, 0)]
    assert stored(log, 4) == []
    log.log.delete_before(4)
    assert answers(log, range(0, 8 * MIN, MIN)) == [4, 4, 4, 4, 4, 5, 6, None]


def test_segments_without_a_density_file_get_one_when_it_is_needed() -> None:
    log = log_of("none", *minutes(10))
    log.configure(time_index_variant="minute")
    assert density_files(log) == []
    assert log.log.offset_for_timestamp(MIN) is not None
    assert density_files(log) == ["00000000000000000000.density"]
    # The first batch of a segment is in no index, so its minute begins with the second.
    assert stored(log, 0) == [(MIN, 1), (2 * MIN, 2), (3 * MIN, 3)]


def test_rebuilt_minute_index_is_what_appending_made() -> None:
    log = log_of("minute", *(minute * MIN // 3 for minute in range(40)), roll_every=50)
    log.log.roll(log.now_ms)
    live = stored(log, 0)
    log.log.close(log.now_ms)
    log.files.unlink(path_of(log, 0))
    log.open(is_clean=True)
    assert log.log.offset_for_timestamp(MIN) is not None
    assert stored(log, 0) == live
    assert len(live) == 14


def test_another_variant_replaces_the_files_as_they_are_needed() -> None:
    log = log_of("minute", *minutes(10))
    log.configure(time_index_variant="minute-map")
    assert parse_density(log.files.read_all(path_of(log, 0))).variant == 2
    assert answers(log, minutes(10)) == list(range(10))
    assert indexes_used(log, MIN) == {"minute-map"}
    assert parse_density(log.files.read_all(path_of(log, 0))).variant == 3


def test_turning_it_off_removes_the_files_at_once() -> None:
    log = log_of("interval", *minutes(10))
    log.configure(time_index_variant="none")
    assert density_files(log) == []
    assert answers(log, minutes(10)) == list(range(10))
    assert indexes_used(log, MIN) == {"timeindex"}


@pytest.mark.parametrize("other", ["none", "minute"])
def test_no_flush_waits_for_a_density_file_that_is_gone(other: str) -> None:
    log = LogHarness(segment_bytes=300)
    for minute in range(10):
        log.append(minute * 60_000)
    log.configure(time_index_variant="interval")
    log.log.offset_for_timestamp(180_000)
    log.configure(time_index_variant=other)
    log.log.offset_for_timestamp(180_000)
    log.configure(time_index_variant="none")
    result = log.append(700_000)
    assert log.log.durable_offset == result.first_offset + 1


def test_start_with_the_setting_off_removes_what_is_left() -> None:
    log = log_of("interval", *minutes(10))
    log.log.close(log.now_ms)
    log.settings = {**log.settings, "time_index_variant": "none"}
    log.open(is_clean=True)
    assert density_files(log) == []


def test_density_file_without_a_log_is_removed() -> None:
    log = log_of("interval", *minutes(4))
    log.log.close(log.now_ms)
    log.files.create(path_of(log, 77)).append(b"lost")
    log.open(is_clean=True)
    assert path_of(log, 77) not in density_files(log)
    assert "00000000000000000077.density" in log.log.recovery_report.removed_files


@pytest.mark.parametrize("variant", VARIANTS)
def test_crash_removes_the_files_of_what_is_read_again(variant: str) -> None:
    log = log_of(variant, *minutes(10))
    log.crash(recovery_point=6)
    assert density_files(log) == ["00000000000000000000.density"]
    assert answers(log, minutes(11)) == [*range(10), None]
    assert indexes_used(log, 5 * MIN) == {variant}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_damaged_file_is_rebuilt(variant: str, damage: str) -> None:
    log = log_of(variant, *minutes(10))
    log.log.close(log.now_ms)
    path = path_of(log, 4)
    content = log.files.read_all(path)
    if damage == "flip":
        log.files.damage(path, 35, bytes([content[35] ^ 1]))
    elif damage == "gone":
        log.files.unlink(path)
    else:
        log.files.replace_atomically(path, content[:-7] if damage == "cut" else b"")
    log.open(is_clean=True)
    assert answers(log, minutes(11)) == [*range(10), None]
    assert indexes_used(log, 5 * MIN) == {variant}
    log.log.close(log.now_ms)
    assert problems(log) == []


def test_file_of_a_log_that_another_program_has_extended_is_not_trusted() -> None:
    log = log_of("interval", *minutes(4))
    log.log.close(log.now_ms)
    log.files.open(f"{log.path}/00000000000000000000.log").append(batch(9 * MIN, base_offset=4))
    log.open(is_clean=True)
    assert answers(log, minutes(10)) == [0, 1, 2, 3, *[4] * 6]


def test_retention_removes_density_files_with_their_segments() -> None:
    log = log_of("interval", *minutes(10), retention_ms=1)
    log.log.delete_before(8)
    delete_expired(log.log, log.now_ms)
    assert density_files(log) == [f"{base:020d}.density.deleted" for base in (0, 4)]
    log.now_ms += 1_000_000
    run_steps(log.log.delete_pending_files(log.now_ms))
    assert density_files(log) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_file_that_covers_more_than_recovery_left_is_not_trusted(variant: str) -> None:
    log = log_of(variant, *minutes(10), roll_every=20)
    log.log.close(log.now_ms)
    path = f"{log.path}/00000000000000000000.log"
    log.files.damage(path, log.files.size(path) - 5, b"torn!")
    log.open(is_clean=False)
    assert log.log.recovery_report.truncated_bytes > 0
    log.append(20 * MIN)
    assert answers(log, minutes(22)) == [*range(9), *[9] * 12, None]
    log.log.close(log.now_ms)
    assert problems(log) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_compacted_segment_has_a_density_file_of_its_own(variant: str) -> None:
    log = LogHarness(
        time_index_variant=variant, index_interval_bytes=0, cleanup_policy="compact",
        min_cleanable_dirty_ratio=0, file_delete_delay_ms=0,
    )  # fmt: skip
    for number in range(12):
        log.append(number * MIN, key=b"%d" % (number % 5))
        if number % 4 == 3:
            log.log.roll(log.now_ms)
    result = run_steps(compact(log.log, now_ms=log.now_ms, map_bytes=2**20))
    assert result is not None
    assert result.records_dropped == 7
    assert answers(log, minutes(13)) == [*[7] * 8, 8, 9, 10, 11, None]
    assert indexes_used(log, 9 * MIN) == {variant}
    run_steps(log.log.delete_pending_files(log.now_ms))
    log.log.close(log.now_ms)
    assert problems(log) == []
    log.open(is_clean=True)
    assert answers(log, minutes(13)) == [*[7] * 8, 8, 9, 10, 11, None]


@pytest.mark.parametrize("variant", VARIANTS)
def test_disk_that_takes_no_density_file_fails_nothing(variant: str) -> None:
    log = log_of(variant, *minutes(3))

    def refuse(operation: Operation, path: str) -> None:
        if ".density" in path:
            raise OSError(28, "no space left", path)

    log.files.before_operation = refuse
    for minute in range(3, 10):
        log.log.roll(log.now_ms)
        log.append(minute * MIN)
    assert answers(log, minutes(11)) == [*range(10), None]
    log.log.close(log.now_ms)
    log.files.before_operation = None
    log.open(is_clean=True)
    assert answers(log, minutes(11)) == [*range(10), None]


@pytest.mark.parametrize("variant", VARIANTS)
def test_lookup_makes_the_density_file_that_a_full_disk_refused_at_the_roll(variant: str) -> None:
    log = log_of(variant, *minutes(4))

    def refuse(operation: Operation, path: str) -> None:
        if ".density" in path:
            raise OSError(28, "no space left", path)

    log.files.before_operation = refuse
    log.log.roll(log.now_ms)
    log.append(4 * MIN)
    log.append(5 * MIN)
    log.files.before_operation = None
    assert answers(log, range(5 * MIN, 7 * MIN, MIN)) == [5, None]
    for minute in range(6, 9):
        log.append(minute * MIN)
    assert answers(log, minutes(10)) == [*range(9), None]
    assert density_files(log) == [], "that of the active segment is open"
    log.log.roll(log.now_ms)
    log.append(9 * MIN)
    assert [offset for _, offset in stored(log, 4)][-3:] == [6, 7, 8]
    assert answers(log, minutes(11)) == [*range(10), None]
    log.log.close(log.now_ms)
    assert problems(log) == []
    log.open(is_clean=True)
    assert {index for minute in minutes(10) for index in indexes_used(log, minute)} == {variant}


def test_lookup_goes_by_the_time_index_when_the_density_file_cannot_be_read() -> None:
    log = log_of("interval", *minutes(10))
    assert indexes_used(log, 2 * MIN) == {"interval"}
    (closed,) = guides(log.log.segments.first)
    log.files.fault = Fault(at=0, kinds=frozenset({Operation.READ}))
    assert guides(log.log.segments.first) == (closed,)
    assert answers(log, range(2 * MIN, 3 * MIN, MIN)) == [2]
    assert log.files.faults_raised == 1
    assert indexes_used(log, 2 * MIN) == {"interval"}


def test_coarser_entries_cost_a_longer_scan_and_nothing_else() -> None:
    costs = {}
    for variant in ("none", *VARIANTS):
        log = log_of(
            variant, *range(0, 10 * MIN, 1_000), roll_every=1_000, index_interval_bytes=500
        )
        explained = log.log.explain_offset_for_timestamp(5 * MIN + 50_000)
        assert explained.found is not None
        assert explained.found.offset == 350
        costs[variant] = explained.searched[0].batches_scanned
    assert costs["none"] < 10
    for variant in VARIANTS:
        assert 45 < costs[variant] < 60


def test_export_to_kafka_leaves_density_files_out() -> None:
    assert is_exported("00000000000000000000.timeindex")
    assert not is_exported("00000000000000000000.density")
