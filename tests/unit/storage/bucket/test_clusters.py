"""Which folders of a bucket are clusters."""

from pathlib import Path
from random import Random

import pytest

from cli.failures import CommandFailed
from cli.remote.restore import choose_cluster
from storage.bucket import clusters
from storage.bucket.clusters import clusters_in
from storage.bucket.journal import CHECKPOINT_PREFIX, BucketJournal
from storage.disk.steps import run_steps
from storage.remote.engine import list_clusters, open_store


def put_journal(url: str, cluster: str, *, has_entries: bool = True) -> None:
    store = open_store(url, cluster)
    journal = BucketJournal(store, "a" * 22, Random(1))
    run_steps(journal.read())
    run_steps(journal.take_over())
    if not has_entries:
        run_steps(journal.checkpoint())
        for one in list(store.list_objects()):
            if not one.key.startswith(CHECKPOINT_PREFIX):
                store.delete(one.key)


def test_a_folder_of_others_beside_that_of_a_cluster_is_none(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    open_store(url, "aaa").put_new("journal/notes", b"hello")
    open_store(url, "logs").put_new("2026/11/29", b"hello")
    assert clusters_in(url) == ["aaa", "logs"]
    put_journal(url, "cluster", has_entries=False)
    assert clusters_in(url) == ["cluster"]
    assert choose_cluster(url, None) == "cluster"
    assert choose_cluster(url, "logs") == "logs"
    with pytest.raises(CommandFailed, match="no cluster other; it has aaa, cluster, logs"):
        choose_cluster(url, "other")
    put_journal(url, "second")
    assert clusters_in(url) == ["cluster", "second"]


def test_one_folder_is_taken_as_it_is_and_many_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}"
    assert clusters_in(url) == []
    open_store(url, "logs").put_new("a", b"hello")
    assert clusters_in(url) == ["logs"]
    put_journal(url, "cluster")
    monkeypatch.setattr(clusters, "_FOLDERS_MAX", 1)
    assert clusters_in(url) == list_clusters(url) == ["cluster", "logs"]
