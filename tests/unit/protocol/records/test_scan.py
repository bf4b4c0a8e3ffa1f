"""What lies in a buffer, and where sound bytes end."""

import pytest

from protocol.errors import CorruptRecords
from protocol.records.builder import build_batch
from protocol.records.layout import Codec, TimestampType
from protocol.records.scan import Entry, Stop, iter_records, scan_checked, scan_entries
from tests.unit.protocol.records.samples import (
    ABORT,
    RECORDS,
    V0,
    V1,
    V1_STAMPED,
    V2,
)


def test_entries_name_what_the_headers_say() -> None:
    data = V0 + V1_STAMPED + V2 + ABORT
    entries = list(scan_entries(data))
    assert [entry.magic for entry in entries] == [0, 1, 2, 2]
    assert [entry.next_offset for entry in entries] == [1, 6, 3, 30]
    assert [entry.timestamp_type for entry in entries] == [
        TimestampType.NO_TIMESTAMP_TYPE,
        TimestampType.LOG_APPEND_TIME,
        TimestampType.CREATE_TIME,
        TimestampType.CREATE_TIME,
    ]
    marker = entries[-1]
    assert marker.is_control
    assert marker.is_transactional
    assert (marker.producer_id, marker.last_sequence, marker.codec) == (1, -1, Codec.NONE)
    assert not entries[1].is_control
    assert entries[2] == Entry(63, 92, 2, 0, 2, 999, 0, 0, 100, -1, -1, -1, 3)


def test_sequences_of_entries_wrap() -> None:
    (entry,) = scan_entries(build_batch(RECORDS, producer_id=1, base_sequence=2**31 - 1))
    assert entry.last_sequence == 1


def test_scan_of_sound_bytes_raises_at_what_is_no_entry() -> None:
    walk = scan_entries(V2 + bytes(20))
    assert next(walk).size == 92
    with pytest.raises(CorruptRecords):
        next(walk)
    assert [entry.size for entry in scan_entries(V2 + V2[:50])] == [92]


def test_checked_scan_says_where_the_sound_bytes_end() -> None:
    assert scan_checked(V2)[1:] == (92, Stop.END)
    assert scan_checked(V2 + V1[:20])[1:] == (92, Stop.INCOMPLETE)
    assert scan_checked(V2 + bytes(20))[1:] == (92, Stop.CORRUPT)
    damaged = bytearray(V0 + V2)
    damaged[-1] ^= 1
    assert scan_checked(damaged)[1:] == (27, Stop.CORRUPT)
    assert scan_checked(V0 + V2, 27, 80)[1:] == (27, Stop.INCOMPLETE)


def test_records_of_too_few_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptRecords):
        list(iter_records(V2[:10]))
