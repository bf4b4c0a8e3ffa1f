"""``tidelog restore``: a data directory from a bucket, on a machine that has nothing else.

The files and their order are `storage.bucket.restore`. The bucket is taken over first, so that
the broker that wrote it, if it still runs, can write no more of it than was read.
"""

import os
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import format_size, print_json
from cli.stores import not_opened, open_bucket, run_all
from storage.bucket.clusters import clusters_in
from storage.bucket.emptied import Hole, name_entries, name_unreadable, read_to_hole
from storage.bucket.journal import BucketJournal, last_write_ms
from storage.bucket.map import BucketState
from storage.bucket.restore import Restored, missing_entries, restore
from storage.disk.checkpoints import format_uuid, random_uuid
from storage.disk.file_names import LOST_AND_FOUND
from storage.disk.files import RealFiles
from storage.disk.steps import run_steps
from storage.errors import StorageError, StoreFailed
from storage.remote.engine import BadStoreUrl, list_clusters
from storage.remote.object_store import ObjectStore
from values.words import format_count

ALIVE_MS = 60_000
"""A bucket that was written to within this time, and not released, has a broker that runs."""


@click.command()
@click.argument("url", metavar="URL")
@click.option(
    "--data-dir",
    "directory",
    metavar="DIRECTORY",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The new data directory; it is made, or is empty.",
)
@click.option("--cluster-id", metavar="ID", help="The cluster, if the bucket has those of several.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Also from a broker that seems to run: it will write nothing more to the bucket.",
)
@click.option(
    "--despite-hole",
    is_flag=True,
    help="Also if entries of the bucket's journal are missing or damaged: the older state before "
    "them, for a broker that only reads. The bucket stays as it is.",
)
@json_option
def command(
    *,
    url: str,
    directory: Path,
    cluster_id: str | None,
    take_over: bool,
    despite_hole: bool,
    as_json: bool,
) -> int:
    """Make a data directory from what a bucket has: topics, settings, groups, records.

    URL is the broker's remote.storage.url. Start the broker on the directory with the same one.

    Exit code 8 says that the broker of the bucket seems to run, 6 that its journal lacks entries,
    or has a damaged one.
    """
    _check_empty(directory)
    cluster_id = choose_cluster(url, cluster_id)
    store = open_bucket(url, cluster_id)
    directory_id = random_uuid(os.urandom)
    began_s = time.monotonic()
    journal = BucketJournal(store, format_uuid(directory_id), Random(os.urandom(16)))
    try:
        state, hole = _read(store)
        _check_whole(store, state, hole, despite_hole=despite_hole)
        voids, damage = list(state.voids), name_unreadable(state)
        if hole is None:
            journal.state = state
            state = _take_over(journal, is_forced=take_over)
        RealFiles().make_directory(str(directory.absolute()))
        restored = restore(
            state,
            store,
            str(directory.absolute()),
            RealFiles(),
            cluster_id=cluster_id,
            directory_id=directory_id,
            run_all=run_all,
        )
    except (OSError, StorageError) as error:
        where = "" if isinstance(error, StoreFailed) else f"{directory}: "
        advice = ""
        if journal.is_owner:
            advice = (
                ". The bucket was taken over, so its former broker appends nothing any more: "
                f"remove {directory}, and restore again"
            )
        raise CommandFailed(f"{where}{error}{advice}", ExitCode.FAILED) from error
    if as_json:
        missing = list(hole.missing if hole else ())
        facts = {"missing_entries": missing, "damaged_entries": voids}
        print_json({"cluster_id": cluster_id, "epoch": state.epoch, **asdict(restored), **facts})
    else:
        _show(directory, restored, time.monotonic() - began_s)
        if damage:
            click.echo(f"the journal ends in damage: {damage}")
        if hole is not None:
            click.echo(
                f"the journal has a hole: {hole}. This is the {_described(store, state)}. A broker "
                "on it only reads, since the bucket was not taken over"
            )
    return ExitCode.OK


def _check_empty(directory: Path) -> None:
    try:
        names = [it.name for it in directory.iterdir() if it.name != LOST_AND_FOUND]
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandFailed(str(error), ExitCode.FAILED) from error
    if names:
        raise click.UsageError(
            f"--data-dir {directory} is not empty, it has {sorted(names)[0]}: name a new directory"
        )


def _read(store: ObjectStore) -> tuple[BucketState, Hole | None]:
    """The map, and the hole that ends it, if there is one."""
    state, hole = read_to_hole(store)
    if state.number < 0 and hole is None:
        raise CommandFailed(
            "the bucket has no journal: an earlier release wrote it, or another program; start "
            "this release on its data directory first",
            ExitCode.NOT_FOUND,
        )
    return state, hole


def _check_whole(
    store: ObjectStore, state: BucketState, hole: Hole | None, *, despite_hole: bool
) -> None:
    """Refuse what lacks entries, before the bucket is taken over and the directory made."""
    advice, problem = "Bring back what is missing, from a backup or an earlier version", ""
    if hole is not None and hole.damage:
        advice = "Bring back an earlier version of that object"
    if hole is not None and (state.number < 0 or not despite_hole):
        problem = f"has a hole: {hole}"
        if state.number >= 0:
            advice += f", or give --despite-hole for the {_described(store, state)}"
    elif missing := missing_entries(state, store):
        problem = f"lacks records: {name_entries(missing, 'missing')}"
    if problem:
        raise CommandFailed(
            f"the journal of the bucket {problem}. {advice}; nothing was changed",
            ExitCode.DAMAGED,
        )


def _described(store: ObjectStore, state: BucketState) -> str:
    from client.times import format_time  # only a hole needs it

    written_ms = last_write_ms(store, state)
    when = f", of {format_time(written_ms)}" if written_ms else ""
    return f"state after entry {state.number}{when}"


def _take_over(journal: BucketJournal, *, is_forced: bool) -> BucketState:
    state = journal.state
    age_ms = time.time_ns() // 1_000_000 - last_write_ms(journal.store, state)
    if not is_forced and not state.owner.get("released") and age_ms < ALIVE_MS:
        raise CommandFailed(
            f"the broker of data directory {state.owner_id} wrote to the bucket "
            f"{max(0, age_ms) // 1000} s ago: stop it, or give --take-over",
            ExitCode.FENCED,
        )
    run_steps(journal.take_over())
    return journal.state


def _show(directory: Path, restored: Restored, duration_s: float) -> None:
    click.echo(
        f"{directory}: {format_count(restored.topics, 'topic')}, "
        f"{format_count(restored.partitions, 'partition')}, "
        f"{format_count(restored.segments, 'segment')} in the bucket, "
        f"{format_size(restored.tail_bytes)} of newer records here, in {duration_s:.1f} s"
    )
    for name in restored.key_stores:
        click.echo(f"{name}: left out, its key store is not on this machine")
    for name in restored.empty:
        click.echo(f"{name}: empty, its records were never in the bucket (remote.storage.enable)")


def choose_cluster(url: str, cluster_id: str | None) -> str:
    """The cluster in the bucket: the one that was named, else the only one.

    Raises:
        CommandFailed: the store gives no answer, or has no such cluster.
        UsageError: it has several, and none was named.
    """
    try:
        found = clusters_in(url) if cluster_id is None else list_clusters(url)
    except BadStoreUrl as error:
        raise not_opened(error) from error
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
