"""The budget of a request, and the two halves of an append that does not fit into a turn."""

import gzip
import zlib
from dataclasses import replace

import pytest

from protocol.errors import DecompressionLimitExceeded
from protocol.records.batch import RecordBatch
from protocol.records.builder import (
    assemble_batch,
    build_batch,
    build_end_txn_marker,
    build_message_set,
)
from protocol.records.compression import PIECES_MAX
from protocol.records.layout import INT64_MAX, Codec, TimestampType
from protocol.records.legacy import encode_message
from protocol.records.record import Record, record_bytes
from storage.append.opening import (
    AT_ONCE_BYTES,
    AT_ONCE_PIECES,
    REWRITTEN_AT_ONCE_BYTES,
    Opening,
)
from storage.append.plan import AppendRules, Examined, examine_append, place_append, plan_append
from storage.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, TooMuchAtOnce
from tests.support.logs import batch

NOW = 1_700_000_000_000
MIB = 1 << 20
RULES = AppendRules(max_message_bytes=100 * MIB)


def compressed(size: int, codec: Codec = Codec.ZSTD) -> memoryview:
    return memoryview(bytearray(build_batch([Record(0, NOW, None, bytes(size))], codec=codec)))


def plan(records: memoryview, opening: Opening | None, rules: AppendRules = RULES) -> None:
    plan_append(records, rules=rules, now_ms=NOW, next_offset=0, leader_epoch=0, opening=opening)


def examine(records: memoryview, opening: Opening, rules: AppendRules = RULES) -> Examined:
    return examine_append(records, rules=rules, now_ms=NOW, opening=opening)


def test_small_batches_are_done_at_once_until_they_add_up() -> None:
    opening = Opening(INT64_MAX)
    for _ in range(3):
        plan(compressed(MIB), opening)
    before = bytes(records := compressed(MIB))
    with pytest.raises(TooMuchAtOnce):
        plan(records, opening)
    assert bytes(records) == before, "nothing was changed"
    examine(records, opening.aside())


def test_batch_that_is_large_alone_is_not_done_at_once() -> None:
    with pytest.raises(TooMuchAtOnce):
        plan(compressed(AT_ONCE_BYTES + 1), Opening(INT64_MAX))


def test_coordinators_have_no_budget() -> None:
    plan(compressed(AT_ONCE_BYTES + 1), None)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.SNAPPY, Codec.LZ4])
def test_budget_is_for_all_batches_of_a_request(codec: Codec) -> None:
    opening = Opening(20 * MIB, at_once=False)
    for _ in range(2):
        examine(compressed(9 * MIB, codec), opening)
    with pytest.raises(MessageTooLarge, match=r"queued\.max\.decompressed\.bytes"):
        examine(compressed(9 * MIB, codec), opening)
    with pytest.raises(MessageTooLarge):
        examine(compressed(1, codec), opening)


def test_refused_batch_uses_the_budget() -> None:
    """Else a thousand batches that are too large would each be opened up to the cap."""
    rules = replace(RULES, decompressed_bytes_max=8 * MIB)
    opening = Opening(20 * MIB, at_once=False)
    opened = 0

    def bomb(max_bytes: int, _: int) -> bytes:
        nonlocal opened
        opened += max_bytes
        raise DecompressionLimitExceeded("more")

    for _ in range(10):
        with pytest.raises((DecompressionLimitExceeded, MessageTooLarge)):
            opening.open(rules.decompressed_bytes_max, bomb)
    assert opened == 20 * MIB


class Codecs:
    """Stands for a codec: notes its limits; the result has `size` bytes, or is too large."""

    def __init__(self) -> None:
        self.size = 0
        self.limits: list[tuple[int, int]] = []

    def decompress(self, max_bytes: int, max_pieces: int) -> bytes:
        self.limits.append((max_bytes, max_pieces))
        if self.size > max_bytes:
            raise DecompressionLimitExceeded("more")
        return bytes(self.size)

    def open(self, opening: Opening, size: int, cap: int = INT64_MAX) -> int:
        """The size of a batch of `size` bytes, opened with at most `cap`."""
        self.size = size
        return len(opening.open(cap, self.decompress))


