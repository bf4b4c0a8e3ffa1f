"""What may enter a log, with which bytes; case numbers are those of the time semantics."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from config import load, topic_config
from protocol.errors import RecordsError
from protocol.records.batch import RecordBatch
from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.compression import compress
from protocol.records.encode_loops import encode_record
from protocol.records.entry import Entry
from protocol.records.layout import (
    INT64_MAX,
    INT64_MIN,
    LAST_OFFSET_DELTA_AT,
    LEGACY_CRC_AT,
    MAX_TIMESTAMP_AT,
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RECORDS_COUNT_AT,
    TRANSACTIONAL_BIT,
    UINT32,
    Codec,
    TimestampType,
)
from protocol.records.legacy import Message, encode_message
from protocol.records.record import DECOMPRESSED_BYTES_MAX, Record
from protocol.records.scan import iter_records, scan_entries
from storage.append.entries import Window
from storage.append.plan import AppendPlan, AppendRules, Origin, plan_append
from storage.errors import (
    AppendRejected,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnstorableTimestamp,
    UnsupportedCompressionType,
)

NOW = 10_000
CREATE = AppendRules()
STAMP = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
GOLDEN_SENT = bytes.fromhex(
    "0000000000000000000000500000000002d4ac0234000000000002000000000000006400000000000003e7ffffff"
    "ffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b010202680231"
)
GOLDEN_STAMPED = bytes.fromhex(
    "00000000000000070000005000000000026e185091000800000002000000000000006400000000000013"
    "88ffffffffffffffffffffffffffff000000030e000000010261001200860e02026b0262001800c80104026b0102"
    "02680231"
)


def records_at(*timestamps: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, timestamp, key, b"v") for i, timestamp in enumerate(timestamps)]


def plan(
    data: bytes | bytearray | memoryview,
    rules: AppendRules = CREATE,
    *,
    next_offset: int = 0,
    origin: Origin = Origin.CLIENT,
    produce_version: int | None = 9,
    now_ms: int = NOW,
) -> AppendPlan:
    return plan_append(
        data,
        rules=rules,
        now_ms=now_ms,
        next_offset=next_offset,
        leader_epoch=4,
        origin=origin,
        produce_version=produce_version,
    )


def stored(made: AppendPlan) -> list[Record]:
    """The records as a consumer of the plan's bytes reads them; every CRC is checked on the way."""
    found: list[Record] = []
    for entry in scan_entries(made.buffer):
        view: RecordBatch | Message = (
            RecordBatch(made.buffer, entry.position)
            if entry.magic == 2
            else Message(made.buffer, entry.position)
        )
        assert view.crc_ok()
        found += iter_records(made.buffer, entry.position)
    return found


def bad_indexes(rejection: AppendRejected) -> list[int]:
    return [error.batch_index for error in rejection.record_errors]


def reseal(data: bytearray, position: int = 0) -> bytearray:
    batch = RecordBatch(data, position)
    UINT32.pack_into(data, position + 17, batch.compute_crc())
    return data


def scattered_batch(
    deltas: Sequence[int], codec: Codec = Codec.NONE, *, producer_id: int = NO_PRODUCER_ID
) -> bytes:
    """A batch whose header is right but whose records have the given offset deltas."""
    body = bytearray()
    for delta in deltas:
        encode_record(body, delta, delta, b"k", b"%d" % delta, ())
    records = records_at(*[100] * len(deltas))
    whole = bytearray(
        build_batch(records)
        if producer_id == NO_PRODUCER_ID
        else build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=2,
            base_sequence=3,
            is_transactional=True,
        )
    )
    payload = compress(codec, body)
    built = whole[:61] + payload
    built[8:12] = (len(built) - 12).to_bytes(4, "big")
    built[22] |= codec
    return bytes(reseal(built))


# --- the numbered cases -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "accepted"),
    [(9000, True), (8999, False), (10_500, True), (10_501, False), (-1, True)],
)
@pytest.mark.parametrize("codec", list(Codec))
def test_case_23_bounds_are_inclusive(timestamp: int, accepted: bool, codec: Codec) -> None:
    rules = AppendRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    data = build_batch(records_at(timestamp), codec=codec)
    if accepted:
        assert stored(plan(data, rules))[0].timestamp == timestamp
    else:
        with pytest.raises(InvalidTimestamp) as caught:
            plan(data, rules)
        assert bad_indexes(caught.value) == [0]


def test_case_24_every_record_out_of_range_is_listed_and_nothing_changes() -> None:
    rules = AppendRules(timestamp_before_max_ms=1000)
    data = bytearray(build_batch(records_at(1, 2, 3)))
    before = bytes(data)
    with pytest.raises(InvalidTimestamp) as caught:
        plan(data, rules)
    assert bad_indexes(caught.value) == [0, 1, 2]
    assert all("now is 9000 (" in (error.message or "") for error in caught.value.record_errors)
    assert bytes(data) == before


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (
            1_699_999_998_999,
            "timestamp 1699999998999 (2023-11-14T22:13:18.999Z) is too old: by "
            "message.timestamp.before.max.ms of the topic and the broker's clock the oldest "
            "accepted now is 1699999999000 (2023-11-14T22:13:19.000Z)",
        ),
        (
            1_700_000_002_001,
            "timestamp 1700000002001 (2023-11-14T22:13:22.001Z) is too new: by "
            "message.timestamp.after.max.ms of the topic and the broker's clock the newest "
            "accepted now is 1700000002000 (2023-11-14T22:13:22.000Z)",
        ),
    ],
)
def test_refusal_names_both_times_and_the_setting(timestamp: int, text: str) -> None:
    rules = AppendRules(timestamp_before_max_ms=1000, timestamp_after_max_ms=2000)
    with pytest.raises(InvalidTimestamp) as caught:
        plan(build_batch(records_at(timestamp)), rules, now_ms=1_700_000_000_000)
    assert [error.message for error in caught.value.record_errors] == [text]


