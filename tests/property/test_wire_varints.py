"""For any number in range: what was written is read, and the length is the least possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.declare import varint


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_round_trip(value: int, behind: bytes) -> None:
    data = varint.encode_unsigned(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert varint.decode_unsigned(data + behind, 0) == (value, len(data))


@given(st.binary(max_size=12))
def test_arbitrary_bytes_raise_the_promised_errors(data: bytes) -> None:
    try:
        _, position = varint.decode_unsigned(data, 0)
    except (IndexError, ValueError):
        return
    assert position <= len(data)
