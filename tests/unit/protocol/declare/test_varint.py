"""Are variable-length integers exact at every boundary, and bounded?"""

from __future__ import annotations

import pytest

from protocol.declare import varint

UNSIGNED = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2097151, "ffff7f"),
    (2097152, "80808001"),
    (268435455, "ffffff7f"),
    (268435456, "8080808001"),
    (2**32 - 1, "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "encoded"), UNSIGNED)
def test_unsigned_at_its_boundaries(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.encode_unsigned(value) == data
    assert varint.decode_unsigned(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@pytest.mark.parametrize("value", [-1, 2**32])
def test_unsigned_outside_its_range(value: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        varint.encode_unsigned(value)


@pytest.mark.parametrize("encoded", [encoded for _, encoded in UNSIGNED])
def test_unsigned_cut_short(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for end in range(len(data)):
        with pytest.raises(IndexError):
            varint.decode_unsigned(data[:end], 0)


def test_endless_unsigned_is_cut_off_after_five_bytes() -> None:
    with pytest.raises(ValueError, match="longer than 5"):
        varint.decode_unsigned(b"\x80" * 50, 0)


def test_unsigned_of_five_bytes_may_still_be_too_big() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        varint.decode_unsigned(bytes.fromhex("ffffffff1f"), 0)


def test_unknown_tags_are_stepped_over() -> None:
    section = bytes.fromhex("07 02 aabb 8101 00")
    assert varint.skip_tags(section + b"!", 0, 2) == len(section)


def test_tag_that_claims_too_much_is_refused() -> None:
    with pytest.raises(IndexError):
        varint.skip_tags(bytes.fromhex("07 05 aabb"), 0, 1)


def test_tag_count_beyond_the_bytes_stops_at_their_end() -> None:
    with pytest.raises(IndexError):
        varint.skip_tags(bytes(10), 0, 2**32 - 1)
