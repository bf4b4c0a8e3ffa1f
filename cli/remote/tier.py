"""``tidelog tier``: what a data directory has in its object store, and what nothing names there.

The comparison is `storage.audit.remote`. The commands read the directory, also beside a running
broker, and list the bucket.
"""

import time
from pathlib import Path
from typing import Any

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import DirectoryType, WholeNumber, json_option
from cli.output import format_size, print_json, print_table
from cli.stores import cluster_of, directory_id_of, open_bucket
from client.times import format_duration
from storage.audit.remote import (
    DAY_MS,
    Comparison,
    TieredPartition,
    compare,
    read_journal,
    read_partitions,
    tiered,
)
from storage.bucket.emptied import Hole, read_to_hole
from storage.bucket.map import BucketState
from storage.bucket.restore import objects_in
from storage.directory.claim import LOCK_FILE
from storage.disk.files import RealFiles
from storage.errors import StoreFailed
from storage.remote.object_store import ObjectStore
from values.words import format_count

_MS_PER_HOUR = 3_600_000
PRICE = 0.023
"""What a GB costs in a month if the operator says nothing: the list price of S3 Standard in USD."""

_BYTES_PER_GB = 1_000_000_000
_SAFE_HOURS = 24
"""An upload takes less: `broker.jobs.tiering` gives it up earlier."""


@click.group()
def command() -> None:
    """Show what is in the object store of a data directory, delete what nothing names.

    The settings are remote.storage.url and remote.storage.enable; see tidelog docs
    tiered-storage.
    """


_directory = click.argument("directory", type=DirectoryType())
_url = click.option(
    "--url",
    metavar="URL",
    help="The broker's remote.storage.url; credentials are in the environment.",
)


@command.command(short_help="Show what the store has, what waits, and what it costs a month.")
@_directory
@_url
@click.option(
    "--price",
    metavar="NUMBER",
    type=click.FloatRange(min=0),
    default=PRICE,
    show_default=True,
    help="What the store asks for a GB and month, for the estimate.",
)
@json_option
def status(*, directory: Path, url: str | None, price: float, as_json: bool) -> int:
    """Show what is in the store, what waits for its upload, and what storing it costs a month.

    With --url, look whether it is there. The estimate is for storage alone: requests and traffic
    are not in it (tidelog docs tiered-storage says how many requests there are).

    Exit code 6 says that objects are missing which a manifest names.
    """
    partitions = _partitions(directory)
    found = None
    if url is not None:
        store = open_bucket(url, cluster_of(directory))
        state, _ = _read_bucket(store)
        found = _compare(store, state, directory, partitions, DAY_MS)
    cost = _cost(partitions, found, price)
    if as_json:
        print_json(_document(partitions, found) | {"monthly_cost": cost})
    else:
        _show(partitions, found)
        click.echo(f"storing it costs about {cost:.2f} a month, at {price:g} for a GB (--price)")
    return ExitCode.DAMAGED if found is not None and found.missing else ExitCode.OK


@command.command(short_help="List objects that nothing names, or delete them.")
@_directory
@_url
@click.option("--delete", "deletes", is_flag=True, help="Delete them; without it, only list them.")
@click.option(
    "--older-than",
    "hours",
    metavar="HOURS",
    type=WholeNumber(min=1),
    default=24,
    show_default=True,
    help="Leave newer objects alone: a running upload may be among them.",
)
@json_option
def gc(*, directory: Path, url: str | None, deletes: bool, hours: int, as_json: bool) -> int:
    """List objects that nothing names, such as those of uploads that a crash has cut off.

    Nothing is deleted without --delete. DIRECTORY is that of the bucket's owner.

    Exit code 8 says that it is another one's, 6 that the bucket's journal lacks entries.
    """
    if url is None:
        raise click.UsageError("--url is needed: the broker's remote.storage.url")
    store = open_bucket(url, cluster_of(directory))
    state = _owned_state(store, directory)
    if deletes and hours < _SAFE_HOURS and _is_running(directory):
        raise CommandFailed(
            f"--older-than {hours}: a broker runs on {directory}, and a slow upload of it may be "
            f"among the objects; stop it, or give {_SAFE_HOURS} or more",
            ExitCode.FAILED,
        )
    found = _compare(store, state, directory, _partitions(directory), hours * _MS_PER_HOUR)
    if deletes:
        for one in found.garbage:
            store.delete(one.key)
    size = sum(one.size for one in found.garbage)
    if as_json:
        keys = [one.key for one in found.garbage]
        print_json({"garbage": keys, "bytes": size, "deleted": deletes})
        return ExitCode.OK
    for one in found.garbage:
        click.echo(f"{one.key}  {format_size(one.size)}")
    done = "deleted" if deletes else "to delete with --delete"
    click.echo(f"{format_count(len(found.garbage), 'object')}, {format_size(size)} {done}")
    return ExitCode.OK


