"""A remote log answers from memory, or names what it lacks."""

from collections.abc import Callable

import pytest

from storage.errors import StoreFailed
from storage.segment.facts import RemoteObject
from storage.segment.remote.log import (
    RANGE_BYTES_MAX,
    RANGE_BYTES_MIN,
    READ_AHEAD_BYTES,
    RemoteBytesNeeded,
    RemoteLogFile,
)
from storage.segment.remote.object import IndexFiles, decode_trailer, encode_trailer

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
