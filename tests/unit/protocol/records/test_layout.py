"""The formats' numbers agree with one another and with the words of the specification."""

from protocol.records import layout


def test_field_positions_of_magic_2_follow_from_their_widths() -> None:
    fields = [
        ("q", layout.OFFSET_AT), ("i", layout.SIZE_AT), ("i", layout.LEADER_EPOCH_AT),
        ("b", layout.MAGIC_AT), ("I", layout.CRC_AT), ("h", layout.ATTRIBUTES_AT),
        ("i", layout.LAST_OFFSET_DELTA_AT), ("q", layout.BASE_TIMESTAMP_AT),
        ("q", layout.MAX_TIMESTAMP_AT), ("q", layout.PRODUCER_ID_AT),
        ("h", layout.PRODUCER_EPOCH_AT), ("i", layout.BASE_SEQUENCE_AT),
        ("i", layout.RECORDS_COUNT_AT),
    ]  # fmt: skip
    assert ">" + "".join(width for width, _ in fields) == layout.HEADER.format
    widths = {"b": 1, "h": 2, "i": 4, "I": 4, "q": 8}
    position = 0
    for width, stated in fields:
        assert stated == position
        position += widths[width]
    assert position == layout.RECORDS_AT == layout.BATCH_OVERHEAD == 61


def test_old_formats_have_their_overheads() -> None:
    assert layout.V0_HEADER.size == layout.V0_KEY_SIZE_AT
    assert layout.V1_HEADER.size == layout.V1_KEY_SIZE_AT
    assert (layout.V0_OVERHEAD, layout.V1_OVERHEAD) == (26, 34)


def test_flags_do_not_overlap() -> None:
    bits = [
        layout.CODEC_MASK, layout.TIMESTAMP_TYPE_BIT, layout.TRANSACTIONAL_BIT,
        layout.CONTROL_BIT, layout.DELETE_HORIZON_BIT,
    ]  # fmt: skip
    assert sum(bits) == 0x7F
    assert max(layout.Codec) <= layout.CODEC_MASK