def test_refusal_of_a_time_that_no_calendar_has_says_so() -> None:
    with pytest.raises(InvalidTimestamp) as caught:
        plan(build_batch(records_at(INT64_MAX)), AppendRules(timestamp_after_max_ms=0))
    (error,) = caught.value.record_errors
    assert f"timestamp {INT64_MAX} (outside of the calendar) is too new" in (error.message or "")


def test_case_25_one_bad_timestamp_decides_and_all_bad_records_are_listed() -> None:
    rules = AppendRules(timestamp_before_max_ms=1000, compacted=True)
    records = [
        Record(0, NOW, b"k", b"v"),
        Record(1, NOW, None, b"v"),
        Record(2, 1, b"k", b"v"),
        Record(3, NOW, None, b"v"),
    ]
    with pytest.raises(InvalidTimestamp) as caught:
        plan(build_batch(records), rules)
    assert bad_indexes(caught.value) == [1, 2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_case_26_null_keys_alone_are_invalid_records(codec: Codec) -> None:
    rules = AppendRules(compacted=True)
    records = [*records_at(1), Record(1, 2, None, b"v"), Record(2, 3, b"", b"v")]
    with pytest.raises(InvalidRecord) as caught:
        plan(build_batch(records, codec=codec), rules)
    assert bad_indexes(caught.value) == [1]


def test_case_27_log_append_time_replaces_what_readers_see_and_nothing_else() -> None:
    made = plan(build_batch(records_at(1, 2)), STAMP, next_offset=5)
    batch = RecordBatch(made.buffer)
    assert (batch.max_timestamp, batch.base_timestamp, batch.attributes) == (NOW, 1, 0x08)
    assert [record.timestamp for record in stored(made)] == [NOW, NOW]
    assert (made.log_append_time_ms, made.max_timestamp) == (NOW, NOW)


def test_case_28_create_time_reports_no_append_time() -> None:
    assert plan(build_batch(records_at(1))).log_append_time_ms == NO_TIMESTAMP


@pytest.mark.parametrize("codec", list(Codec))
def test_case_29_flagged_batch_is_refused_on_a_stamping_topic_only(codec: Codec) -> None:
    flagged = build_batch(
        records_at(100, 200),
        codec=codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_timestamp=200,
    )
    with pytest.raises(InvalidTimestamp) as caught:
        plan(flagged, STAMP)
    assert bad_indexes(caught.value) == [0, 1]
    made = plan(flagged)
    assert RecordBatch(made.buffer).timestamp_type == TimestampType.CREATE_TIME
    assert [record.timestamp for record in stored(made)] == [100, 200]


def test_case_29_flagged_batch_without_timestamp_is_refused_everywhere() -> None:
    for claim, bad in ((-1, [0, 1]), (100, None)):
        flagged = build_batch(
            records_at(100, -1),
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_timestamp=claim,
        )
        if bad is None:
            assert [record.timestamp for record in stored(plan(flagged))] == [100, -1]
            continue
        with pytest.raises(InvalidTimestamp) as caught:
            plan(flagged)
        assert bad_indexes(caught.value) == bad


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", [0, -1, 5, INT64_MAX])
def test_case_30_lying_max_timestamp_is_overwritten(codec: Codec, claim: int) -> None:
    data = bytearray(build_batch(records_at(5, 999, 7), codec=codec))
    data[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = claim.to_bytes(8, "big", signed=True)
    made = plan(reseal(data))
    batch = RecordBatch(made.buffer)
    assert batch.max_timestamp == made.max_timestamp == made.batches[0].max_timestamp == 999
    assert batch.crc_ok()


def test_case_31_wrapper_of_magic_1_gets_its_largest_inner_timestamp() -> None:
    wrapper = Message(build_message_set(records_at(5, 9, 7), 1, Codec.GZIP))
    data = encode_message(1, wrapper.offset, 0, None, wrapper.value, Codec.GZIP)
    made = plan(data, next_offset=40, produce_version=2)
    batch = RecordBatch(made.buffer)
    assert (batch.max_timestamp, batch.last_offset, made.max_timestamp) == (9, 42, 9)
    assert [record[:2] for record in stored(made)] == [(40, 5), (41, 9), (42, 7)]


def test_case_32_wrapper_with_scattered_inner_offsets_is_rebuilt() -> None:
    inner = b"".join(encode_message(1, offset, 7, b"k", b"v") for offset in (5, 9, 20))
    blob = compress(Codec.GZIP, inner)
    data = encode_message(1, 20, 7, None, blob, Codec.GZIP)
    made = plan(data, next_offset=3, produce_version=2)
    assert [record.offset for record in stored(made)] == [3, 4, 5]


def test_case_33_magic_0_has_no_timestamp_unless_the_broker_stamps() -> None:
    data = build_message_set(records_at(-1, -1), 0)
    made = plan(data, next_offset=7, produce_version=1)
    batch = RecordBatch(made.buffer)
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (7, 8, 2)
    assert (batch.max_timestamp, made.max_timestamp) == (NO_TIMESTAMP, NO_TIMESTAMP)
    assert [record.timestamp for record in stored(made)] == [NO_TIMESTAMP] * 2
    assert [record.timestamp for record in stored(plan(data, STAMP, produce_version=1))] == [
        NOW,
        NOW,
    ]


def test_case_34_client_batch_starts_at_zero_and_comes_alone() -> None:
    with pytest.raises(InvalidRecord) as caught:
        plan(build_batch(records_at(1), base_offset=5))
    assert not caught.value.record_errors
    with pytest.raises(InvalidRecord):
        plan(build_batch(records_at(1)) * 2)
    made = plan(build_message_set(records_at(1, 2), 1), produce_version=2)
    assert made.records_count == 2


def test_case_35_count_that_contradicts_the_offsets_is_invalid_without_record_errors() -> None:
    data = bytearray(build_batch(records_at(1, 2, 3)))
    data[26] = 1
    with pytest.raises(InvalidRecord) as caught:
        plan(reseal(data))
    assert not caught.value.record_errors


def test_case_36_wrong_checksums_are_corrupt_outside_and_inside() -> None:
    data = bytearray(build_batch(records_at(1)))
    data[17] ^= 1
    with pytest.raises(CorruptBatch):
        plan(data)
    inner = bytearray(encode_message(1, 0, 7, b"k", b"v"))
    inner[LEGACY_CRC_AT] ^= 1
    wrapper = encode_message(1, 0, 7, None, compress(Codec.GZIP, inner), Codec.GZIP)
    with pytest.raises(CorruptBatch):
        plan(wrapper, produce_version=2)


def test_case_37_size_limits_are_inclusive() -> None:
    data = build_batch(records_at(1))
    plan(data, AppendRules(max_message_bytes=len(data), segment_bytes=len(data)))
    with pytest.raises(MessageTooLarge):
        plan(data, AppendRules(max_message_bytes=len(data) - 1))
    with pytest.raises(RecordListTooLarge):
        plan(data, AppendRules(segment_bytes=len(data) - 1))
    # A topic that stamps takes the general way.
    stamped = replace(STAMP, max_message_bytes=len(data), segment_bytes=len(data))
    assert plan(data, stamped).records_count == 1


@pytest.mark.parametrize("checksum", [0x1A, 0x82])
def test_case_38_lz4_of_magic_0_may_have_either_header_checksum(checksum: int) -> None:
    blob = bytearray(compress(Codec.LZ4, encode_message(0, 0, -1, b"k", b"v")))
    blob[6] = checksum
    data = encode_message(0, 0, -1, None, blob, Codec.LZ4)
    assert [record.value for record in stored(plan(data, produce_version=0))] == [b"v"]


def test_case_38_lz4_of_magic_2_must_have_the_right_header_checksum() -> None:
    data = bytearray(build_batch(records_at(1), codec=Codec.LZ4))
    assert data[61 + 6] == 0x82
    data[61 + 6] = 0x1A
    with pytest.raises(CorruptBatch):
        plan(reseal(data))


def test_case_39_timestamp_below_minus_one_is_stored_but_never_rewritten() -> None:
    data = build_batch(records_at(-2))
    made = plan(data)
    assert (stored(made)[0].timestamp, made.max_timestamp) == (-2, NO_TIMESTAMP)
    with pytest.raises(UnstorableTimestamp, match="timestamp -2 is negative"):
        plan(data, AppendRules(codec=Codec.GZIP))
    with pytest.raises(UnstorableTimestamp, match="timestamp -2 is negative"):
        plan(build_message_set(records_at(-2), 1), produce_version=2)


# --- golden bytes -------------------------------------------------------------------------------


def test_stamping_changes_exactly_the_golden_bytes() -> None:
    buffer = bytearray(GOLDEN_SENT)
    made = plan_append(buffer, rules=STAMP, now_ms=5000, next_offset=7, leader_epoch=0)
    assert bytes(made.buffer) == GOLDEN_STAMPED == bytes(buffer)
    changed = {i for i, (a, b) in enumerate(zip(GOLDEN_SENT, buffer, strict=True)) if a != b}
    assert changed <= {*range(8), *range(17, 23), *range(35, 43)}


def test_true_batch_on_a_create_time_topic_changes_outside_the_checksum_only() -> None:
    made = plan(GOLDEN_SENT, next_offset=258)
    expected = bytearray(GOLDEN_SENT)
    expected[6:8] = b"\x01\x02"
    expected[15] = 4
    assert bytes(made.buffer) == expected
    assert made.batches == (Entry(0, 92, 2, 258, 260, 999, 0, 4, 100, -1, -1, -1, 3),)
    assert facts(made) == (258, 260, 999, NO_TIMESTAMP, 3, 100)


def test_stamped_messages_count_for_the_minimum_with_their_stamp() -> None:
    sent = build_message_set(records_at(1, 2), 1)
    made = plan(sent, STAMP, produce_version=2)
    assert (made.min_timestamp, made.max_timestamp) == (NOW, NOW)


def test_batch_of_any_size_keeps_its_records_when_only_the_codec_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.append.plan.REBUILT_RECORDS_MAX", 1)
    made = plan(build_batch(records_at(1, 2, 3)), AppendRules(codec=Codec.GZIP))
    assert [record.timestamp for record in stored(made)] == [1, 2, 3]


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_rest_that_begins_with_an_impossible_size_is_corrupt(size: int) -> None:
    whole = build_message_set(records_at(1), 1)
    rest = bytes(8) + size.to_bytes(4, "big", signed=True)
    assert len(plan(whole + rest[:-1], produce_version=2).batches) == 1
    with pytest.raises(CorruptBatch, match=f"at position {len(whole)}$"):
        plan(whole + rest, produce_version=2)


# --- buffers ------------------------------------------------------------------------------------


def test_writable_buffer_is_borrowed_and_a_read_only_one_copied() -> None:
    data = build_batch(records_at(1))
    borrowed = bytearray(data)
    assert plan(borrowed, next_offset=9).buffer.obj is borrowed
    assert int.from_bytes(borrowed[:8], "big") == 9
    assert int.from_bytes(plan(data, next_offset=9).buffer[:8], "big") == 9
    assert int.from_bytes(data[:8], "big") == 0


@pytest.mark.parametrize("junk", [b"\x00", bytes(11), build_batch(records_at(1))[:-1]])
def test_bytes_after_the_last_whole_entry_are_dropped(junk: bytes) -> None:
    data = build_batch(records_at(1))
    assert len(plan(data + junk).buffer) == len(data)
    old = build_message_set(records_at(1, 2), 1)
    assert plan(old + junk, produce_version=2).records_count == 2


def test_empty_set_is_a_success_without_offsets_before_v3() -> None:
    for version in (0, 1, 2, None):
        made = plan(b"", produce_version=version, next_offset=3)
        assert (made.batches, made.first_offset, made.last_offset) == ((), NO_OFFSET, NO_OFFSET)
        assert not made.buffer
    with pytest.raises(InvalidRecord):
        plan(b"", produce_version=3)


# --- versions of the request --------------------------------------------------------------------


def test_old_requests_may_carry_magic_2_and_new_ones_nothing_else() -> None:
    batch = build_batch(records_at(1))
    assert plan(batch, produce_version=1).records_count == 1
    with pytest.raises(InvalidRecord):
        plan(build_message_set(records_at(1), 1), produce_version=3)
    with pytest.raises(InvalidRecord):
        plan(batch * 2, produce_version=None)


def test_zstd_needs_produce_v7() -> None:
    data = build_batch(records_at(1), codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCompressionType):
        plan(data, produce_version=6)
    assert plan(data, produce_version=7).records_count == 1


@pytest.mark.parametrize("version", [None, 2, 9])
def test_what_can_be_no_entry_is_corrupt(version: int | None) -> None:
    impossible = bytes(17)
    with pytest.raises(CorruptBatch):
        plan(impossible, produce_version=version)
    with pytest.raises(CorruptBatch):
        plan(build_batch(records_at(1)) + impossible, produce_version=version)


# --- rules of batches ---------------------------------------------------------------------------


def test_client_may_not_write_markers_but_the_coordinator_may() -> None:
    marker = build_end_txn_marker(
        commit=True, producer_id=1, producer_epoch=0, timestamp_ms=NOW, base_offset=0
    )
    with pytest.raises(InvalidRecord):
        plan(marker)
    for rules in (CREATE, AppendRules(codec=Codec.GZIP), STAMP):
        made = plan(marker, rules, origin=Origin.COORDINATOR, produce_version=None, next_offset=3)
        assert made.batches[0].is_control
        assert RecordBatch(made.buffer).codec == Codec.NONE
    assert made.batches[0].base_offset == 3


def test_coordinator_batches_meet_the_timestamp_window_too() -> None:
    rules = AppendRules(timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp):
        plan(build_batch(records_at(1)), rules, origin=Origin.COORDINATOR, produce_version=None)


def test_idempotent_batch_needs_a_sequence() -> None:
    good = build_batch(records_at(1, 2), producer_id=5, producer_epoch=1, base_sequence=2**31 - 1)
    made = plan(good)
    assert made.batches[0][9:12] == (5, 1, 2**31 - 1)
    assert made.batches[0].last_sequence == 0
    first = build_batch(records_at(1, 2), producer_id=5, producer_epoch=1, base_sequence=0)
    assert plan(first, AppendRules(codec=Codec.GZIP)).batches[0][9:12] == (5, 1, 0)
    with pytest.raises(InvalidRecord):
        plan(build_batch(records_at(1), producer_id=5, producer_epoch=1))


@pytest.mark.parametrize("target", [None, Codec.GZIP])
def test_undefined_codec_is_unsupported(target: Codec | None) -> None:
    data = bytearray(build_batch(records_at(1)))
    data[22] = 6
    with pytest.raises(UnsupportedCompressionType):
        plan(reseal(data), AppendRules(codec=target))
    with pytest.raises(UnsupportedCompressionType):
        plan(encode_message(1, 0, 1, None, b"x", Codec.ZSTD), produce_version=2)


@pytest.mark.parametrize("count", [0, -1, 2**31 - 1])
def test_impossible_counts_are_invalid_records(count: int) -> None:
    data = bytearray(build_batch(records_at(1)))
    data[RECORDS_COUNT_AT : RECORDS_COUNT_AT + 4] = count.to_bytes(4, "big", signed=True)
    data[23:27] = ((count - 1) & 0x7FFFFFFF).to_bytes(4, "big")
    with pytest.raises(InvalidRecord):
        plan(reseal(data))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_bomb_is_too_large_not_corrupt(magic: int) -> None:
    records = [Record(0, 1, b"k", bytes(200_000))]
    if magic == 2:
        big = build_batch(records, codec=Codec.ZSTD)
    else:
        big = build_message_set(records, magic, Codec.GZIP)
    with pytest.raises(MessageTooLarge):
        plan(
            big, AppendRules(decompressed_bytes_max=100_000), produce_version=7 if magic == 2 else 2
        )


def test_mixed_magics_are_invalid_in_one_append() -> None:
    mixed = build_message_set(records_at(1), 0) + build_message_set(records_at(1), 1)
    with pytest.raises(InvalidRecord):
        plan(mixed, produce_version=2)


def test_compressed_wrapper_comes_alone() -> None:
    pair = build_message_set(records_at(1), 1, Codec.GZIP) * 2
    with pytest.raises(InvalidRecord):
        plan(pair, produce_version=2)


def test_wrapper_must_hold_plain_messages_of_its_own_magic() -> None:
    nested = build_message_set(records_at(1), 1, Codec.GZIP)
    other = build_message_set(records_at(1), 0)
    for inner in (nested, other):
        wrapper = encode_message(1, 0, 1, None, compress(Codec.GZIP, inner), Codec.GZIP)
        with pytest.raises(InvalidRecord) as caught:
            plan(wrapper, produce_version=2)
        assert bad_indexes(caught.value) == [0]
    empty = encode_message(1, 0, 1, None, compress(Codec.GZIP, b""), Codec.GZIP)
    null = encode_message(1, 0, 1, None, None, Codec.GZIP)
    for wrapper, text in ((empty, "holds no messages"), (null, "has no value")):
        with pytest.raises(InvalidRecord, match=f"^a wrapper message {text}$"):
            plan(wrapper, produce_version=2)


def test_flagged_wrapper_is_judged_by_its_own_time_and_not_by_those_inside() -> None:
    inner = encode_message(1, 0, 1, b"k", b"v") + encode_message(1, 1, 2, b"k", b"v")
    flag = 8
    wrapper = encode_message(1, 1, NOW, None, compress(Codec.GZIP, inner), Codec.GZIP | flag)
    made = plan(wrapper, AppendRules(timestamp_before_max_ms=1000), produce_version=2)
    assert [record.timestamp for record in stored(made)] == [NOW, NOW]


def test_plain_message_set_reports_the_first_bad_message_as_index_0() -> None:
    rules = AppendRules(compacted=True)
    data = encode_message(1, 0, 1, b"k", b"v") + encode_message(1, 1, 1, None, b"v")
    with pytest.raises(InvalidRecord) as caught:
        plan(data, rules, produce_version=2)
    assert bad_indexes(caught.value) == [0]


# --- the three ways -----------------------------------------------------------------------------


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("rules", [CREATE, STAMP], ids=["create", "stamp"])
def test_topic_codec_replaces_the_producers(
    source: Codec, target: Codec, rules: AppendRules
) -> None:
    records = [Record(i, 100 + i, b"k", b"v" * 50, (("h", b"1"),)) for i in range(4)]
    data = build_batch(
        records, codec=source, producer_id=9, producer_epoch=2, base_sequence=3,
        is_transactional=True,
    )  # fmt: skip
    asked = AppendRules(timestamp_type=rules.timestamp_type, codec=target)
    made = plan(data, asked, next_offset=70)
    batch = RecordBatch(made.buffer)
    assert (batch.codec, batch.partition_leader_epoch) == (target, 4)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 3)
    assert batch.is_transactional
    planned = made.batches[0]
    assert planned.max_timestamp == (NOW if rules.stamps else 103)
    assert planned[9:] == (9, 2, 3, 4)
    assert (planned.last_sequence, planned.is_transactional, planned.is_control) == (6, True, False)
    assert [record[2:] for record in stored(made)] == [record[2:] for record in records]
    assert [record.offset for record in stored(made)] == [70, 71, 72, 73]


@pytest.mark.parametrize("codec", list(Codec))
def test_scattered_offset_deltas_are_made_contiguous(codec: Codec) -> None:
    made = plan(scattered_batch([0, 2, 7], codec), next_offset=10)
    assert [(record.offset, record.value) for record in stored(made)] == [
        (10, b"0"),
        (11, b"2"),
        (12, b"7"),
    ]
    assert made.batches[0].last_offset == 12


def test_a_rebuilt_batch_keeps_its_producer() -> None:
    made = plan(scattered_batch([0, 2], producer_id=9), next_offset=10)
    (line,) = made.batches
    assert (line.producer_id, line.producer_epoch, line.base_sequence) == (9, 2, 3)
    assert (line.last_sequence, line.is_transactional, line.is_control) == (4, True, False)
    old = plan(build_message_set(records_at(1, 2), 1), produce_version=2)
    (line,) = old.batches
    assert (line.producer_id, line.producer_epoch, line.base_sequence) == (-1, -1, -1)
    assert (line.is_transactional, line.is_control) == (False, False)


def test_rebuilt_batch_meets_the_size_limits_again() -> None:
    data = build_batch([Record(0, 1, b"k", bytes(5000))], codec=Codec.GZIP)
    clear = AppendRules(codec=Codec.NONE)
    assert len(plan(data, clear).buffer) > 5000
    with pytest.raises(MessageTooLarge):
        plan(data, AppendRules(codec=Codec.NONE, max_message_bytes=1000))
    with pytest.raises(RecordListTooLarge):
        plan(data, AppendRules(codec=Codec.NONE, segment_bytes=1000))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_message_set_becomes_one_batch(magic: int, codec: Codec) -> None:
    records = records_at(300, 100, 200)
    made = plan(build_message_set(records, magic, codec), next_offset=20, produce_version=2)
    (batch,) = made.batches
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (20, 22, 3)
    assert RecordBatch(made.buffer).codec == codec
    assert [record.timestamp for record in stored(made)] == (
        [300, 100, 200] if magic else [NO_TIMESTAMP] * 3
    )


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("is_outside_flagged", [False, True])
@pytest.mark.parametrize("stamps", [False, True])
def test_only_the_wrapper_says_whose_the_times_inside_are(
    codec: Codec, is_outside_flagged: bool, stamps: bool
) -> None:
    """As Kafka 0.10.2.2, 2.8.2 and 3.9.1 do; up to 3.5 a flagged wrapper is refused everywhere."""
    flag = 0x08
    inner = b"".join(encode_message(1, i, 100 + 100 * i, b"k", b"v", flag) for i in (0, 1))
    attributes = codec | (flag if is_outside_flagged else 0)
    data = encode_message(1, 1, 300, None, compress(codec, inner), attributes)
    rules = STAMP if stamps else AppendRules()
    if stamps and is_outside_flagged:
        with pytest.raises(InvalidTimestamp):
            plan(data, rules, produce_version=2)
        return
    found = [record.timestamp for record in stored(plan(data, rules, produce_version=2))]
    assert found == ([NOW] * 2 if stamps else [300] * 2 if is_outside_flagged else [100, 200])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_flagged_message_without_timestamp_is_refused_everywhere(codec: Codec) -> None:
    flag = 0x08
    blob = compress(codec, build_message_set(records_at(5), 1)) if codec else b"v"
    for timestamp, is_accepted in ((-1, False), (0, True)):
        data = encode_message(1, 0, timestamp, None, blob, codec | flag)
        if is_accepted:
            assert [r.timestamp for r in stored(plan(data, produce_version=2))] == [timestamp]
            continue
        with pytest.raises(InvalidTimestamp) as caught:
            plan(data, produce_version=2)
        assert [error.message for error in caught.value.record_errors] == [
            "the producer may not mark timestamps as LogAppendTime"
        ]


def test_wrapper_stamped_by_a_broker_keeps_its_time_for_all_records() -> None:
    flagged = build_message_set(
        records_at(5, 6), 1, Codec.GZIP,
        timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=777,
    )  # fmt: skip
    made = plan(flagged, produce_version=2)
    assert [record.timestamp for record in stored(made)] == [777, 777]


def test_window_is_clamped_to_64_bits() -> None:
    wide = AppendRules(timestamp_before_max_ms=INT64_MAX, timestamp_after_max_ms=INT64_MAX)
    for timestamp in (0, INT64_MAX):
        assert plan(build_batch(records_at(timestamp)), wide).max_timestamp == timestamp


def test_decoding_faults_never_leave_as_protocol_errors() -> None:
    data = bytearray(build_batch(records_at(1, 2), codec=Codec.GZIP))
    data[-9] ^= 0xFF
    with pytest.raises(AppendRejected) as caught:
        plan(reseal(data))
    assert not isinstance(caught.value, RecordsError)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, AppendRules()),
        ({"message.timestamp.type": "LogAppendTime"}, STAMP),
        ({"compression.type": "uncompressed"}, AppendRules(codec=Codec.NONE)),
        ({"compression.type": "snappy"}, AppendRules(codec=Codec.SNAPPY)),
        (
            {"compression.type": "zstd", "compression.zstd.level": "7"},
            AppendRules(codec=Codec.ZSTD, compression_level=7),
        ),
        (
            {"compression.type": "gzip", "compression.gzip.level": "3",
             "compression.lz4.level": "4", "compression.zstd.level": "7"},
            AppendRules(codec=Codec.GZIP, compression_level=3),
        ),
        (
            {"compression.type": "lz4", "compression.gzip.level": "3",
             "compression.lz4.level": "4", "compression.zstd.level": "7"},
            AppendRules(codec=Codec.LZ4, compression_level=4),
        ),
        ({"cleanup.policy": "compact,delete"}, AppendRules(compacted=True)),
        (
            {"max.message.bytes": "77", "segment.bytes": "2097152",
             "message.timestamp.before.max.ms": "5", "message.timestamp.after.max.ms": "6"},
            AppendRules(max_message_bytes=77, segment_bytes=2097152,
                        timestamp_before_max_ms=5, timestamp_after_max_ms=6),
        ),
    ],
)  # fmt: skip
def test_rules_follow_the_topic(overrides: dict[str, str], expected: AppendRules) -> None:
    made = AppendRules.from_config(topic_config(overrides, load()))
    after = "message.timestamp.after.max.ms"
    default = topic_config({}, load()).message_timestamp_after_max_ms
    if after not in overrides:
        expected = replace(expected, timestamp_after_max_ms=default)
    assert made == expected


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    ("rules", "now_ms", "oldest", "newest"),
    [
        (AppendRules(timestamp_before_max_ms=5, timestamp_after_max_ms=6), 1000, 995, 1006),
        (AppendRules(timestamp_before_max_ms=5, timestamp_after_max_ms=INT64_MAX),
         1000, 995, INT64_MAX),
        (AppendRules(timestamp_before_max_ms=INT64_MAX, timestamp_after_max_ms=6),
         -1000, INT64_MIN, -994),
        (STAMP, 1000, INT64_MIN, INT64_MAX),
    ],
)  # fmt: skip
def test_the_window_lies_around_the_clock(
    rules: AppendRules, now_ms: int, oldest: int, newest: int, compacted: bool
) -> None:
    found = replace(rules, compacted=compacted).window(now_ms)
    assert found == Window(oldest, newest, rules is STAMP, compacted)
    assert type(found.stamps) is bool


