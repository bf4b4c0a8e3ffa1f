"""A window over a log, beyond its records: what it costs, what it remembers, how it ends."""

import pytest

from protocol.errors import RecordsError
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, rebuild_batch
from protocol.records.compression import compress
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from protocol.time_windows import NO_END_MS
from storage.append.plan import Origin
from storage.disk.steps import OffLoop, run_steps
from storage.errors import OffsetOutOfRange, WindowTooLarge
from storage.log.values import Isolation, ReadResult
from storage.segment.remote.log import RemoteBytesNeeded
from storage.window import log_window
from storage.window.log_window import LogWindow
from tests.support.logs import LogHarness, batch, marker, produced
from tests.support.tiered import TieredHarness, forget_all
from tests.support.window_reader import COMMITTED, UNCOMMITTED, consume, expected

LIMIT = 1 << 20


def read(
    window: LogWindow,
    offset: int,
    *,
    max_bytes: int = LIMIT,
    isolation: Isolation = UNCOMMITTED,
    min_one: bool = True,
) -> ReadResult:
    return run_steps(window.read(offset, max_bytes=max_bytes, isolation=isolation, min_one=min_one))


def offsets(result: ReadResult) -> list[tuple[int, int, int]]:
    """(first offset, next offset, records) of the batches."""
    return [(e.base_offset, e.next_offset, e.records_count) for e in scan_entries(result.records)]


