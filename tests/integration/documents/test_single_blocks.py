"""Blocks of pages that do not run as a whole; what each of them needs is made before.

As in `test_blocks` the words are those of the page, but for ports, and for buckets at Amazon, which
are directories here.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.documents.blocks import blocks
from tests.integration.documents.terminal import Terminal, terminal
from tests.support.cli import ROOT
from tidelog.testing import running_broker

BUCKET = "s3://my-bucket/history"
HTTP = "localhost:9464"


def block(page: str, start: str) -> str:
    """The text of a block by its beginning."""
    (found,) = (one.text for one in blocks() if one.page == page and one.text.startswith(start))
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal beside a broker."""
    with terminal(tmp_path, has_broker=False) as here:
        yield here


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal in which the blocks start brokers; a directory is the bucket."""
    with terminal(tmp_path, has_broker=True) as here:
        here.exchanged[BUCKET] = f"file://{tmp_path}/bucket"
        (tmp_path / "bucket").mkdir()
        yield here


def test_a_json_line_becomes_the_record(served: Terminal) -> None:
    line = block("docs/cli.md", '{"key"')
    (served.place / "line.json").write_text(line)
    served.lines("tidelog produce lines line.json --format json -q")
    shown = json.loads(served.lines("tidelog consume lines --from earliest --max 1 --json"))
    expected = json.loads(line)
    assert {name: shown[name] for name in expected} == expected


def test_the_density_of_a_topic_is_changed_and_shown(served: Terminal) -> None:
    served.lines("tidelog topic create flights")
    served.lines("echo one | tidelog produce flights -q --timestamp 2013-06-01T12:00:00Z")
    shown = served.lines(block("docs/density.md", "tidelog topic alter"))
    assert "flights-0: offset 0, " in shown
    assert "interval" in served.lines("tidelog topic describe flights")


def test_four_workers_serve_four_ports(alone: Terminal) -> None:
    alone.exchanged["workers=4"] = "workers=4 --listen 127.0.0.1:0"
    alone.lines(block("docs/operations.md", "tidelog serve --set workers=4"))
    first = re.search(r"127\.0\.0\.1:\d+", alone.ready)
    assert first is not None
    facts = json.loads(alone.lines(f"tidelog cluster describe --json -b {first[0]}"))
    assert len(facts["brokers"]) == 4


def test_the_metrics_port_answers_about_segments_and_times(tmp_path: Path) -> None:
    with running_broker() as broker:
        here = Terminal(tmp_path, broker.bootstrap)
        here.exchanged[HTTP] = f"127.0.0.1:{broker.metrics_port}"
        here.lines("tidelog topic create flights --set retention.ms=-1")
        here.lines("seq 5 | tidelog produce flights -q --timestamp 2013-07-01T00:00:00Z")
        segments = json.loads(here.lines(block("docs/time.md", "curl 'localhost:9464/segments")))
        assert segments["segments"][-1]["next_offset"] == 5
        bars = json.loads(here.lines(block("docs/time.md", "curl 'localhost:9464/histogram")))
        assert sum(records for _, records in bars["buckets"]) == 5


def test_the_clock_is_asked_and_set_over_http(tmp_path: Path) -> None:
    with running_broker(clock="settable") as broker:
        here = Terminal(tmp_path, broker.bootstrap)
        here.exchanged[HTTP] = f"127.0.0.1:{broker.metrics_port}"
        ask, advance = block("docs/time.md", "curl localhost:9464/clock").splitlines()
        before, after = (json.loads(here.lines(line)) for line in (ask, advance))
        assert after["wall_ms"] - before["wall_ms"] >= 691_200_000
        example = json.loads(block("docs/time.md", '{"wall_ms"'))
        assert example.keys() <= after.keys()


def test_the_doctor_judges_a_secured_directory(alone: Terminal) -> None:
    """With 1 if it finds this machine bad, which is not this test's to say."""
    (alone.place / "server.properties").write_text("num.partitions=2\n")
    alone.lines("tidelog serve --secure --data-dir data --listen 127.0.0.1:9092")
    alone.stop()
    for line in block("docs/security.md", "tidelog doctor").splitlines():
        done = alone.shell(line)
        assert done.returncode in (0, 1), done.stderr
        assert "ython" in done.stdout
        assert "Traceback" not in done.stderr