def test_each_batch_has_the_least_of_three_limits() -> None:
    """What one batch may have, what is left of the request, what is left of the turn."""
    codecs, opening = Codecs(), Opening(AT_ONCE_BYTES + 50)
    assert codecs.open(opening, 30, cap=40) == 30
    assert codecs.open(opening, AT_ONCE_BYTES - 40) == AT_ONCE_BYTES - 40
    assert codecs.open(opening, 10) == 10
    with pytest.raises(TooMuchAtOnce):
        codecs.open(opening, 1)
    assert codecs.open(opening.aside(), 45) == 45
    with pytest.raises(MessageTooLarge):
        codecs.open(opening, 6)
    pieces = AT_ONCE_PIECES
    assert codecs.limits == [
        (40, pieces),
        (AT_ONCE_BYTES - 30, pieces),
        (10, pieces),
        (0, pieces),
        (50, PIECES_MAX),
        (5, PIECES_MAX),
    ]


def test_a_budget_without_a_byte_left_opens_nothing() -> None:
    codecs, opening = Codecs(), Opening(5, at_once=False)
    assert codecs.open(opening, 4) == 4
    assert codecs.open(opening, 1) == 1
    text = "the batches of this request decompress to more than 5 bytes "
    text += "(queued.max.decompressed.bytes); send fewer at a time"
    with pytest.raises(MessageTooLarge) as caught:
        codecs.open(opening, 0)
    assert str(caught.value) == text
    assert len(codecs.limits) == 2


@pytest.mark.parametrize(
    ("left", "refusal"),
    [(9, MessageTooLarge), (10, DecompressionLimitExceeded), (11, DecompressionLimitExceeded)],
)
def test_a_batch_above_its_own_limit_is_refused_for_itself(
    left: int, refusal: type[Exception]
) -> None:
    """Only where the request's budget was the lower limit is the request too large."""
    with pytest.raises(refusal):
        Codecs().open(Opening(left, at_once=False), 99, cap=10)


def test_a_batch_that_was_refused_in_another_thread_has_used_its_limit() -> None:
    codecs, opening = Codecs(), Opening(100, at_once=False)
    with pytest.raises(DecompressionLimitExceeded):
        codecs.open(opening, 99, cap=60)
    assert codecs.open(opening, 40) == 40
    assert codecs.limits[-1] == (40, PIECES_MAX)


def test_the_next_request_begins_with_a_whole_budget() -> None:
    codecs, opening = Codecs(), Opening(AT_ONCE_BYTES + 50)
    was_used = [opening.is_used]
    codecs.open(opening, AT_ONCE_BYTES)
    was_used.append(opening.is_used)
    opening.renew()
    was_used.append(opening.is_used)
    assert [used is True for used in was_used] == [False, True, False]
    assert [used is False for used in was_used] == [True, False, True]
    codecs.open(opening, AT_ONCE_BYTES)
    codecs.open(opening.aside(), 50)
    with pytest.raises(MessageTooLarge):
        codecs.open(opening, 1)


def test_back_in_the_loop_its_limits_are_in_force_again() -> None:
    codecs, opening = Codecs(), Opening(INT64_MAX)
    assert opening.aside() is opening
    assert codecs.open(opening, AT_ONCE_BYTES + 1) == AT_ONCE_BYTES + 1
    opening.check_rewrite(REWRITTEN_AT_ONCE_BYTES + 1)
    opening.return_to_loop()
    with pytest.raises(TooMuchAtOnce):
        codecs.open(opening, AT_ONCE_BYTES + 1)
    opening.check_rewrite(REWRITTEN_AT_ONCE_BYTES)
    with pytest.raises(TooMuchAtOnce):
        opening.check_rewrite(REWRITTEN_AT_ONCE_BYTES + 1)