def _partitions(directory: Path) -> list[TieredPartition]:
    try:
        return read_partitions(str(directory), RealFiles())
    except OSError as error:
        raise CommandFailed(str(error), ExitCode.FAILED) from error


def _is_running(directory: Path) -> bool:
    try:
        RealFiles().lock(f"{directory}/{LOCK_FILE}").release()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _owned_state(store: ObjectStore, directory: Path) -> BucketState:
    """The bucket's map; refuses one with a hole, and a directory that is not the owner's."""
    state, hole = _read_bucket(store)
    if hole is not None:
        raise CommandFailed(
            f"the journal of the bucket has a hole: {hole}. What is named there is not known, so "
            "nothing is listed or deleted; see tidelog fsck --remote",
            ExitCode.DAMAGED,
        )
    if state.owner_id not in ("", directory_id_of(directory)):
        raise CommandFailed(
            f"the bucket belongs to data directory {state.owner_id} (epoch {state.epoch}), and "
            f"{directory} is another one, which does not know what is in use there: name the "
            "directory of the owner",
            ExitCode.FENCED,
        )
    return state


def _read_bucket(store: ObjectStore) -> tuple[BucketState, Hole | None]:
    try:
        return read_to_hole(store)
    except StoreFailed as error:
        raise CommandFailed(str(error), ExitCode.UNREACHABLE) from error


def _compare(
    store: ObjectStore,
    state: BucketState,
    directory: Path,
    partitions: list[TieredPartition],
    older_than_ms: int,
) -> Comparison:
    try:
        return compare(
            partitions,
            store.list_objects(),
            unfinished=store.list_unfinished(),
            named_there=objects_in(state),
            journal=read_journal(str(directory), RealFiles()),
            now_ms=time.time_ns() // 1_000_000,
            older_than_ms=older_than_ms,
        )
    except StoreFailed as error:
        raise CommandFailed(str(error), ExitCode.UNREACHABLE) from error


def _document(partitions: list[TieredPartition], found: Comparison | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "partitions": [
            {
                "name": part.name,
                "objects": len(part.objects),
                "bytes": sum(one.object_bytes for one in part.objects),
                "remote_only": part.remote_only,
                "waiting_bytes": part.waiting_bytes,
                "waiting_ms": _waiting_ms(part),
            }
            for part in tiered(partitions)
        ]
    }
    if found is not None:
        document["stored"] = found.stored
        document["stored_bytes"] = found.stored_bytes
        document["missing"] = [one.key for one in found.missing]
        document["garbage"] = len(found.garbage)
    return document


def _show(partitions: list[TieredPartition], found: Comparison | None) -> None:
    rows = [
        (
            part.name,
            len(part.objects),
            part.remote_only,
            format_size(sum(one.object_bytes for one in part.objects)),
            format_size(part.waiting_bytes),
            format_duration(_waiting_ms(part)) if part.waiting_bytes else "-",
        )
        for part in tiered(partitions)
    ]
    if rows:
        print_table("PARTITION,>OBJECTS,>ONLY THERE,>SIZE,>WAITS,>SINCE", rows)
    else:
        click.echo("nothing is in an object store, or waits for it")
    if found is None:
        return
    for one in found.missing:
        click.echo(f"missing: {one.key}, offsets {one.base_offset} to {one.next_offset - 1}")
    click.echo(
        f"the store has {format_count(found.stored, 'object')}, {format_size(found.stored_bytes)}; "
        f"{len(found.missing)} missing, {len(found.garbage)} older than a day that nothing names"
    )


def _cost(partitions: list[TieredPartition], found: Comparison | None, price: float) -> float:
    """Of all that the store has if it was looked at, else of what the manifests name."""
    named = sum(one.object_bytes for part in partitions for one in part.objects)
    size = named if found is None else found.stored_bytes
    return size / _BYTES_PER_GB * price


def _waiting_ms(part: TieredPartition) -> int:
    if not part.waiting_bytes:
        return 0
    return max(0, time.time_ns() // 1_000_000 - part.waiting_since_ms)
