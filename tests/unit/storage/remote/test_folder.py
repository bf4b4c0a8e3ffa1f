"""A folder as a store: what counts there is on the disk, as far as `fsync` can see to that."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.errors import ObjectExists, StoreFailed
from storage.remote.engine import PART_BYTES, open_store
from storage.remote.object_store import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/b", "cluster")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was synced and linked, in order, with its path."""
    seen: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def synced(fd: int) -> None:
        seen.append(("sync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def linked(source: str, target: str) -> None:
        seen.append(("link", target))
        link(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    return seen


def test_an_object_gets_its_name_when_its_bytes_are_on_the_disk(
    store: ObjectStore, done: list[tuple[str, str]], tmp_path: Path
) -> None:
    place = f"{tmp_path}/b/cluster"
    store.put_new("journal/1", b"first", b" entry")
    beside, named, *synced = done
    assert beside == ("sync", f"{place}/journal/1#1")
    assert named == ("link", f"{place}/journal/1")
    # The directories above were made, too: their names are entries of those above them.
    above = [f"{place}/journal", place, f"{tmp_path}/b", str(tmp_path), str(tmp_path.parent)]
    assert [path for _, path in synced][: len(above)] == above
    done.clear()
    store.put_new("journal/2", b"second")
    assert [path for _, path in done[2:]] == [f"{place}/journal"]
    assert store.get("journal/1", 0, 11) == b"first entry"


def test_a_large_object_is_no_other(
    store: ObjectStore, done: list[tuple[str, str]], tmp_path: Path
) -> None:
    data = os.urandom(PART_BYTES + 1)
    upload = store.begin_put("segments/t/0", len(data))
    upload.write(data[:1000])
    upload.write(memoryview(data)[1000:])
    assert store.size_of("segments/t/0") is None
    assert not done
    upload.finish()
    place = f"{tmp_path}/b/cluster/segments/t"
    assert done[:3] == [
        ("sync", f"{place}/0#1"),
        ("link", f"{place}/0"),
        ("sync", place),
    ]
    assert store.has("segments/t/0", [data])
    upload.abort()
    assert os.listdir(place) == ["0"]


def test_directories_that_a_deletion_removed_are_synced_again(
    store: ObjectStore, done: list[tuple[str, str]], tmp_path: Path
) -> None:
    place = tmp_path / "b/cluster"
    store.put_new("tails/t/1", b"x")
    store.delete("tails/t/1")
    assert not (place / "tails").exists()
    done.clear()
    store.put_new("tails/t/2", b"y")
    assert [path for _, path in done[2:]] == [f"{place}/tails/t", f"{place}/tails", str(place)]


def failing(at: Callable[[str], bool]) -> Callable[[int], None]:
    """An `os.fsync` that fails for some paths."""

    def fsync(fd: int) -> None:
        if at(os.readlink(f"/proc/self/fd/{fd}")):
            raise OSError(errno.EIO, "Input/output error")

    return fsync


@pytest.mark.parametrize("ending", ["#1", "/journal"])
def test_what_was_not_synced_is_not_there(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: str
) -> None:
    """A look after the error would take it for an object that counts."""
    store.put_new("journal/0", b"x")
    monkeypatch.setattr(os, "fsync", failing(lambda path: path.endswith(ending)))
    with pytest.raises(StoreFailed, match="Input/output error"):
        store.put_new("journal/1", b"x")
    assert store.size_of("journal/1") is None
    assert os.listdir(tmp_path / "b/cluster/journal") == ["0"]
    monkeypatch.undo()
    store.put_new("journal/1", b"y")
    assert store.get("journal/1", 0, 1) == b"y"


def test_what_a_crash_left_beside_disturbs_nothing(store: ObjectStore, tmp_path: Path) -> None:
    place = tmp_path / "b/cluster/journal"
    place.mkdir()
    (place / "1#1").write_bytes(b"half")
    store.put_new("journal/1", b"whole")
    with pytest.raises(ObjectExists):
        store.put_new("journal/1", b"other")
    assert store.get("journal/1", 0, 5) == b"whole"
    assert [found.key for found in store.list_objects()] == ["journal/1"]
    assert sorted(os.listdir(place)) == ["1", "1#1"]


def test_a_full_disk_leaves_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFailed, match="No space left on device"):
        store.put_new("k", b"x")
    assert os.listdir(tmp_path / "b/cluster") == []


def test_a_file_system_without_hard_links_is_named(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(StoreFailed, match="has no hard links: choose another folder"):
        store.put_new("k", b"x")
    assert os.listdir(tmp_path / "b/cluster") == []


def test_a_directory_above_that_cannot_be_synced_is_left_alone(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is another user's, so this store did not make it."""
    monkeypatch.setattr(os, "fsync", failing(lambda path: path == str(tmp_path)))
    store.put_new("k", b"x")
    assert store.get("k", 0, 1) == b"x"


def test_objects_are_made_while_others_are_deleted(store: ObjectStore) -> None:
    """A directory goes with its last object, while the next one is made in it."""

    def work(number: int) -> None:
        for turn in range(100):
            key = f"tails/t/0/{number}-{turn}"
            store.put_new(key, b"x")
            assert store.size_of(key) == 1
            store.delete(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not list(store.list_objects())
