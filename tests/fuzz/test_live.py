"""A few thousand wrong frames on live sockets; millions: `python -m tests.fuzz.live`."""

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.live import Frames, besiege

FRAMES = 4000


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_wrong_frames_are_answered_or_close(tmp_path: Path) -> None:
    found = await besiege(tmp_path, FRAMES, 1)
    assert [key for key in found if key.startswith("silent")] == []
    assert found["closed"] > FRAMES // 4
    assert found["answered"] > FRAMES // 10


def test_all_kinds_of_frames_are_made() -> None:
    kinds = {kind for kind, _, _ in islice(Frames(random.Random(1)), 1000)}
    assert len(kinds) == 10
