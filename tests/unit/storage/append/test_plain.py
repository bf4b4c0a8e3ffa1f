"""The shortcut of an append: what takes it, and that it plans what the general way plans."""

import gzip
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.builder import build_batch, build_message_set
from protocol.records.checksums import crc32c
from protocol.records.layout import (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    CONTROL_BIT,
    CRC_AT,
    INT16,
    INT32,
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OFFSET_AT,
    RECORDS_AT,
    SIZE_AT,
    UINT32,
    Codec,
    TimestampType,
)
from protocol.records.record import Record
from storage.append import plan as append
from storage.append.opening import AT_ONCE_PIECES, Opening
from storage.append.plain import plan_plain
from storage.append.plan import AppendPlan, AppendRules, plan_append
from storage.errors import AppendRejected, TooMuchAtOnce, UnsupportedCompressionType

NOW_MS = 1_700_000_000_000
RULES = AppendRules(decompressed_bytes_max=1 << 20)
RECORDS = [Record(i, NOW_MS + i * 7 % 5, b"k%d" % i, b"value" * i) for i in range(9)]


def plain(data: bytes, rules: AppendRules = RULES) -> AppendPlan | None:
    return plan_plain(memoryview(bytearray(data)), rules, NOW_MS, 1_000, 3, Opening(INT64_MAX))


def planned(data: bytes, rules: AppendRules, version: int | None = None) -> AppendPlan:
    return plan_append(
        data,
        rules=rules,
        now_ms=NOW_MS,
        next_offset=1_000,
        leader_epoch=3,
        produce_version=version,
    )


def general(
    data: bytes, rules: AppendRules, monkeypatch: pytest.MonkeyPatch, version: int | None = None
) -> AppendPlan:
    with monkeypatch.context() as patch:
        patch.setattr(append, "plan_plain", lambda *_, **__: None)
        return planned(data, rules, version)


