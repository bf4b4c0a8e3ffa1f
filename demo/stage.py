"""What the demos share: a broker of their own, finished steps on the console, and disagreement.

Imports nothing but what Tidelog itself needs: the Spark demo runs without the other clients.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

PARTITIONS = 4

console = Console(highlight=False)


class Disagreement(AssertionError):
    """Two ways to the same fact gave different answers."""


@contextlib.contextmanager
def own_broker() -> Iterator[str]:
    """A Tidelog on a free port; its data directory is gone afterwards. Yields its address."""
    program = Path(sys.executable).parent / "tidelog"
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-") as folder:
        serve = [str(program), "serve", "--data-dir", f"{folder}/data", "--json"]
        with open(f"{folder}/broker.log", "w+") as log, step("start a broker") as done:
            broker = subprocess.Popen(
                [*serve, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log, text=True
            )
            assert broker.stdout is not None
            line = broker.stdout.readline()
            if not line:
                log.seek(0)
                raise RuntimeError(f"the broker did not start: {log.read().strip()[-500:]}")
            ready = json.loads(line)
            done(f"listening on {ready['host']}:{ready['port']}")
        try:
            yield f"{ready['host']}:{ready['port']}"
        finally:
            broker.terminate()
            broker.wait(20)
            broker.stdout.close()


class _Done:
    """What a step reports when it is over."""

    def __init__(self) -> None:
        self.result = ""

    def __call__(self, result: str) -> None:
        self.result = result


@contextlib.contextmanager
def step(title: str) -> Iterator[_Done]:
    """Prints a finished step with its result and its time."""
    report = _Done()
    started = time.perf_counter()
    yield report
    elapsed = f"{(time.perf_counter() - started) * 1000:,.0f} ms"
    console.print(f"[green]✓[/] {title:<29} {report.result:<36} [dim]{elapsed:>9}[/]")
