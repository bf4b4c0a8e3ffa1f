"""For any frames and any way of reading them: the same frames come out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.frames import FrameDecoder, encode_frame

_PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


@settings(max_examples=200, deadline=None)
@given(_PAYLOADS, st.lists(st.integers(0, 400), max_size=12))
def test_any_split_yields_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(b"".join(encode_frame([payload])) for payload in payloads)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder(40)
    frames = []
    for start, end in pairwise(edges):
        decoder.feed(stream[start:end])
        while (frame := decoder.next_frame()) is not None:
            frames.append(bytes(frame))
    assert frames == payloads
    assert decoder.buffered_bytes == 0
