"""The bucket that a command names: its address, its cluster, its journal."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from storage.audit.remote import cluster_id_of
from storage.disk.checkpoints import CorruptCheckpoint
from storage.disk.files import RealFiles
from storage.errors import StoreFailed
from storage.remote.engine import BadStoreUrl, list_clusters, open_store
from storage.remote.object_store import ObjectStore

GETS_AT_ONCE = 16


def run_all(calls: Iterable[Callable[[], bytes]]) -> Iterable[bytes]:
    """The results of the calls, made in threads, in order."""
    with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
        yield from pool.map(lambda call: call(), calls)


def cluster_of(directory: Path) -> str:
    """The id of the directory's cluster. Raises CommandFailed."""
    try:
        return cluster_id_of(str(directory), RealFiles())
    except (OSError, CorruptCheckpoint) as error:
        raise CommandFailed(
            f"{directory} does not say which cluster it belongs to ({error})", ExitCode.NOT_FOUND
        ) from error


def open_bucket(url: str, cluster_id: str) -> ObjectStore:
    """The store at `url`, below the prefix of the cluster. Raises CommandFailed."""
    try:
        return open_store(url, cluster_id)
    except BadStoreUrl as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error


def choose_cluster(url: str, cluster_id: str | None) -> str:
    """The cluster in the bucket: the one that was named, else the only one.

    Raises:
        CommandFailed: the store gives no answer, or has no such cluster.
        UsageError: it has several, and none was named.
    """
    try:
        found = list_clusters(url)
    except BadStoreUrl as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from error
    except StoreFailed as error:
        raise CommandFailed(str(error), ExitCode.UNREACHABLE) from error
    if cluster_id is not None:
        if cluster_id not in found:
            raise CommandFailed(
                f"{url} has no cluster {cluster_id}; it has {', '.join(found) or 'none'}",
                ExitCode.NOT_FOUND,
            )
        return cluster_id
    if not found:
        raise CommandFailed(f"{url} has nothing of a cluster", ExitCode.NOT_FOUND)
    if len(found) > 1:
        raise click.UsageError(
            f"{url} has several clusters or other folders ({', '.join(found)}), name one: "
            f"--cluster-id {found[0]}"
        )
    return found[0]
