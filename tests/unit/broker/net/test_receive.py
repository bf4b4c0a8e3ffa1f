"""Frames come out whole and owned, whatever the sizes of the reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.net.receive import (
    FIRST_STEP_BYTES,
    FRAMES_AT_ONCE,
    SCRATCH_BYTES,
    SCRATCH_OF_LARGE_BYTES,
    FrameReceiver,
    _spares,
    recycle,
)
from protocol.errors import MalformedFrame

MAX_FRAME_BYTES = 1_000_000


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def feed(receiver: FrameReceiver, data: bytes, read_bytes: int) -> list[bytes]:
    """Play the transport: fill what the receiver hands out, at most `read_bytes` at a time."""
    frames: list[bytes] = []
    while data:
        buffer = receiver.buffer()
        assert len(buffer) > 0
        count = min(len(buffer), read_bytes, len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        frames += [bytes(frame) for frame in receiver.received(count)]
    return frames


@pytest.mark.parametrize("read_bytes", [1, 3, 4, 5, 1000, SCRATCH_BYTES])
def test_frames_survive_any_read_size(read_bytes: int) -> None:
    bodies = [b"a", b"bc" * 50, b"d" * 999]
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    assert feed(receiver, framed(*bodies), read_bytes) == bodies
    assert not receiver.is_mid_frame


def test_large_frame_is_received_into_its_own_buffer() -> None:
    body = bytes(range(256)) * 3000
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    assert feed(receiver, framed(body, b"next"), SCRATCH_BYTES) == [body, b"next"]


def test_peer_of_large_frames_has_little_copied_out_of_the_scratch() -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    assert len(receiver.buffer()) == SCRATCH_BYTES
    large = bytes(SCRATCH_BYTES + 1)
    assert feed(receiver, framed(large), SCRATCH_BYTES) == [large]
    assert len(receiver.buffer()) == SCRATCH_OF_LARGE_BYTES
    bodies = [large, b"small", large]
    assert feed(receiver, framed(*bodies), SCRATCH_BYTES) == bodies


def test_claimed_size_allocates_only_the_first_step() -> None:
    receiver = FrameReceiver(100 * 1024 * 1024)
    feed(receiver, (100 * 1024 * 1024).to_bytes(4, "big") + b"ten bytes.", 100)
    assert receiver.is_mid_frame
    assert receiver.held_bytes == FIRST_STEP_BYTES


def test_buffer_grows_with_what_arrives() -> None:
    receiver = FrameReceiver(100 * 1024 * 1024)
    feed(receiver, (10 * 1024 * 1024).to_bytes(4, "big") + bytes(1024 * 1024), SCRATCH_BYTES)
    assert 1024 * 1024 <= receiver.held_bytes <= 2 * 1024 * 1024 + SCRATCH_BYTES


def test_size_seen_before_is_trusted_from_the_start() -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    feed(receiver, framed(bytes(900_000)), SCRATCH_BYTES)
    feed(receiver, (900_000).to_bytes(4, "big") + b"x", 100)
    assert receiver.held_bytes == 900_000


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_impossible_size_is_refused(size: int) -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    with pytest.raises(MalformedFrame):
        feed(receiver, size.to_bytes(4, "big", signed=True), 4)


def test_tls_hello_on_the_plaintext_port_is_refused() -> None:
    receiver = FrameReceiver(104_857_600)
    with pytest.raises(MalformedFrame):
        feed(receiver, bytes.fromhex("16030100c5010000c1"), 100)


def test_frames_own_their_bytes() -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    buffer = receiver.buffer()
    data = framed(b"first")
    buffer[: len(data)] = data
    (frame,) = receiver.received(len(data))
    receiver.buffer()[: len(data)] = bytes(len(data))
    assert bytes(frame) == b"first"


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.binary(min_size=1, max_size=300), max_size=12),
    read_bytes=st.integers(min_value=1, max_value=400),
)
def test_any_stream_in_any_reads_gives_its_frames(bodies: list[bytes], read_bytes: int) -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    assert feed(receiver, framed(*bodies), read_bytes) == bodies


def test_the_memory_of_a_served_frame_is_the_next_frames_unless_it_is_still_viewed() -> None:
    receiver = FrameReceiver(MAX_FRAME_BYTES)
    while _spares:
        _spares.pop()

    def received(fill: bytes) -> memoryview:
        data = framed(fill * 900_000)
        frames: list[bytearray | memoryview] = []
        while data:
            buffer = receiver.buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            frames += receiver.received(count)
        (frame,) = frames
        assert isinstance(frame, memoryview)
        return frame

    frame = received(b"a")
    kept = frame[5:9]
    recycle(frame)
    frame = received(b"b")
    assert bytes(kept) == b"aaaa"

    spare = frame.obj
    recycle(frame)
    frame = received(b"c")
    assert frame.obj is spare
    assert not _spares
    assert bytes(frame) == b"c" * 900_000


def test_read_of_very_many_frames_is_cut_in_portions() -> None:
    receiver = FrameReceiver(1_000)
    data = b"".join(b"\0\0\0\2%02d" % (number % 100) for number in range(1_300)) + b"\0\0\0\3a"
    receiver.buffer()[: len(data)] = data
    frames = receiver.received(len(data))
    assert len(frames) == FRAMES_AT_ONCE
    portions = 1
    while receiver.rest:
        frames += receiver.cut_rest()
        portions += 1
    assert portions == 3
    assert [bytes(frame) for frame in frames] == [b"%02d" % (n % 100) for n in range(1_300)]
    assert receiver.is_mid_frame
    receiver.buffer()[:2] = b"bc"
    assert [bytes(frame) for frame in receiver.received(2)] == [b"abc"]
