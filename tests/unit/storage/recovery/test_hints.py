"""What a start takes over from checkpoints, and what it says about its repairs."""

from storage.append.plan import Origin
from storage.disk.file_names import LOG_SUFFIX, MANIFEST_NAME, TXN_INDEX_SUFFIX
from storage.log.values import Isolation
from storage.segment.txn_index import AbortedTxn
from tests.support.logs import LogHarness, marker, produced
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
    log.log.leader_epoch += 1
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


def test_aborts_that_no_fact_vouches_for_are_read_again_where_their_index_is_damaged() -> None:
    log = LogHarness()
    log.write(produced(1, producer_id=7, sequence=0, is_transactional=True))
    log.write(marker(commit=False, producer_id=7, timestamp_ms=2), origin=Origin.COORDINATOR)
    log.log.roll(5)
    log.append(3)

    def aborted() -> list[AbortedTxn] | None:
        found = log.log.read(0, max_bytes=999, isolation=Isolation.READ_COMMITTED)
        return found.aborted_transactions

    before = aborted()
    assert before
    log.log.close(log.now_ms)
    log.files.unlink(f"{log.path}/{MANIFEST_NAME}")
    log.files.open(path_of(0, TXN_INDEX_SUFFIX)).append(b"torn")
    log.open(is_clean=True)
    assert [base for base, _ in log.log.recovery_report.rebuilt_indexes] == [0]
    assert aborted() == before
