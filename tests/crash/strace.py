"""System calls of a broker that fail or kill it: `strace` with its injections.

`why_unavailable` installs strace where that is possible (root, apt), or says in a sentence what is
missing. `attach` makes calls of a running process fail, `kill_at` ends a process at its k-th
call of a set. The broker is a stranger to all of it: the same code, the same kernel.
"""

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHANGING_CALLS = (
    "pwrite64,fsync,fdatasync,ftruncate,rename,renameat,renameat2,unlink,unlinkat,mkdir,flock"
)
"""What changes a file system in a broker, apart from `open`, which the interpreter uses as well."""

ATTACH_TIMEOUT_S = 20.0
START_TIMEOUT_S = 60.0
ROOT = Path(__file__).parents[2]


@functools.cache
def why_unavailable() -> str | None:
    """What this machine lacks, as a sentence; None when nothing."""
    if sys.platform != "linux":
        return "failing single system calls needs strace, which is for Linux"
    if shutil.which("strace") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "strace"], check=False)
    if shutil.which("strace") is None:
        return "failing single system calls needs strace; install it (apt-get install strace)"
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"strace may not trace here: {probe.stderr.strip()}"
    return None


@contextmanager
def attach(pid: int, injection: str, path: str) -> Iterator[None]:
    """While it lasts, system calls of the process on `path` suffer `injection`.

    For example ``fdatasync:error=EIO:when=3``; the syntax is strace's.
    """
    calls = injection.partition(":")[0]
    tracer = subprocess.Popen(
        ["strace", "-f", "-p", str(pid), "-P", path, "-e", f"trace={calls}",
         "-e", f"inject={injection}", "-o", os.devnull],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        _wait_traced(pid)
        yield
    finally:
        tracer.terminate()
        tracer.communicate(timeout=ATTACH_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStart:
    """What became of a start.

    Attributes:
        calls: names of the changing calls that its main thread made, in order.
        was_ready: whether it announced itself before it was killed.
    """

    calls: tuple[str, ...]
    was_ready: bool


def start_traced(
    directory: Path, settings: Sequence[str], *, kill_at: tuple[str, int] | None
) -> TracedStart:
    """Run a broker until it is ready, or until `kill_at`: a call's name and which one of that name.

    It is killed there, before the call is made; one that gets ready is killed right after.
    """
    log = directory.parent / "strace.log"
    injection = [] if kill_at is None else [
        "-e", f"inject={kill_at[0]}:signal=SIGKILL:when={kill_at[1]}"
    ]  # fmt: skip
    process = subprocess.Popen(
        ["strace", "-f", "-qq", "-e", f"trace={CHANGING_CALLS}", *injection, "-o", str(log),
         sys.executable, "-m", "broker", *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    was_ready = bool(process.stdout.readline())
    lines = log.read_text().splitlines()
    main = lines[0].split()[0] if lines else ""
    made = [line.split(maxsplit=1)[1] for line in lines if line.split()[0] == main]
    calls = tuple(call.partition("(")[0] for call in made if "(" in call)
    # strace itself would only detach: the whole group has to go.
    os.killpg(process.pid, 9)
    process.communicate(timeout=START_TIMEOUT_S)
    return TracedStart(calls=calls, was_ready=was_ready)


def _wait_traced(pid: int) -> None:
    deadline = time.monotonic() + ATTACH_TIMEOUT_S
    while time.monotonic() < deadline:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        if all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks):
            return
        time.sleep(0.01)
    raise AssertionError("strace did not attach")
