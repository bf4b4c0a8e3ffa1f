"""A former owner that continues beside the new one, over a real S3 server; many times."""

import os
from pathlib import Path

import pytest

from tests.s3.server import BUCKET, find_versitygw, s3_server
from tests.support.zombies import zombie_cycle

ZOMBIES = int(os.environ.get("ZOMBIES", "2"))
_PROGRAM = find_versitygw()
pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="make test-s3 installs versitygw")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(ZOMBIES))
async def test_a_zombie_writes_nothing_that_a_reader_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert _PROGRAM is not None
    with s3_server(_PROGRAM, tmp_path) as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        await zombie_cycle(tmp_path, f"s3://{BUCKET}/history", seed=seed)
