"""The budget of a request, and the two halves of an append that does not fit into a turn."""

import zlib
from dataclasses import replace

import pytest

from protocol.errors import DecompressionLimitExceeded
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import INT64_MAX, Codec, TimestampType
from protocol.records.record import Record
from storage.append.opening import AT_ONCE_BYTES, AT_ONCE_PIECES, Opening
from storage.append.plan import AppendRules, Examined, examine_append, place_append, plan_append
from storage.errors import InvalidTimestamp, MessageTooLarge, TooMuchAtOnce

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


def test_large_batch_that_is_to_be_written_anew_is_not_done_at_once() -> None:
    rules = replace(RULES, codec=Codec.GZIP)
    plan(compressed(10_000, Codec.NONE), Opening(INT64_MAX), rules)
    with pytest.raises(TooMuchAtOnce):
        plan(compressed(100_000, Codec.NONE), Opening(INT64_MAX), rules)


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
    assert bytes(halves.buffer) == bytes(whole.buffer)
    assert replace(halves, buffer=whole.buffer) == whole


def test_first_half_refuses_what_one_call_refuses() -> None:
    rules = replace(RULES, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    with pytest.raises(InvalidTimestamp):
        examine(memoryview(bytearray(SENT["plain"])), Opening(INT64_MAX), rules)


def test_millions_of_records_are_not_made_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.append.plan.REBUILT_RECORDS_MAX", 10)
    with pytest.raises(MessageTooLarge, match="20 records"):
        examine(memoryview(bytearray(SENT["wrapper"])), Opening(INT64_MAX))
