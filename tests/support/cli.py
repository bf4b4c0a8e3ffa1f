"""The command line as a process, for tests that look at its output and its exit code."""

import os
import subprocess
import sys
from pathlib import Path

from tidelog.testing import RunningBroker

ROOT = Path(__file__).resolve().parents[2]


def environment(server: RunningBroker | None) -> dict[str, str]:
    """The variables of a command that asks `server`, in the zone of New York."""
    variables = {**os.environ, "TZ": "America/New_York", "PYTHONPATH": str(ROOT)}
    if server is not None:
        variables["KAFKA_BOOTSTRAP_SERVERS"] = server.bootstrap
    return variables


def tidelog(
    *words: str, server: RunningBroker | None = None, given: str | bytes = b"", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """One command run to its end; `given` is its standard input."""
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        input=data,
        capture_output=True,
        env=environment(server) | variables,
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def ok(*words: str, server: RunningBroker, given: str | bytes = b"") -> str:
    """The output of a command that succeeds without a note."""
    done = tidelog(*words, server=server, given=given)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