class CountedReads:
    """How many bytes a log was read, by offset."""

    def __init__(self, log: LogHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        reading = log.log.read

        def counted(offset: int, **fields: object) -> ReadResult:
            result = reading(offset, **fields)  # type: ignore[arg-type]
            self.bytes += len(result.records)
            return result

        monkeypatch.setattr(log.log, "read", counted)


def disordered() -> LogHarness:
    """Batches of 10 to 40, each across the edges of [15, 25), and a tail of 60 that is not."""
    log = LogHarness()
    for _ in range(20):
        log.append(10, 20, 30, 40)
    for _ in range(50):
        log.append(60, 61, 60)
    return log


def test_a_stretch_without_a_match_is_one_batch_without_records() -> None:
    log = disordered()
    window = LogWindow(log.log, 15, 25)
    result = read(window, 77)
    assert offsets(result) == [(76, 80, 1), (80, 230, 0)]
    assert (result.next_offset, result.high_watermark) == (230, 230)
    assert offsets(read(window, 80)) == [(80, 230, 0)]
    assert offsets(read(window, 230)) == []


def test_it_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = disordered()
    window = LogWindow(log.log, 15, 25)
    reads = CountedReads(log, monkeypatch)
    assert offsets(read(window, 80)) == [(80, 230, 0)]
    assert reads.bytes > 0
    reads.bytes = 0
    assert offsets(read(window, 80)) == [(80, 230, 0)]
    assert offsets(read(window, 111)) == [(111, 230, 0)]
    assert reads.bytes == 0
    # What comes later is examined, and only that.
    log.append(20)
    assert offsets(read(window, 80))[-1] == (230, 231, 1)
    assert 0 < reads.bytes < 200


def test_segments_outside_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogHarness(segment_bytes=400)
    for time in range(100):
        log.append(time, size=100)
    window = LogWindow(log.log, 50, 53)
    reads = CountedReads(log, monkeypatch)
    assert [record.timestamp for record in consume(window)] == [50, 51, 52]
    assert reads.bytes <= 3 * 400


def test_what_a_read_may_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = disordered()
    monkeypatch.setattr(log_window, "SCAN_BYTES", 600)
    monkeypatch.setattr(log_window, "_CHUNK_MIN", 300)
    log.append(20)
    window = LogWindow(log.log, 15, 25)
    first = read(window, 80, max_bytes=1)
    (part,) = offsets(first)
    assert part[0] == 80
    assert part[1] < 230
    assert [r.offset for r in consume(window, 80, max_bytes=1)] == [230]


def test_a_search_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    log = disordered()
    monkeypatch.setattr(log_window, "SCAN_BYTES", 600)
    monkeypatch.setattr(log_window, "SEARCH_BYTES", 1200)
    monkeypatch.setattr(log_window, "_CHUNK_MIN", 300)
    window = LogWindow(log.log, 45, 46)
    with pytest.raises(WindowTooLarge):
        run_steps(window.find(45, UNCOMMITTED))


def test_a_run_of_batches_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogHarness()
    chunks: list[ReadResult] = []
    reading = log.log.read

    def noted(offset: int, **fields: object) -> ReadResult:
        chunks.append(reading(offset, **fields))  # type: ignore[arg-type]
        return chunks[-1]

    for time in (10, 20, 21, 22, 40):
        log.append(time, time)
    monkeypatch.setattr(log.log, "read", noted)
    window = LogWindow(log.log, 15, 23)
    result = read(window, 0)
    assert offsets(result) == [(2, 4, 2), (4, 6, 2), (6, 8, 2), (8, 10, 0)]
    result = read(LogWindow(log.log, 15, NO_END_MS), 0)
    assert offsets(result) == [(2, 4, 2), (4, 6, 2), (6, 8, 2), (8, 10, 2)]
    assert result.records.obj is chunks[-1].records.obj


def test_what_lies_inside_is_as_it_was() -> None:
    log = LogHarness()
    log.append(20, 21, 22)
    log.append(23, 21)
    result = read(LogWindow(log.log, 20, 24), 0)
    whole = log.log.read(0, max_bytes=LIMIT, isolation=UNCOMMITTED)
    assert bytes(result.records) == bytes(whole.records)
    one = read(LogWindow(log.log, 23, NO_END_MS), 3)
    assert offsets(one) == [(3, 5, 1)]


def test_large_batches_are_opened_in_the_side_thread() -> None:
    log = LogHarness()
    records = [Record(i, i % 50, None, b"x" * 1000) for i in range(500)]
    log.write(build_batch(records, codec=Codec.ZSTD))
    steps = LogWindow(log.log, 10, 20).read(0, max_bytes=1, isolation=UNCOMMITTED, min_one=True)
    call = next(step for step in steps if step is not None)
    assert isinstance(call, OffLoop)
    assert not call.is_done


def test_an_aborted_transaction_before_the_answer_hides_nothing_in_it() -> None:
    """Its marker is not in the answer, so the answer must not name the transaction."""
    log = LogHarness()
    log.write(produced(5, producer_id=7, sequence=0, is_transactional=True))
    log.write(marker(commit=False, producer_id=7, timestamp_ms=1), origin=Origin.COORDINATOR)
    log.write(produced(20, producer_id=7, sequence=1, is_transactional=True))
    log.write(marker(commit=True, producer_id=7, timestamp_ms=1), origin=Origin.COORDINATOR)
    window = LogWindow(log.log, 15, 25)
    result = read(window, 0, isolation=COMMITTED)
    assert result.aborted_transactions == []
    assert [record.offset for record in consume(window, isolation=COMMITTED)] == [2]
    aborted = LogWindow(log.log, 0, 10)
    assert consume(aborted, isolation=COMMITTED) == []
    assert [record.offset for record in consume(aborted)] == [0]


def test_an_answer_without_room_is_empty() -> None:
    log = disordered()
    window = LogWindow(log.log, 15, 25)
    assert offsets(read(window, 0, max_bytes=10, min_one=False)) == []
    assert len(offsets(read(window, 0, max_bytes=10, min_one=True))) == 1


def test_offsets_beyond_the_log_are_refused() -> None:
    log = disordered()
    window = LogWindow(log.log, 15, 25)
    for offset in (-1, 231):
        with pytest.raises(OffsetOutOfRange):
            read(window, offset)


def test_an_end_that_moves_back_strands_no_reader() -> None:
    """Without statistics a segment may hold anything; when they are known, the end is before it."""
    log = LogHarness()
    log.append(20)
    log.log.roll(0)
    log.append(60)
    log.crash()
    log.append(70)
    window = LogWindow(log.log, 15, 25)
    assert window.end_offset(UNCOMMITTED, 0) == 3
    for segment in log.log.segments:
        segment.min_timestamp = 20 if segment.base_offset == 0 else 60
    again = LogWindow(log.log, 15, 25)
    assert again.end_offset(UNCOMMITTED, 0) == 1
    result = read(again, 3)
    assert (result.high_watermark, result.next_offset) == (3, 3)


def test_deleted_records_of_a_batch_are_left_out() -> None:
    log = LogHarness()
    log.append(20, 21, 22, 23)
    log.log.delete_before(2)
    window = LogWindow(log.log, 15, 25)
    assert [record.offset for record in consume(window, 0)] == [2, 3]
    assert run_steps(window.find(0, UNCOMMITTED)) == (22, 2, 0)


def test_disorder_by_all_codecs() -> None:
    log = LogHarness()
    for codec in Codec:
        log.write(batch(30, 20, 10, 24, codec=codec))
    window = LogWindow(log.log, 15, 25)
    assert consume(window) == expected(log.log, 15, 25, UNCOMMITTED)
    assert len(consume(window)) == 2 * len(Codec)


def test_what_lies_before_damage_is_served() -> None:
    log = LogHarness()
    log.append(20)
    second = log.log.log_end_offset
    log.write(batch(20, 30, codec=Codec.GZIP))
    segment = log.log.segments.active
    log.files.damage(segment.log.path, segment.size - 20, b"\xff" * 8)
    window = LogWindow(log.log, 15, 25)
    assert offsets(read(window, 0)) == [(0, 1, 1)]
    with pytest.raises(RecordsError):
        read(window, second)


def test_snappy_keeps_its_framing() -> None:
    """Some clients read only the one that librdkafka writes, which has no header."""
    log = LogHarness()
    records = [Record(i, 10 * i, None, b"x" * 50) for i in range(3)]
    framed = build_batch(records, codec=Codec.SNAPPY)
    plain = build_batch(records)
    raw = bytearray(
        rebuild_batch(
            RecordBatch(plain),
            compress(Codec.SNAPPY, RecordBatch(plain).payload, like=memoryview(b"")),
            records_count=3,
            max_timestamp=20,
            attributes=Codec.SNAPPY,
            base_timestamp=0,
        )
    )
    assert b"SNAPPY" in framed
    assert b"SNAPPY" not in raw
    log.write(framed)
    log.write(raw)
    window = LogWindow(log.log, 10, 15)
    assert b"SNAPPY" in bytes(read(window, 0, max_bytes=1).records)
    assert b"SNAPPY" not in bytes(read(window, 3).records)
    assert [record.offset for record in consume(window)] == [1, 4]


def test_a_client_that_stays_at_its_offset_gets_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kafkajs does when there is no record in an answer, while others read elsewhere."""
    log = LogHarness()
    log.append(20)
    for _ in range(100):
        log.append(60, 61)
    log.append(20)
    monkeypatch.setattr(log_window, "SCAN_BYTES", 600)
    monkeypatch.setattr(log_window, "_CHUNK_MIN", 300)
    window = LogWindow(log.log, 15, 25)
    answers = []
    for other in range(60):
        result = read(window, 1, max_bytes=1)
        answers.append([entry for entry in scan_entries(result.records) if entry.records_count])
        if answers[-1]:
            break
        read(window, 100 + other, max_bytes=1)
    assert [entry.base_offset for entry in answers[-1]] == [201]
    assert len(answers) > 3


def test_rare_matches_do_not_make_a_read_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the markers between them: what one read examines is bounded in all."""
    log = LogHarness()
    for number in range(60):
        log.write(produced(20, producer_id=7, sequence=number, is_transactional=True))
        log.write(marker(commit=True, producer_id=7, timestamp_ms=1), origin=Origin.COORDINATOR)
        for _ in range(4):
            log.append(60, 61)
    monkeypatch.setattr(log_window, "SCAN_BYTES", 2000)
    monkeypatch.setattr(log_window, "_CHUNK_MIN", 300)
    monkeypatch.setattr(log_window, "_CHUNK_MAX", 300)
    window = LogWindow(log.log, 15, 25)
    reads = CountedReads(log, monkeypatch)
    read(window, 0)
    assert reads.bytes <= 2000 + 300
    assert len(consume(window)) == 60


def test_a_read_over_objects_continues_where_it_lacked_bytes() -> None:
    """Even if memory holds only one range."""
    tiered = TieredHarness(segment_bytes=300_000)
    for _ in range(70):
        tiered.append(10, 30, size=10_000)
    tiered.tier()
    window = LogWindow(tiered.log, 15, 25)
    for _ in range(40):
        try:
            result = read(window, 0, max_bytes=100)
            break
        except RemoteBytesNeeded as need:
            forget_all(tiered.log)
            data = tiered.store.get(need.file.object.key, need.start, need.end)
            need.file.keep(need.start, data)
    else:
        raise AssertionError("the read asks for the same bytes again")
    assert result.next_offset == 140


def test_the_largest_time_is_found_after_many_segments_without_a_match() -> None:
    log = LogHarness(segment_bytes=300)
    log.append(20, size=150)
    for _ in range(50):
        log.append(10, 30, size=150)
    assert len(log.log.segments) > 20
    found = run_steps(LogWindow(log.log, 15, 25).find_max(UNCOMMITTED))
    assert found is not None
    assert (found.offset, found.timestamp) == (0, 20)
