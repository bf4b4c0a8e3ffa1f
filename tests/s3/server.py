"""A real S3 server on this machine: versitygw over a folder, built by `go install`.

`VERSITYGW` names the program; else it is looked for on PATH and in `.cache/go/bin`, where
`make test-s3` puts it.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, SECRET = "tidelog", "tidelog-secret"
BUCKET = "tier"
READY_S = 20.0
_CHECKOUT = Path(__file__).parents[2]


def find_versitygw() -> str | None:
    """The program, or None when it is not installed."""
    built = _CHECKOUT / ".cache" / "go" / "bin" / "versitygw"
    return (
        os.environ.get("VERSITYGW")
        or shutil.which("versitygw")
        or (str(built) if built.exists() else None)
    )


class S3Server:
    """One server process; `stop` and `start` keep the bucket."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._root = directory / "buckets"
        (self._root / BUCKET).mkdir(parents=True)
        self._iam = directory / "iam"
        self._iam.mkdir()
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a client of the library needs."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Start and wait until it accepts connections."""
        self.process = subprocess.Popen(
            [
                self._program, "--port", f"127.0.0.1:{self.port}", "--access", USER,
                "--secret", SECRET, "--iam-dir", str(self._iam), "posix", str(self._root),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self.process.poll() is None, "the S3 server ended at its start"
                assert time.monotonic() < deadline_s, "the S3 server does not accept connections"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Kill the process; the bucket stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def s3_server(program: str, directory: Path) -> Iterator[S3Server]:
    """A started server."""
    server = S3Server(program, directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