def test_batch_of_many_pieces_is_not_done_at_once() -> None:
    member = zlib.compress(b"", wbits=31)
    batch = bytearray(build_batch([Record(0, NOW, None, b"v" * 100)], codec=Codec.GZIP))
    opening = Opening(INT64_MAX)
    calls = []

    def decompress(max_bytes: int, max_pieces: int) -> bytes:
        calls.append(max_pieces)
        return member

    opening.open(len(batch), decompress)
    assert calls == [AT_ONCE_PIECES]


def test_large_batch_that_is_to_be_rewritten_is_not_done_at_once() -> None:
    rules = replace(RULES, codec=Codec.GZIP)
    plan(compressed(10_000, Codec.NONE), Opening(INT64_MAX), rules)
    with pytest.raises(TooMuchAtOnce):
        plan(compressed(100_000, Codec.NONE), Opening(INT64_MAX), rules)


def test_what_compresses_well_counts_with_its_clear_size_when_rewritten() -> None:
    rules = replace(RULES, codec=Codec.ZSTD)
    plan(compressed(10_000, Codec.GZIP), Opening(INT64_MAX), rules)
    with pytest.raises(TooMuchAtOnce):
        plan(compressed(100_000, Codec.GZIP), Opening(INT64_MAX), rules)


@pytest.mark.parametrize("more", [0, 1])
def test_as_much_as_is_allowed_is_rewritten_at_once(more: int) -> None:
    records = memoryview(batch(NOW, size=REWRITTEN_AT_ONCE_BYTES + more))
    rules = replace(RULES, codec=Codec.GZIP)
    if more:
        with pytest.raises(TooMuchAtOnce):
            plan(records, Opening(INT64_MAX), rules)
    else:
        plan(records, Opening(INT64_MAX), rules)


def of_many_pieces(sent: bytes) -> bytes:
    """The payload of `sent`, gzip, after more empty members than are opened at once."""
    return gzip.compress(b"") * AT_ONCE_PIECES + gzip.compress(sent)


def test_records_in_many_pieces_are_not_opened_at_once() -> None:
    record = Record(0, NOW, None, b"v")
    clear, start, end = record_bytes(RecordBatch(build_batch([record])))
    whole = assemble_batch(
        of_many_pieces(bytes(clear[start:end])),
        base_offset=0,
        leader_epoch=-1,
        attributes=Codec.GZIP,
        last_offset_delta=0,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer=(-1, -1, -1),
        records_count=1,
    )
    wrapper = encode_message(
        1, 0, NOW, None, of_many_pieces(build_message_set([record], 1)), Codec.GZIP
    )
    stamping = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    for sent, rules in ((whole, RULES), (whole, stamping), (wrapper, RULES)):
        records = memoryview(bytearray(sent))
        with pytest.raises(TooMuchAtOnce):
            plan(records, Opening(INT64_MAX), rules)
        assert examine(records, Opening(INT64_MAX, at_once=False), rules).batch


def test_large_wrapper_is_not_opened_at_once() -> None:
    record = Record(0, NOW, None, bytes(AT_ONCE_BYTES))
    sent = memoryview(bytearray(build_message_set([record], 1, Codec.GZIP)))
    with pytest.raises(TooMuchAtOnce):
        plan(sent, Opening(INT64_MAX))
    plan(sent, Opening(INT64_MAX, at_once=False))


def test_a_wrapper_opens_to_no_more_than_its_request_may() -> None:
    sent = memoryview(
        bytearray(build_message_set([Record(0, NOW, None, bytes(9_000))], 1, Codec.GZIP))
    )
    plan(sent, Opening(10_000, at_once=False))
    with pytest.raises(MessageTooLarge):
        plan(sent, Opening(5_000, at_once=False))


def test_a_large_batch_that_is_only_stamped_is_done_at_once() -> None:
    stamping = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    plan(compressed(100_000, Codec.NONE), Opening(INT64_MAX), stamping)


