"""The zip for executors is enough: decoding and planning run from it, in plain Python."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from pipeline.bundle import write_bundle, write_launcher
from protocol.records.builder import build_batch
from protocol.records.record import Record

SCRIPT = """
import sys
bundle, data = sys.argv[1], bytes.fromhex(sys.argv[2])
# Only the standard library, the zip, and pyarrow: what an executor has.
import pyarrow
for name in ("cramjam", "lz4", "zstandard", "xxhash", "crc32c", "cython", "click", "uvloop"):
    sys.modules[name] = None
sys.path.insert(0, bundle)
from pipeline.records import arrow_loops
from pipeline.records.batches import DecodeRules, PartitionDecoder
from pipeline.options.options import parse_source_options
from pipeline.net.producing import TaskProducer
from protocol import registry
from protocol.api.fetch import FetchRequest
assert not {"asyncio", "ssl"} & sys.modules.keys(), "imports cost executors time"
assert bundle in arrow_loops.__file__ and not arrow_loops.COMPILED
assert bundle in registry.__file__
from tidelog import spark
assert bundle in spark.__file__
assert registry.encode_request(FetchRequest(replica_id=-1), 12)
parse_source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, is_stream=False)
decoder = PartitionDecoder("t", 0, 0, 9, DecodeRules(columns=("value",)))
print([row for batch in decoder.feed(memoryview(data)) for row in batch.to_pylist()])
"""


def test_executors_need_the_zip_and_pyarrow_only(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    assert write_bundle(str(bundle)) > 100
    data = build_batch([Record(0, 5, None, b"seen", ())])
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(bundle), data.hex()],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert answer.stdout == "[{'value': b'seen'}]\n", answer.stderr


BUCKET_SCRIPT = """
import sys
for name in ("cramjam", "lz4", "zstandard", "xxhash", "crc32c", "cython", "click", "uvloop"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
from pipeline.errors import BadOptions
from pipeline.plan import bucket
assert sys.argv[1] in bucket.__file__
assert "asyncio" not in sys.modules, "imports cost executors time"
try:
    bucket.Bucket("file:///nowhere/bucket", "c1")
except BadOptions as error:
    print(error)
"""


def test_a_bucket_is_read_from_the_zip(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    write_bundle(str(bundle))
    answer = subprocess.run(
        [sys.executable, "-c", BUCKET_SCRIPT, str(bundle)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert "is cluster c1, and what is there is of no cluster" in answer.stdout, answer.stderr


def test_nothing_of_the_broker_is_in_the_zip(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    write_bundle(str(bundle))
    tops = {name.split("/")[0] for name in zipfile.ZipFile(bundle).namelist()}
    ours = {
        "pipeline", "protocol", "client", "values", "storage", "config", "tidelog",
        "pyspark_tidelog.py",
    }  # fmt: skip
    assert tops == ours | {"construct", "crcmod"}


def test_the_launcher_runs_a_job_out_of_the_zip(tmp_path: Path) -> None:
    bundle = str(tmp_path / "b.zip")
    write_bundle(bundle)
    launcher = write_launcher(bundle)
    closed = "127.0.0.1:1"
    job = ("translate-offsets", "--group", "g", "-b", closed, "--to-bootstrap", closed)
    assert launcher == str(tmp_path / "b-job.py")
    answer = subprocess.run(
        [sys.executable, launcher, *job],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": bundle},
    )  # fmt: skip
    assert answer.returncode == 3, answer.stderr
    assert f"cannot connect to {closed}" in answer.stderr


def test_the_spark_demo_needs_no_tools_of_development() -> None:
    """It once imported pytest, by way of the other clients of the other demo."""
    forbid = (
        "import sys; sys.modules.update(dict.fromkeys(['pytest', 'confluent_kafka', 'pandas']))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", f"{forbid}; import demo.spark_flights"],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
