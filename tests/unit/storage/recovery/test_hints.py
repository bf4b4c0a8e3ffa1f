"""What a start takes over from checkpoints, and what it says about its repairs."""

from storage.disk.file_names import LOG_SUFFIX
from tests.support.logs import LogHarness
from tests.unit.storage.recovery.test_recovery import log_of_three_segments, path_of, timestamps


def test_even_one_compacted_offset_of_another_program_is_taken_over() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    assert log.open(is_clean=True, cleaned_offset=0).cleaned_offset == 0
    log.log.close(log.now_ms)
    assert log.open(is_clean=True, cleaned_offset=1).cleaned_offset == 1


def test_a_start_below_zero_is_zero() -> None:
    log = LogHarness()
    log.append(1)
    log.log.close(log.now_ms)
    assert log.open(is_clean=True, log_start_offset=-5).log_start_offset == 0
    assert timestamps(log) == [1]


def test_a_log_of_which_no_segment_is_left_keeps_its_epoch() -> None:
    log = LogHarness()
    log.log.bump_leader_epoch()
    log.append(1)
    log.log.close(log.now_ms)
    log.files.unlink(path_of(0, LOG_SUFFIX))
    log.open(is_clean=True, recovery_point=1)
    assert log.log.quarantine is not None
    assert log.log.leader_epoch == 1


def test_an_index_that_is_not_the_stored_one_is_named_so() -> None:
    log = log_of_three_segments()
    log.log.close(log.now_ms)
    path = path_of(0, ".timeindex")
    log.files.open(path).append(bytes(12))
    log.open(is_clean=True)
    report = log.log.recovery_report
    assert report.rebuilt_indexes == [(0, "an index differs from the manifest")]
    assert timestamps(log) == list(range(9))
