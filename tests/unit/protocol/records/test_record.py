"""Records as values: golden bytes are read, control records understood."""

import pytest

from protocol.errors import InvalidRecords
from protocol.records.layout import ControlType
from protocol.records.record import Record, control_type
from tests.unit.protocol.records.samples import (
    ABORT,
    RECORDS,
    V0,
    V1,
    V1_STAMPED,
    V2,
    records_of,
)


def test_golden_bytes_are_read() -> None:
    assert records_of(V0) == [Record(0, -1, None, b"a")]
    assert records_of(V1) == [Record(0, 100, b"k", b"a")]
    assert records_of(V1_STAMPED) == [Record(5, 5000, b"k", b"a")]
    assert records_of(V2) == RECORDS
    (marker,) = records_of(ABORT)
    assert (marker.offset, marker.timestamp) == (29, 5000)
    assert control_type(marker) == ControlType.ABORT


def test_control_records_of_the_future_and_of_nonsense() -> None:
    assert control_type(Record(0, 0, b"\x00\x00\x00\x63", None)) is None
    for key in (None, b"\x00\x00\x00"):
        with pytest.raises(InvalidRecords):
            control_type(Record(0, 0, key, None))
