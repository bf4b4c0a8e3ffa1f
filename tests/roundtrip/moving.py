"""The two commands that move directories, and Kafka started on one that it did not make."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.kafka_peer import KafkaPeer, tool_command


def tidelog(*words: object) -> dict[str, Any]:
    """A command of the console script with its JSON answer."""
    done = _run(words)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def tidelog_fails(*words: object) -> str:
    """What a command that must fail says on stderr."""
    done = _run(words)
    assert done.returncode != 0, done.stdout
    return done.stderr


def raise_features(bootstrap: str) -> None:
    """The command that an export tells its reader to run, so that 4.x uses what it can."""
    tool = "org.apache.kafka.tools.FeatureCommand"
    words = ["--bootstrap-server", bootstrap, "upgrade", "--release-version", "4.3"]
    command = tool_command(tool, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _run(words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "tidelog"
    command = [str(program), *(str(word) for word in words), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def peer_on(
    directory: Path, log_dir: Path | None, version: str, settings: Mapping[str, str] | None = None
) -> KafkaPeer:
    """A small Kafka as node 1, with its partitions in `log_dir`."""
    return KafkaPeer(directory, version=version, log_dir=log_dir, settings=settings, heap="512m")
