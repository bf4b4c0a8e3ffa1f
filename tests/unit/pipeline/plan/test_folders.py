"""A directory and the objects of a store keep the same promises.

The store is the library's own over a directory here; `tests/s3` has a server.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadOptions, StoreFailed
from pipeline.plan import folders
from pipeline.plan.folders import Folder, LocalFolder, ObjectFolder, file_at, folder_of
from pipeline.plan.journal import Journal


@pytest.fixture(params=["directory", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "directory":
        return folder_of(str(tmp_path / "new" / "lake"))
    from obstore.store import MemoryStore

    kept = MemoryStore()
    monkeypatch.setattr(folders, "_store_at", lambda _: kept)
    return folder_of("s3://bucket/lake/")


def test_the_first_writer_wins(folder: Folder) -> None:
    assert folder.create("plans/1", b"a")
    assert not folder.create("plans/1", b"b")
    assert folder.read("plans/1") == b"a"
    assert (folder.size("plans/1"), folder.size("plans/2")) == (1, None)
    assert folder.names("plans") == ["1"]
    assert folder.names("none") == []
    folder.remove("plans/1")
    folder.remove("plans/1")
    with pytest.raises(FileNotFoundError):
        folder.read("plans/1")


def test_a_file_appears_whole_and_is_read_by_its_address(folder: Folder) -> None:
    table = pa.table({"offset": range(10_000)})
    local = folder.scratch("event_date=2013-07-04/x.parquet")
    pq.write_table(table, local, row_group_size=1000)
    assert folder.names("event_date=2013-07-04") in ([], [local.name])
    size = folder.take("event_date=2013-07-04/x.parquet", local)
    assert not local.exists()
    assert folder.names("event_date=2013-07-04") == ["x.parquet"]
    assert folder.size("event_date=2013-07-04/x.parquet") == size
    path = folder.path("event_date=2013-07-04/x.parquet")
    assert path == f"{folder.address}/event_date=2013-07-04/x.parquet"
    with pq.ParquetFile(folder.open("event_date=2013-07-04/x.parquet"), pre_buffer=True) as file:
        assert file.read_row_group(7).column("offset")[0].as_py() == 7000
        assert file.read().equals(table)


def test_an_object_that_is_not_there_is_not_opened(folder: Folder) -> None:
    with pytest.raises(FileNotFoundError):
        pq.ParquetFile(folder.open("nothing.parquet"))


def test_an_address_names_its_kind_of_folder(tmp_path: Path) -> None:
    assert isinstance(folder_of(f"file://{tmp_path}"), LocalFolder)
    place, name = file_at("S3A://bucket/lake/event_date=2013-07-04/x.parquet")
    assert isinstance(place, ObjectFolder)
    assert (place.address, name) == ("S3A://bucket/lake/event_date=2013-07-04", "x.parquet")
    with pytest.raises(BadOptions, match="'hdfs://nn/x' is no path"):
        folder_of("hdfs://nn/x")


def test_a_store_that_does_not_answer_is_an_error_and_no_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing listens on port 1, and the library gives up after its retries."""
    monkeypatch.setattr(folders, "_RETRIES", 0)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    journal = Journal("s3://nothing-listens/state")
    with pytest.raises(StoreFailed, match=r"GET s3://nothing-listens/state/start\.json"):
        journal.find("start")
    with pytest.raises(StoreFailed, match=r"PUT s3://nothing-listens/state/start\.json"):
        journal.put("start", 1)
