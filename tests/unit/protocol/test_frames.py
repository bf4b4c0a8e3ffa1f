"""Does a byte stream fall into frames, whatever the reads look like?"""

from __future__ import annotations

import tracemalloc

import pytest

from protocol.errors import MalformedFrame
from protocol.frames import FrameDecoder, encode_frame


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def drain(decoder: FrameDecoder) -> list[bytes]:
    frames = []
    while (frame := decoder.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


def test_one_read_with_one_frame() -> None:
    decoder = FrameDecoder(100)
    decoder.feed(framed(b"hello"))
    assert drain(decoder) == [b"hello"]
    assert decoder.buffered_bytes == 0


def test_no_frame_before_its_last_byte() -> None:
    decoder = FrameDecoder(100)
    decoder.feed(framed(b"hello")[:-1])
    assert decoder.next_frame() is None
    assert decoder.buffered_bytes == 4
    decoder.feed(b"o")
    assert drain(decoder) == [b"hello"]


@pytest.mark.parametrize("chunk", range(1, 12))
def test_reads_of_any_size(chunk: int) -> None:
    stream = framed(b"a") + framed(b"bc" * 9) + framed(b"def")
    decoder = FrameDecoder(100)
    frames = []
    for start in range(0, len(stream), chunk):
        decoder.feed(stream[start : start + chunk])
        frames += drain(decoder)
    assert frames == [b"a", b"bc" * 9, b"def"]


def test_many_frames_in_one_read() -> None:
    decoder = FrameDecoder(10)
    decoder.feed(memoryview(framed(b"x") * 1000))
    assert drain(decoder) == [b"x"] * 1000


def test_frames_are_independent_and_writable() -> None:
    decoder = FrameDecoder(100)
    read = bytearray(framed(b"one") + framed(b"two"))
    decoder.feed(read)
    read[:] = bytes(len(read))
    first, second = decoder.next_frame(), decoder.next_frame()
    assert first is not None
    assert second is not None
    first[0] = 0
    assert (bytes(first), bytes(second)) == (b"\0ne", b"two")


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 101, 2**31 - 1])
def test_impossible_size_breaks_the_stream(size: int) -> None:
    decoder = FrameDecoder(100)
    with pytest.raises(MalformedFrame) as caught:
        decoder.feed(framed(b"good") + size.to_bytes(4, "big", signed=True) + b"rest")
    assert (caught.value.size, caught.value.limit) == (size, 100)
    assert drain(decoder) == [b"good"]
    with pytest.raises(MalformedFrame):
        decoder.feed(b"more")


def test_largest_size_is_accepted() -> None:
    decoder = FrameDecoder(100)
    decoder.feed(framed(bytes(100)))
    assert drain(decoder) == [bytes(100)]


def test_a_claim_allocates_nothing() -> None:
    decoder = FrameDecoder(2**30)
    tracemalloc.start()
    decoder.feed((2**30).to_bytes(4, "big") + b"ten bytes.")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000
    assert decoder.buffered_bytes == 10


def test_empty_read_changes_nothing() -> None:
    decoder = FrameDecoder(100)
    decoder.feed(b"")
    assert decoder.next_frame() is None
    decoder.feed(framed(b"hello"))
    assert drain(decoder) == [b"hello"]


def test_encoded_frame_has_its_size_in_front_and_the_same_parts() -> None:
    payload = memoryview(bytearray(b"records"))
    parts = encode_frame([b"head", payload])
    assert parts[0] == b"\0\0\0\x0b"
    assert parts[2] is payload
    decoder = FrameDecoder(100)
    for part in parts:
        decoder.feed(part)
    assert drain(decoder) == [b"headrecords"]


def test_frame_beyond_int32_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(MalformedFrame):
        encode_frame([Huge()])
