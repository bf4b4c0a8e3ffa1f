"""A remote log answers from memory, or names what it lacks."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.records.layout import Codec
from protocol.records.scan import scan_entries
from storage.errors import StoreFailed
from storage.segment.facts import RemoteObject
from storage.segment.offset_index import OffsetIndex, OffsetPosition
from storage.segment.remote import range_check
from storage.segment.remote.log import (
    RANGE_BYTES_MAX,
    RANGE_BYTES_MIN,
    READ_AHEAD_BYTES,
    RemoteBytesNeeded,
    RemoteLogFile,
)
from storage.segment.remote.object import IndexFiles, decode_trailer, encode_trailer
from storage.segment.remote.range_check import check_range
from tests.support.broker import batch
from tests.support.logs import DIRECTORY, disk, messages
from tests.support.logs import batch as logs_batch

SIZE = 64 * 1024 * 1024
TRAILER = 500


@pytest.fixture
def file() -> RemoteLogFile:
    return RemoteLogFile(
        "/data/t-0/00000000000000000000.log",
        RemoteObject(
            base_offset=0, next_offset=9, log_bytes=SIZE, object_bytes=SIZE + TRAILER, crc=1,
            epoch=2, nonce=3, topic_id=4, partition=5,
        ),
    )  # fmt: skip


def needed(file: RemoteLogFile, size: int, position: int) -> tuple[int, int]:
    with pytest.raises(RemoteBytesNeeded) as need:
        file.pread(size, position)
    return need.value.start, need.value.end


def test_the_name_says_whose_it_is(file: RemoteLogFile) -> None:
    assert file.object.key == f"{4:032x}/5/{0:020d}-2-{3:016x}.segment"


def test_a_read_asks_for_the_least_and_up_to_the_end(file: RemoteLogFile) -> None:
    assert needed(file, 100, 1_000) == (1_000, 1_000 + RANGE_BYTES_MIN)
    assert needed(file, 10**6, 1_000) == (1_000, 1_000 + 10**6)
    assert needed(file, 100, SIZE - 50) == (SIZE - 50, SIZE)
    assert file.pread(100, SIZE) == b""


def test_a_walk_that_leaves_a_range_asks_for_twice_as_much(file: RemoteLogFile) -> None:
    file.keep(0, bytes(10**6))
    assert needed(file, 100, 10**6 - 50) == (10**6 - 50, 3 * 10**6 - 50)
    file.keep(10**6, bytes(RANGE_BYTES_MAX))
    at = 10**6 + RANGE_BYTES_MAX
    assert needed(file, 100, at) == (at, at + RANGE_BYTES_MAX)


def test_ranges_answer_until_they_are_forgotten(file: RemoteLogFile) -> None:
    file.keep(100, b"abcdef")
    assert file.pread(3, 102) == b"cde"
    file.require(100, 106)
    with pytest.raises(RemoteBytesNeeded):
        file.require(100, 107)
    needed(file, 3, 104)
    file.forget(100)
    needed(file, 3, 102)


def test_a_reader_gets_some_bytes_ahead(file: RemoteLogFile) -> None:
    need = RemoteBytesNeeded(file, 10, 20)
    assert need.widened(5).end == 20 + READ_AHEAD_BYTES
    assert need.widened(READ_AHEAD_BYTES + 1).end == 21 + READ_AHEAD_BYTES
    assert RemoteBytesNeeded(file, SIZE - 5, SIZE).widened(10).end == SIZE
    # What follows the log is asked for as it is.
    assert RemoteBytesNeeded(file, SIZE, SIZE + TRAILER).widened(10).end == SIZE + TRAILER


def test_it_is_only_read(file: RemoteLogFile) -> None:
    changes: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        file.begin_sync,
        file.sync,
        lambda: file.end_sync(None),
    ]
    for change in changes:
        with pytest.raises(AssertionError):
            change()


def test_a_trailer_comes_back_whole_or_not_at_all() -> None:
    indexes = IndexFiles(b"12345678", b"abc", b"")
    facts = {"offset_index_bytes": 8, "time_index_bytes": 3, "txn_index_bytes": 0}
    trailer = encode_trailer(indexes, {"facts": facts, "topic": "t"}, log_crc=7)
    found, description = decode_trailer(trailer)
    assert found == indexes
    assert description == {"facts": facts, "topic": "t", "log_crc": "00000007"}
    assert len(encode_trailer(indexes, {"facts": facts, "topic": "t"}, log_crc=2**32 - 1)) == len(
        trailer
    )
    for at in range(len(trailer)):
        damaged = bytearray(trailer)
        damaged[at] ^= 1
        with pytest.raises(StoreFailed):
            decode_trailer(damaged)
        with pytest.raises(StoreFailed):
            decode_trailer(trailer[:at])


def object_of(log: bytes, base_offset: int, next_offset: int) -> RemoteObject:
    return RemoteObject(
        base_offset=base_offset, next_offset=next_offset, log_bytes=len(log),
        object_bytes=len(log) + 9, crc=1, epoch=2, nonce=3, topic_id=4, partition=5,
    )  # fmt: skip


def at_offset(offset: int, value: bytes) -> bytes:
    return offset.to_bytes(8) + batch(value)[8:]


def test_whole_batches_are_compared_with_what_is_known() -> None:
    """The log has one batch each at the offsets 40, 47 and 52; the index knows the later two."""
    log = b"".join(at_offset(offset, b"v" * 100) for offset in (40, 47, 52))
    size = len(log) // 3
    index = OffsetIndex(disk(), f"{DIRECTORY}/00000000000000000040.index", 40)
    index.append(47, size)
    index.append(52, 2 * size)
    where = object_of(log, 40, 53)
    file = RemoteLogFile(f"{DIRECTORY}/00000000000000000040.log", where, index)

    def found(start: int, data: bytes) -> str | None:
        landmarks = file.landmarks(start, start + len(data))
        damage = file.check(start, data, landmarks).damage
        return None if damage is None else damage.reason

    for start in (0, size, 2 * size):
        for end in (start + 5, start + 20, start + size, len(log)):
            assert found(start, log[start:end]) is None
    assert found(0, log + b"a trailer") is None
    assert found(len(log), b"a trailer") is None
    for position in range(len(log)):
        torn = log[:position] + bytes([log[position] ^ 0x80]) + log[position + 1 :]
        assert found(0, torn) is not None, f"byte {position}"
        at = position // size * size
        assert found(at, torn[at:]) is not None, f"byte {position} of a range from {at}"
    # The checksum is right, and the order, but the index knows better; or the log ends before.
    assert found(size, at_offset(44, b"v" * 100) + log[2 * size :]) is not None
    assert found(size, at_offset(48, b"v" * 100) + log[2 * size :]) is not None
    assert found(2 * size, at_offset(47, b"v" * 100)) is not None
    assert found(2 * size, log[2 * size : -1]) is None
    assert found(2 * size, log[2 * size :][:8] + (10**6).to_bytes(4)) is not None
    for end in (12, 70):
        small, large = ((size + change).to_bytes(4) for change in (-13, 100))
        for wrong in (small, large):
            torn = log[: size + 8] + wrong + log[size + 12 :]
            is_noticed = found(0, torn[: size + end]) is not None
            assert is_noticed == (wrong == large), "a batch that is cut may be shorter"


def test_an_entry_of_kafkas_index_may_be_that_of_several_batches() -> None:
    """Kafka 3 made one entry for all batches of an append: the first's place, the last's end."""
    log = b"".join(at_offset(offset, b"v" * 100) for offset in (40, 41, 42, 43))
    size = len(log) // 4
    where = object_of(log, 40, 44)
    landmarks = [OffsetPosition(42, size), OffsetPosition(43, 3 * size)]
    for start in range(0, len(log), size):
        checked = check_range(where, start, log[start:], landmarks)
        assert checked == (None, len(log) - start)
    late = log[:size] + b"".join(at_offset(offset, b"v" * 100) for offset in (41, 43))
    damage = check_range(where, 0, late, landmarks).damage
    assert damage is not None
    assert "43 to 43, unlike the index" in damage.reason


def test_an_entry_of_an_old_kafkas_index_has_the_first_offset() -> None:
    """Up to 0.10, of wrappers of magic 0 and 1 too, whose own offset is their last one."""
    offsets = (40, 43, 46)
    log = b"".join(offset.to_bytes(8) + batch(*["v" * 50] * 3)[8:] for offset in offsets)
    size = len(log) // 3
    where = object_of(log, 40, 49)
    landmarks = [OffsetPosition(43, size), OffsetPosition(46, 2 * size)]
    assert check_range(where, 0, log, landmarks) == (None, len(log))
    old = b"".join(
        messages(1, 2, 3, base_offset=first, magic=magic, codec=Codec.GZIP)
        for first, magic in ((40, 0), (43, 1), (46, 1))
    )
    sizes = [head.size for head in scan_entries(old)]
    landmarks = [OffsetPosition(43, sizes[0]), OffsetPosition(46, sum(sizes[:2]))]
    where = replace(where, log_bytes=len(old))
    assert check_range(where, 0, old, landmarks) == (None, len(old))


def test_several_batches_may_have_a_later_epoch_than_the_upload() -> None:
    """Where the checkpoint of epochs was lost; one alone is a wrong byte."""
    batches = [bytes(logs_batch(1, base_offset=n, leader_epoch=9)) for n in range(3)]
    log = b"".join(batches)
    where = object_of(log, 0, 3)
    assert check_range(where, 0, log, []).damage is None
    damage = check_range(where, 0, batches[0], []).damage
    assert damage is not None
    assert not damage.misleads


def test_slices_find_what_one_walk_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(at_offset(n, b"v" * (n % 7) * 40) for n in range(100))
    where = object_of(log, 0, 100)
    for end in (len(log), len(log) - 1, len(log) - 150):
        whole = check_range(where, 0, log[:end], [])
        for size in (1, 50, 100, 1000):
            monkeypatch.setattr(range_check, "SLICE_BYTES", size)
            assert check_range(where, 0, log[:end], []) == whole
            torn = log[:5000] + bytes([log[5000] ^ 1]) + log[5001:]
            damage = check_range(where, 0, torn, []).damage
            assert damage is not None


def test_a_batch_that_is_cut_off_is_not_whole(file: RemoteLogFile) -> None:
    batches = [batch("v" * 100), at_offset(1, b"v" * 100)]
    whole = len(batches[0])
    for rest in (0, 5, 12, 40, 61, 100):
        checked = file.check(0, b"".join(batches)[: whole + rest], [])
        assert checked == (None, whole)