def test_a_log_without_settings_takes_what_apache_kafka_takes() -> None:
    assert AppendRules() == AppendRules(
        timestamp_type=TimestampType.CREATE_TIME,
        timestamp_before_max_ms=INT64_MAX,
        timestamp_after_max_ms=INT64_MAX,
        codec=None,
        compression_level=None,
        compacted=False,
        max_message_bytes=1024 * 1024 + 12,
        segment_bytes=1024**3,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    )


# --- what a refusal says ------------------------------------------------------------------------

ONE = build_batch(records_at(1))
OLD = build_message_set(records_at(1), 1)


def with_codec(number: int) -> bytearray:
    data = bytearray(ONE)
    data[22] = number
    return reseal(data)


def with_counts(offsets: int, records: int) -> bytearray:
    data = bytearray(ONE)
    data[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (offsets - 1).to_bytes(
        4, "big", signed=True
    )
    data[RECORDS_COUNT_AT : RECORDS_COUNT_AT + 4] = records.to_bytes(4, "big", signed=True)
    return reseal(data)


def with_wrong_checksum() -> bytearray:
    data = bytearray(ONE)
    data[17] ^= 1
    return data


def with_wrong_lz4_checksum() -> bytearray:
    data = bytearray(build_batch(records_at(1), codec=Codec.LZ4))
    data[61 + 6] = 0x1A
    return reseal(data)


REFUSALS: list[tuple[bytes | bytearray, AppendRules, int | None, type[AppendRejected], str]] = [
    (
        build_batch(records_at(1), base_offset=5),
        *(CREATE, 9, InvalidRecord),
        "a batch from a client starts at offset 5, not 0",
    ),
    (ONE * 2, CREATE, 9, InvalidRecord, "Produce v9 needs one record batch, found 2"),
    (
        ONE * 2,
        *(CREATE, None, InvalidRecord),
        "a compressed or magic 2 append is one batch, found 2",
    ),
    (
        build_message_set(records_at(1, 2), 1, Codec.GZIP) * 2,
        *(CREATE, 2, InvalidRecord),
        "a compressed or magic 2 append is one batch, found 2",
    ),
    (
        with_wrong_checksum(),
        *(CREATE, 9, CorruptBatch),
        "the checksum of the entry at byte 0 is wrong",
    ),
    (
        ONE + with_wrong_checksum(),
        *(CREATE, 2, CorruptBatch),
        f"the checksum of the entry at byte {len(ONE)} is wrong",
    ),
    (
        with_counts(0, 0),
        *(CREATE, 9, InvalidRecord),
        "a batch spans 0 offsets and counts 0 records",
    ),
    (
        with_counts(-3, -3),
        *(CREATE, 9, InvalidRecord),
        "a batch spans -3 offsets and counts -3 records",
    ),
    (
        with_counts(1, 2),
        *(CREATE, 9, InvalidRecord),
        "a batch spans 1 offsets and counts 2 records",
    ),
    (
        build_batch(records_at(NOW + 1)),
        *(AppendRules(timestamp_after_max_ms=0), 9, InvalidTimestamp),
        "one or more records were refused for their timestamps",
    ),
    (
        build_batch(records_at(1, key=None)),
        *(AppendRules(compacted=True), 9, InvalidRecord),
        "one or more records were refused",
    ),
    (
        build_end_txn_marker(
            commit=True, producer_id=7, producer_epoch=0, timestamp_ms=NOW, coordinator_epoch=0
        ),
        *(CREATE, 9, InvalidRecord),
        "clients may not write control batches",
    ),
    (
        build_batch(records_at(1), producer_id=7, producer_epoch=0, base_sequence=-1),
        *(CREATE, 9, InvalidRecord),
        "producer 7 sent base sequence -1",
    ),
    (ONE + bytes(17), CREATE, 9, CorruptBatch, "what follows the record batch is none"),
    (
        ONE + bytes(17),
        *(CREATE, None, CorruptBatch),
        f"no batch or message can start like the bytes at position {len(ONE)}",
    ),
    (bytes(17), CREATE, 3, CorruptBatch, "no batch can start like the bytes of this request"),
    (b"", CREATE, 3, InvalidRecord, "Produce v3 needs one record batch, found none"),
    (OLD, CREATE, 3, InvalidRecord, "Produce v3 carries magic 2 only, found 1"),
    (
        build_batch(records_at(1), codec=Codec.ZSTD),
        *(CREATE, 6, UnsupportedCompressionType),
        "zstd needs Produce v7, the request is v6",
    ),
    (
        with_codec(7),
        *(CREATE, 9, UnsupportedCompressionType),
        "codec number 7 is not defined",
    ),
    (
        ONE,
        *(AppendRules(max_message_bytes=len(ONE) - 1), 9, MessageTooLarge),
        f"a batch of {len(ONE)} bytes exceeds max.message.bytes = {len(ONE) - 1}",
    ),
    (
        ONE,
        *(AppendRules(segment_bytes=len(ONE) - 1), 9, RecordListTooLarge),
        f"an append of {len(ONE)} bytes exceeds segment.bytes = {len(ONE) - 1}",
    ),
    (
        build_batch(records_at(1, 2), codec=Codec.GZIP),
        *(AppendRules(decompressed_bytes_max=3), 9, MessageTooLarge),
        "gzip data decompresses to more than 3 bytes",
    ),
    (
        with_wrong_lz4_checksum(),
        *(CREATE, 9, CorruptBatch),
        "lz4 frame header has a wrong checksum",
    ),
    (
        OLD + build_message_set(records_at(1), 0),
        *(CREATE, 2, InvalidRecord),
        "magic 0 follows magic 1 in one append",
    ),
]


@pytest.mark.parametrize(
    ("data", "rules", "version", "refusal", "sentence"),
    REFUSALS,
    ids=[f"{row[-1]}, v{row[2]}" for row in REFUSALS],
)
def test_a_refusal_names_what_is_wrong(
    data: bytes | bytearray,
    rules: AppendRules,
    version: int | None,
    refusal: type[AppendRejected],
    sentence: str,
) -> None:
    with pytest.raises(refusal) as caught:
        plan(data, rules, produce_version=version)
    assert type(caught.value) is refusal
    assert str(caught.value) == sentence


# --- what a plan says ---------------------------------------------------------------------------


def facts(made: AppendPlan) -> tuple[int, ...]:
    """What a plan says beside its bytes and entries."""
    return (
        made.first_offset,
        made.last_offset,
        made.max_timestamp,
        made.log_append_time_ms,
        made.records_count,
        made.min_timestamp,
    )


def test_a_plan_of_old_messages_has_one_batch_for_all() -> None:
    data = build_message_set(records_at(9, 5), 1)
    made = plan(data, next_offset=7, produce_version=2)
    assert made.batches == (Entry(0, len(made.buffer), 2, 7, 8, 9, 0, 4, 9, -1, -1, -1, 2),)
    assert facts(made) == (7, 8, 9, NO_TIMESTAMP, 2, 5)


@pytest.mark.parametrize("codec", [None, Codec.GZIP])
def test_a_plan_of_a_transactional_batch_keeps_the_producer(codec: Codec | None) -> None:
    data = build_batch(
        records_at(9, 5),
        producer_id=3,
        producer_epoch=2,
        base_sequence=6,
        is_transactional=True,
    )
    made = plan(data, AppendRules(codec=codec), next_offset=7)
    (line,) = made.batches
    flags = TRANSACTIONAL_BIT | (codec or Codec.NONE)
    assert line == Entry(0, len(made.buffer), 2, 7, 8, 9, flags, 4, 9, 3, 2, 6, 2)
    assert (line.last_sequence, line.is_transactional, line.is_control) == (7, True, False)
    assert facts(made) == (7, 8, 9, NO_TIMESTAMP, 2, 5)


def test_a_plan_of_nothing_says_so() -> None:
    made = plan(b"", produce_version=2, next_offset=3)
    assert facts(made) == (NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, 0, INT64_MAX)
    assert bytes(plan(bytes(5), produce_version=2).buffer) == b"", "what is cut off is dropped"


def test_bytes_that_may_still_become_an_entry_are_dropped_to_the_last_header_byte() -> None:
    """Eleven bytes are no header yet; twelve are one, and its size may be impossible."""
    assert plan(ONE + bytes(11)).records_count == 1
    for size, is_possible in ((13, False), (14, True)):
        tail = bytes(8) + size.to_bytes(4, "big")
        if is_possible:
            assert plan(ONE + tail).records_count == 1
        else:
            with pytest.raises(CorruptBatch):
                plan(ONE + tail)


def test_zstd_is_accepted_from_version_7_on() -> None:
    data = build_batch(records_at(1), codec=Codec.ZSTD)
    for rules in (CREATE, STAMP):
        assert plan(data, rules, produce_version=7).records_count == 1
        with pytest.raises(UnsupportedCompressionType):
            plan(data, rules, produce_version=6)


SQUEEZABLE = Record(0, 1, b"k", bytes(range(64)) * 40 + b"abcab" * 300)


@pytest.mark.parametrize(
    ("data", "version"),
    [(build_batch([SQUEEZABLE]), 9), (build_message_set([SQUEEZABLE], 1), 2)],
    ids=["a batch", "messages into a batch"],
)
def test_records_are_compressed_at_the_level_of_the_topic(data: bytes, version: int) -> None:
    made = {
        level: plan(
            data,
            AppendRules(codec=Codec.GZIP, compression_level=level),
            produce_version=version,
        )
        for level in (1, 9)
    }
    assert len(made[1].buffer) > len(made[9].buffer)
    assert [record.value for record in stored(made[1])] == [
        record.value for record in stored(made[9])
    ]