def test_the_console_starts_with_the_command_of_its_page(served: Terminal) -> None:
    served.lines(block("docs/console.md", "pip install"))
    assert "http://" in served.ready
    served.stop()


def test_a_topic_is_made_in_a_bucket_and_a_compacted_one(alone: Terminal) -> None:
    alone.lines(block("docs/tiered-storage.md", "pip install"))
    alone.lines(block("docs/tiered-storage.md", "tidelog topic create prices"))
    shown = alone.lines("tidelog topic describe flights\ntidelog topic describe prices")
    assert shown.count("remote.storage.enable") == 2
    alone.stop()


def test_a_standby_follows_a_lease(alone: Terminal) -> None:
    own, standby = block("docs/tiered-storage.md", "tidelog serve --set remote").splitlines()
    alone.lines(own)
    alone.lines("tidelog topic create flights --set remote.storage.enable=true")
    alone.lines(f"{standby} --listen 127.0.0.1:0")
    assert "standby" in alone.ready.lower() or "stands by" in alone.ready.lower()
    alone.stop()


def test_a_bucket_is_examined(alone: Terminal) -> None:
    alone.lines(f"tidelog serve --set remote.storage.url={BUCKET} --data-dir data")
    topic = "--set remote.storage.enable=true --set segment.bytes=2000"
    alone.lines(f"tidelog topic create flights {topic}")
    alone.lines("for n in 1 2 3 4 5; do seq 100 | tidelog produce flights -q; done")
    # Closed segments are uploaded in the background, and a stop does not wait for them.
    alone.lines("until tidelog tier status data | grep -q flights; do sleep 0.1; done")
    alone.stop()
    shown = alone.lines(block("docs/tiered-storage.md", "tidelog tier status"))
    assert "flights" in shown
    assert "0 errors" in shown


def test_a_directory_of_kafka_comes_and_goes(alone: Terminal) -> None:
    """A directory on which Kafka starts, too, made by the last command of the page."""
    page = "docs/how-to/move-from-kafka.md"
    export = block(page, "tidelog export-kraft")
    (alone.place / "server.properties").write_text("num.partitions=2\n")
    alone.lines("tidelog serve --data-dir data --listen 127.0.0.1:9092")
    alone.lines("seq 5 | tidelog produce flights -q")
    alone.stop()
    alone.lines(export)
    shutil.rmtree(alone.place / "data")
    alone.exchanged["0.0.0.0"] = "127.0.0.1"
    alone.lines(block(page, "tidelog import").replace("0.0.0.0:9092", "127.0.0.1:9092"))
    shown = alone.lines("tidelog consume flights --from earliest --exit-at-end --format '{value}'")
    assert shown.split() == list("12345")
    alone.stop()
    shutil.rmtree(alone.place / "kafka-data")
    alone.lines(export)
    assert (alone.place / "kafka-data" / "meta.properties").exists()


@pytest.mark.timeout(600)
def test_the_figures_of_the_old_code_are_counted(tmp_path: Path) -> None:
    """Of the tree that the page names, which a checkout without its history does not have."""
    text = block("docs/code-in-figures.md", "mkdir /tmp")
    has = ["git", "-C", str(ROOT), "cat-file", "-e", "33ee9fd^{commit}"]
    if subprocess.run(has, capture_output=True, check=False).returncode != 0:
        pytest.skip("a shallow clone")
    here = Terminal(tmp_path, "")
    here.exchanged["/tmp/33ee9fd"] = str(tmp_path / "33ee9fd")
    here.exchanged["git archive"] = f"git -C {ROOT} archive"
    shown = here.lines(text)
    assert "59,130" in shown or "59130" in shown
