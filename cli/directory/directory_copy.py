"""Copying partition directories between brokers' data directories, for export and import.

Owns the mechanics: files are copied whole and durably and keep their modification times. On file
systems that share blocks between files (btrfs, XFS) a copy costs no space, because it uses
`copy_file_range`. The plans in `storage` select the files by a predicate; this module does not know
their reasons.

A target begins as a new or empty directory and is not usable until ``meta.properties`` is in it,
which the commands write last. So both brokers refuse the target of an interrupted copy.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click

from cli.failures import CommandFailed
from cli.output import Progress, format_size, print_json
from storage.disk.checkpoints import MetaProperties
from storage.disk.files import RealFiles
from storage.kafka.kafka_export import CHECKPOINT_FILES

_CHUNK_BYTES = 64 << 20


def check_new(target: Path) -> None:
    """Refuse a target that exists, unless as an empty directory; creates no file.

    Raises:
        CommandFailed: it is not empty, or not a directory.
    """
    if target.exists() and not target.is_dir():
        raise CommandFailed(f"{target} is a file; name a new directory")
    if target.exists() and any(target.iterdir()):
        raise CommandFailed(f"{target} is not empty; name a new directory")


def refuse_running_kafka(directory: Path) -> None:
    """Fail if an Apache Kafka has `directory` open.

    Java locks ``.lock`` with POSIX record locks, which the locks of Tidelog's brokers do not meet.

    Raises:
        CommandFailed: the lock is held.
    """
    path = directory / ".lock"
    if not path.exists():
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandFailed(
                f"an Apache Kafka is running on {directory}; stop it first"
            ) from None


def copy_partitions(
    source: Path,
    target: Path,
    directories: Iterable[str],
    is_wanted: Callable[[str], bool],
    *,
    is_quiet: bool = False,
) -> int:
    """Copy the wanted files of these sub-directories, durably; how many bytes they have.

    The checkpoints are copied too. A directory that the source lacks becomes an empty one.

    Raises:
        CommandFailed: as `check_new`.
    """
    check_new(target)
    target.mkdir(parents=True, exist_ok=True)
    names, files = list(directories), RealFiles()
    copied_bytes = 0
    with Progress("copying partitions", len(names), is_quiet=is_quiet) as progress:
        for name in names:
            (target / name).mkdir()
            if (source / name).is_dir():
                for file in sorted((source / name).iterdir()):
                    if is_wanted(file.name):
                        copied_bytes += copy_file(file, target / name / file.name)
            files.sync_directory(str(target / name))
            progress.advance(1, name)
    for name in CHECKPOINT_FILES:
        if (source / name).exists():
            copy_file(source / name, target / name)
    files.sync_directory(str(target))
    return copied_bytes


def report(
    directory: Path,
    meta: MetaProperties,
    counts: Mapping[str, int],
    size_bytes: int,
    notes: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Say what became of `directory`: how many of each thing it has, and what was left out."""
    if as_json:
        document = {"directory": str(directory.absolute()), "node_id": meta.node_id}
        document |= {"cluster_id": meta.cluster_id, **counts}
        print_json(document | {"copied_bytes": size_bytes, "notes": list(notes)})
        return
    things = ", ".join(f"{count} {name}" for name, count in counts.items())
    click.echo(f"{directory}: {things}, {format_size(size_bytes)} copied")
    for sentence in notes:
        click.echo(f"  note: {sentence}")


def copy_file(source: Path, target: Path) -> int:
    """Copy one file and sync it, with its modification time; its size in bytes."""
    with source.open("rb") as reader, target.open("xb") as writer:
        size = os.fstat(reader.fileno()).st_size
        left = size
        while left > 0:
            copied = _copy_some(reader.fileno(), writer.fileno(), min(left, _CHUNK_BYTES))
            if copied == 0:
                break
            left -= copied
        os.fsync(writer.fileno())
    shutil.copystat(source, target)
    return size


def _copy_some(source_fd: int, target_fd: int, count: int) -> int:
    try:
        return os.copy_file_range(source_fd, target_fd, count)
    except OSError:
        # Not between these two file systems, or not in this container: through memory then.
        data = os.read(source_fd, min(count, 1 << 20))
        os.write(target_fd, data)
        return len(data)