@pytest.mark.parametrize("more", [0, 1])
def test_the_clear_size_is_allowed_to_the_last_byte(more: int) -> None:
    wanted = REWRITTEN_AT_ONCE_BYTES + more
    for size in range(wanted - 30, wanted):
        sent = build_batch([Record(0, NOW, None, bytes(size))], codec=Codec.GZIP)
        _, start, end = record_bytes(RecordBatch(sent))
        if end - start == wanted:
            break
    else:
        raise AssertionError(f"no record of {wanted} bytes")
    rules = replace(RULES, codec=Codec.ZSTD)
    records = memoryview(bytearray(sent))
    if more:
        with pytest.raises(TooMuchAtOnce):
            plan(records, Opening(INT64_MAX), rules)
    else:
        plan(records, Opening(INT64_MAX), rules)


def test_messages_that_are_rewritten_count_together() -> None:
    message = encode_message(1, 0, NOW, None, bytes(30_000))
    plan(memoryview(bytearray(message * 2)), Opening(INT64_MAX))
    with pytest.raises(TooMuchAtOnce):
        plan(memoryview(bytearray(message * 3)), Opening(INT64_MAX))


RECORDS = [Record(i, NOW + i % 3, b"k", b"value %d" % i) for i in range(20)]
SENT = {
    "plain": build_batch(RECORDS, codec=Codec.GZIP),
    "idempotent": build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=4),
    "wrapper": build_message_set(RECORDS, 1, Codec.GZIP),
    "messages": build_message_set(RECORDS, 0, Codec.NONE),
    "empty": b"",
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("codec", [None, Codec.ZSTD, Codec.NONE])
@pytest.mark.parametrize("stamp", list(TimestampType))
def test_two_halves_plan_what_one_call_plans(
    sent: str, codec: Codec | None, stamp: TimestampType
) -> None:
    rules = replace(RULES, codec=codec, timestamp_type=stamp)
    whole = plan_append(SENT[sent], rules=rules, now_ms=NOW + 9, next_offset=1_000, leader_epoch=3)
    examined = examine(memoryview(bytearray(SENT[sent])), Opening(INT64_MAX), rules)
    halves = place_append(examined, now_ms=NOW + 9, next_offset=1_000, leader_epoch=3)
    assert examined.rules == rules
    assert bytes(halves.buffer) == bytes(whole.buffer)
    assert replace(halves, buffer=whole.buffer) == whole


def test_first_half_takes_records_that_it_may_not_write_to() -> None:
    examined = examine(memoryview(SENT["plain"]), Opening(INT64_MAX))
    halves = place_append(examined, now_ms=NOW, next_offset=5, leader_epoch=3)
    assert (halves.first_offset, halves.records_count) == (5, len(RECORDS))


def test_first_half_knows_the_rules_of_clients_and_of_requests() -> None:
    control = build_end_txn_marker(commit=True, producer_id=7, producer_epoch=0, timestamp_ms=NOW)
    with pytest.raises(InvalidRecord, match="clients may not write control batches"):
        examine(memoryview(bytearray(control)), Opening(INT64_MAX))
    with pytest.raises(InvalidRecord, match="Produce v9 carries magic 2 only, found 1"):
        examine_append(
            memoryview(bytearray(SENT["wrapper"])),
            rules=RULES,
            now_ms=NOW,
            opening=Opening(INT64_MAX),
            produce_version=9,
        )


def test_first_half_refuses_what_one_call_refuses() -> None:
    rules = replace(RULES, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    with pytest.raises(InvalidTimestamp):
        examine(memoryview(bytearray(SENT["plain"])), Opening(INT64_MAX), rules)


def test_millions_of_records_are_not_made_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = memoryview(bytearray(SENT["wrapper"]))
    monkeypatch.setattr("storage.append.plan.REBUILT_RECORDS_MAX", 20)
    assert examine(wrapper, Opening(INT64_MAX)).batch
    monkeypatch.setattr("storage.append.plan.REBUILT_RECORDS_MAX", 19)
    with pytest.raises(MessageTooLarge) as caught:
        examine(wrapper, Opening(INT64_MAX))
    assert str(caught.value) == (
        "20 records would have to be rewritten, at most 19 are; send fewer in a batch"
    )
