"""What was fetched is handed out once, in order, without what must stay hidden."""

import pytest

from client.aio.fetching import FetchOptions, PartitionReader
from client.core.offsets import Isolation
from client.errors import BadRecords
from client.types import TopicPartition
from protocol.api.fetch import AbortedTransaction, PartitionData
from protocol.records.builder import build_batch, build_end_txn_marker
from protocol.records.layout import Codec
from protocol.records.record import Record

TP = TopicPartition("t", 0)


def batch(
    base_offset: int, *values: str, producer_id: int = -1, codec: Codec = Codec.NONE
) -> bytes:
    is_transactional = producer_id >= 0
    return build_batch(
        [Record(0, 1000 + n, None, value.encode()) for n, value in enumerate(values)],
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=1000,
        base_offset=offset,
    )


def reader_with(
    *parts: bytes,
    position: int = 0,
    aborted: list[AbortedTransaction] | None = None,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> PartitionReader:
    reader = PartitionReader(TP, FetchOptions(isolation=isolation))
    reader.seek(position)
    reader.add(PartitionData(records=b"".join(parts), aborted_transactions=aborted))
    return reader


def values(reader: PartitionReader, limit: int = 100) -> list[str]:
    return [(record.value or b"").decode() for record in reader.take(limit)]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_in_order_whatever_the_codec(codec: Codec) -> None:
    reader = reader_with(batch(0, "a", "b", codec=codec), batch(2, "c", codec=codec))
    assert values(reader) == ["a", "b", "c"]
    assert reader.position == 3
    assert not reader.has_data
    assert reader.buffered_bytes == 0


def test_records_before_the_position_are_passed_over() -> None:
    assert values(reader_with(batch(0, "a", "b", "c"), position=1)) == ["b", "c"]


def test_taking_stops_at_the_limit_and_continues_there() -> None:
    reader = reader_with(batch(0, "a", "b", "c"))
    assert values(reader, 2) == ["a", "b"]
    assert reader.position == 2
    assert values(reader, 2) == ["c"]


def test_taking_one_by_one_moves_the_position_each_time() -> None:
    reader = reader_with(batch(5, "a", "b"), position=5)
    seen = []
    while (record := reader.take_one()) is not None:
        seen.append((record.offset, reader.position))
    assert seen == [(5, 6), (6, 7)]


def test_the_next_fetch_begins_after_what_is_here() -> None:
    assert reader_with(batch(0, "a", "b"), batch(2, "c")).fetch_offset == 3


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    reader = reader_with(batch(0, "a"), batch(1, "b")[:-3])
    assert values(reader) == ["a"]
    assert reader.fetch_offset == 1


def test_a_seek_drops_what_was_fetched() -> None:
    reader = reader_with(batch(0, "a"))
    epoch = reader.epoch
    reader.seek(7)
    assert (reader.position, reader.has_data, reader.buffered_bytes) == (7, False, 0)
    assert reader.epoch == epoch + 1


def test_markers_are_never_handed_out_and_move_the_position() -> None:
    reader = reader_with(batch(0, "a", producer_id=9), marker(1, 9, commit=True))
    assert values(reader) == ["a"]
    assert reader.position == 2


def test_aborted_records_are_seen_only_by_those_who_read_uncommitted() -> None:
    parts = (
        batch(0, "gone", producer_id=9),
        batch(1, "kept"),
        marker(2, 9, commit=False),
        batch(3, "again", producer_id=9),
        marker(4, 9, commit=True),
    )
    aborted = [AbortedTransaction(producer_id=9, first_offset=0)]
    committed = reader_with(*parts, aborted=aborted, isolation=Isolation.READ_COMMITTED)
    assert values(committed) == ["kept", "again"]
    assert values(reader_with(*parts)) == ["gone", "kept", "again"]


def test_only_the_aborted_producers_records_are_hidden() -> None:
    parts = (
        batch(0, "mine", producer_id=1),
        batch(1, "other", producer_id=2),
        marker(2, 1, commit=False),
        marker(3, 2, commit=True),
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    reader = reader_with(*parts, aborted=aborted, isolation=Isolation.READ_COMMITTED)
    assert values(reader) == ["other"]


def test_a_damaged_batch_is_an_error_that_says_where() -> None:
    damaged = bytearray(batch(4, "a"))
    damaged[-1] ^= 1
    reader = reader_with(bytes(damaged), batch(5, "b"), position=4)
    with pytest.raises(BadRecords, match=r"offset 4 of t-0 .* check sum"):
        reader.take(10)


def test_bytes_that_are_no_batch_are_an_error() -> None:
    with pytest.raises(BadRecords, match="t-0 cannot be read"):
        reader_with(b"\x00" * 100)
