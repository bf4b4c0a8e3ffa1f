"""The pytest plugin as users meet it: no cost at the start, fixtures, the log of a failure."""

import subprocess
import sys
from pathlib import Path

from tests.integration.testing.test_documentation import pytest_in
from tests.support.cli import environment


def test_loading_the_plugin_loads_neither_broker_nor_client() -> None:
    code = (
        "import pytest, sys; import tidelog.testing.plugin; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(None),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.split())
    ours = {"broker", "client", "protocol", "storage", "config", "values"}
    assert loaded & (ours | {"construct", "uvloop", "asyncio"}) == set()


def test_asserts_of_the_product_are_not_rewritten(tmp_path: Path) -> None:
    """The plugin's distribution is the whole broker; see the plugin's docstring."""
    (tmp_path / "test_it.py").write_text(
        """
def test_loaders():
    from tidelog import Producer
    from tidelog.testing import process
    for module in (__import__(Producer.__module__, fromlist=["x"]), process):
        assert "rewrite" not in type(module.__spec__.loader).__module__, module
    assert "rewrite" in type(__spec__.loader).__module__
"""
    )
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_fixtures_share_a_broker_and_put_its_clock_right(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import time

seen = []

def test_one(tidelog_broker, tidelog_clock, tidelog_topic):
    seen.append(tidelog_broker.bootstrap)
    assert tidelog_topic() != tidelog_topic(["x"], partitions=2, settings={"segment.ms": "1000"})
    tidelog_clock.freeze("2030-01-01T00:00Z")
    assert tidelog_clock.now_ms == 1893456000000

def test_two(tidelog_broker, tidelog_clock):
    assert seen == [tidelog_broker.bootstrap]
    assert abs(tidelog_clock.now_ms - time.time() * 1000) < 60_000
    assert tidelog_clock.read().rate == 1

def test_three(tidelog_broker, tidelog_new_broker):
    assert tidelog_new_broker.bootstrap != tidelog_broker.bootstrap
"""
    )
    done = pytest_in(tmp_path)
    assert "3 passed" in done.stdout, done.stdout


def test_a_failed_test_shows_the_log_of_its_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
def test_bad(tidelog_clock, tidelog_topic):
    tidelog_topic(["x"], settings={"retention.ms": "1000"})
    tidelog_clock.advance("1d")
    assert False

def test_without_a_broker():
    assert False
"""
    )
    done = pytest_in(tmp_path)
    assert "2 failed" in done.stdout, done.stdout
    assert done.stdout.count("- Tidelog at 127.0.0.1:") == 1
    assert "segment 0 deleted (older than retention.ms)" in done.stdout
