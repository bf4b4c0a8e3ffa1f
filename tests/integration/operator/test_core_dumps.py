"""A process with secrets writes none of its memory to a file."""

import ctypes
import os
import resource
from pathlib import Path

import pytest

from broker.server import forbid_core_dumps
from tests.support.broker import broker_process


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_broker_with_users_dumps_no_core(tmp_path: Path, protocol: str) -> None:
    with broker_process(tmp_path / "data", listeners=f"{protocol}://127.0.0.1:0") as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    own = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    assert line.split()[4] == ("0" if protocol.startswith("SASL") else own)


def test_no_other_process_may_read_the_memory() -> None:
    child = os.fork()
    if child == 0:
        forbid_core_dumps()
        os._exit(10 + ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10