def with_right_crc(data: bytearray) -> bytes:
    UINT32.pack_into(data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
    return bytes(data)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("producer_id", [-1, 77])
@pytest.mark.parametrize("count", [1, 9])
def test_a_usual_batch_takes_the_shortcut_to_the_same_plan(
    codec: Codec, producer_id: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build_batch(
        RECORDS[:count],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=2**31 - 3 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    found = plain(data)
    expected = general(data, RULES, monkeypatch)
    assert found == expected
    assert found is not None
    assert bytes(found.buffer) == bytes(expected.buffer)


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 13])
@pytest.mark.parametrize("codec", Codec)
def test_each_version_with_record_batches_takes_the_shortcut(
    version: int, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build_batch(RECORDS, codec=codec)
    if codec is Codec.ZSTD and version < 7:
        with pytest.raises(UnsupportedCompressionType):
            planned(data, RULES, version)
        return
    expected = general(data, RULES, monkeypatch, version)
    monkeypatch.setattr(append, "_examine", _fail)
    assert planned(data, RULES, version) == expected


def _fail(*_: object) -> None:
    raise AssertionError("the general way was taken")


@pytest.mark.parametrize("codec", Codec)
def test_a_first_sequence_and_the_largest_sizes_take_the_shortcut(codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    exact = replace(RULES, max_message_bytes=len(data), segment_bytes=len(data))
    assert plain(data, exact) is not None
    assert plain(data, replace(exact, max_message_bytes=len(data) - 1)) is None
    assert plain(data, replace(exact, segment_bytes=len(data) - 1)) is None


@pytest.mark.parametrize(("late_ms", "is_plain"), [(0, True), (1_000, True), (1_001, False)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_bounds_of_time_take_the_shortcut(sign: int, late_ms: int, is_plain: bool) -> None:
    rules = replace(RULES, timestamp_before_max_ms=1_000, timestamp_after_max_ms=1_000)
    data = build_batch([Record(0, NOW_MS + sign * late_ms, None, b"v")])
    assert (plain(data, rules) is not None) is is_plain


def test_a_batch_of_many_pieces_is_left_to_another_thread() -> None:
    pieces = b"".join(gzip.compress(b"") for _ in range(AT_ONCE_PIECES))
    usual = bytearray(build_batch(RECORDS, codec=Codec.GZIP))
    data = usual[:RECORDS_AT] + pieces + usual[RECORDS_AT:]
    INT32.pack_into(data, SIZE_AT, len(data) - LOG_OVERHEAD)
    with pytest.raises(TooMuchAtOnce):
        plain(with_right_crc(data))


def unusual_batches() -> dict[str, bytes]:
    usual = build_batch(RECORDS)
    made = {
        "nothing": b"",
        "a header and no more": usual[:61],
        "cut off": usual[:-1],
        "bytes after it": usual + b"\0",
        "two batches": usual + usual,
        "magic 1": build_message_set(RECORDS, 1, Codec.NONE),
        "a broken record": with_right_crc(bytearray(usual[:70] + b"\xff" + usual[71:])),
        "a broken checksum": usual[:-1] + b"\xff",
        "compressed rubbish": with_right_crc(bytearray(usual[:22] + b"\x03" + usual[23:])),
    }
    for name, position, value in (
        ("a base offset", OFFSET_AT + 4, INT32.pack(5)),
        ("another maximum", MAX_TIMESTAMP_AT + 4, INT32.pack(1)),
        ("a control batch", ATTRIBUTES_AT, INT16.pack(CONTROL_BIT)),
        ("the first codec number that is free", ATTRIBUTES_AT, INT16.pack(5)),
        ("no such codec", ATTRIBUTES_AT, INT16.pack(6)),
        ("a size that is not its own", SIZE_AT, INT32.pack(len(usual) - LOG_OVERHEAD - 1)),
        ("another magic", MAGIC_AT, b"\x01"),
        ("an unknown bit", ATTRIBUTES_AT, INT16.pack(0x100)),
        ("flagged LogAppendTime", ATTRIBUTES_AT, INT16.pack(8)),
        ("another count", 57, INT32.pack(8)),
        ("no records", 57, INT32.pack(0)),
        ("another last offset", 23, INT32.pack(4)),
    ):
        changed = bytearray(usual)
        changed[position : position + len(value)] = value
        made[name] = with_right_crc(changed)
    idempotent = bytearray(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0))
    INT32.pack_into(idempotent, BASE_SEQUENCE_AT, -1)
    made["idempotent without a sequence"] = with_right_crc(idempotent)
    bare = bytearray(usual[:RECORDS_AT])
    INT32.pack_into(bare, SIZE_AT, len(bare) - LOG_OVERHEAD)
    INT32.pack_into(bare, 23, -1)
    INT32.pack_into(bare, 57, 0)
    bare[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = b"\xff" * 8
    made["a header that counts no records"] = with_right_crc(bare)
    return made


@pytest.mark.parametrize("name", unusual_batches())
def test_what_is_unusual_is_left_to_the_general_way_untouched(name: str) -> None:
    data = bytearray(unusual_batches()[name])
    before = bytes(data)
    assert plan_plain(memoryview(data), RULES, NOW_MS, 1_000, 3, Opening(INT64_MAX)) is None
    assert bytes(data) == before


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME),
        replace(RULES, codec=Codec.ZSTD),
        replace(RULES, max_message_bytes=100),
        replace(RULES, segment_bytes=100),
        replace(RULES, timestamp_after_max_ms=1),
        replace(RULES, timestamp_before_max_ms=-4),
    ],
)
def test_a_topic_that_changes_or_refuses_it_goes_the_general_way(rules: AppendRules) -> None:
    assert plain(build_batch(RECORDS), rules) is None


def test_a_compacted_topic_sends_keyless_records_the_general_way() -> None:
    rules = replace(RULES, compacted=True)
    assert plain(build_batch(RECORDS), rules) is not None
    assert plain(build_batch([Record(0, NOW_MS, None, b"v")]), rules) is None


@settings(max_examples=300, deadline=None)
@given(
    damage=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    codec=st.sampled_from(Codec),
    repairs_crc=st.booleans(),
    window=st.sampled_from([0, 3, INT64_MAX]),
)
def test_damaged_bytes_are_planned_the_same_or_left_alone(
    damage: list[tuple[int, int]], codec: Codec, repairs_crc: bool, window: int
) -> None:
    data = bytearray(build_batch(RECORDS, codec=codec))
    for position, value in damage:
        data[position % len(data)] = value
    stored = with_right_crc(data) if repairs_crc else bytes(data)
    rules = replace(RULES, timestamp_after_max_ms=window, timestamp_before_max_ms=window)
    found = plain(stored, rules)
    if found is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        try:
            expected = general(stored, rules, patch)
        except AppendRejected as error:
            raise AssertionError(
                f"the general way refuses what the shortcut took: {error}"
            ) from error
    assert found == expected
    assert bytes(found.buffer) == bytes(expected.buffer)
