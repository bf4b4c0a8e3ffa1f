"""A process with secrets writes none of its memory to a file."""

import ctypes
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from broker import server
from config import load


@pytest.mark.parametrize(
    ("settings", "forbids"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:0"}, False),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, True),
        ({"delegation.token.secret.key": "env:HOME"}, True),
    ],
)
def test_a_broker_with_secrets_forbids_core_dumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], forbids: bool
) -> None:
    forbidden: list[bool] = []

    async def serve(*_: Any, **__: Any) -> None:
        """The broker itself is not needed."""

    monkeypatch.setattr(server, "forbid_core_dumps", lambda: forbidden.append(True))
    monkeypatch.setattr(server, "serve", serve)
    config = load(command_line={"log.dirs": str(tmp_path), **settings})
    assert server.run(config, announce=lambda _: None) == 0
    assert forbidden == [True] * forbids


def test_no_memory_is_written_or_read_from_outside() -> None:
    child = os.fork()
    if child == 0:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        server.forbid_core_dumps()
        limits = resource.getrlimit(resource.RLIMIT_CORE)
        dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
        os._exit(10 if (limits, dumpable) == ((0, most), 0) else 11)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
