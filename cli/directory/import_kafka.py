"""``tidelog import``: take over a directory that Apache Kafka wrote.

The plan is `storage.kafka.kafka_import`. This command copies the directory or, with ``--in-place``,
adopts it, and writes the journal that makes it Tidelog's. Then it opens the directory once, which
verifies its indexes and recovers it if Kafka's last stop was not clean. It reports what was not
imported.
"""

import os
from pathlib import Path

import click

from cli.directory.directory_copy import (
    check_new,
    copy_partitions,
    refuse_running_kafka,
    report,
)
from cli.directory.kraft_security import Documents, security_from_kafka
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import DirectoryType, json_option, now_ms
from cli.output import Progress, note
from config import load
from storage.directory.claim import stray_directory_name
from storage.directory.data_dir import DataDir
from storage.directory.metadata import KIND_BROKER_OVERRIDES, KIND_PRODUCER_IDS, ONLY_KEY
from storage.directory.metadata_journal import MetadataJournal
from storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    format_meta_properties,
    write_clean_shutdown,
)
from storage.disk.files import RealFiles
from storage.kafka.kafka_import import ImportPlan, is_imported, plan_import
from storage.kafka.kraft_metadata import METADATA_DIRECTORY

_UNIQUE_BYTES = 16


@click.command()
@click.argument("source", type=DirectoryType())
@click.argument("target", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--in-place", is_flag=True, help="Adopt SOURCE itself; nothing is copied.")
@click.option(
    "--metadata-dir",
    type=DirectoryType(),
    help="Where __cluster_metadata-0 is, if not in SOURCE (Kafka's metadata.log.dir).",
)
@json_option
def command(
    *,
    source: Path,
    target: Path | None,
    in_place: bool,
    metadata_dir: Path | None,
    as_json: bool,
) -> int:
    """Make TARGET a data directory of Tidelog from SOURCE, one of Apache Kafka's log.dirs.

    No Kafka may have SOURCE open; it is only read. Topics, ids and settings come from Kafka's
    metadata log, with ZooKeeper from the directories' names.
    """
    if in_place == (target is not None):
        raise click.UsageError("name a TARGET, or give --in-place")
    if not (source / META_PROPERTIES_FILE).exists():
        raise CommandFailed(
            f"{source} is not one of Apache Kafka's log.dirs: it has no {META_PROPERTIES_FILE}; "
            "name the directory that holds the partitions",
            ExitCode.USAGE,
        )
    refuse_running_kafka(source)
    if target is not None:
        check_new(target)
    files = RealFiles()
    plan = plan_import(
        str(source),
        files,
        broker_config=load(command_line={"log.dirs": str(target or source)}),
        random_bytes=os.urandom,
        metadata_path=str(metadata_dir) if metadata_dir else None,
    )
    notes: list[str] = []
    security = security_from_kafka(plan.security, notes)
    if target is None:
        size_bytes = 0
        _adopt(source, plan, security, files)
    else:
        size_bytes = _copy(source, target, plan, security, files, is_quiet=as_json)
    notes += _open_once(target or source, files, is_quiet=as_json)
    counts = {"topics": len(plan.topics), "partitions": len(plan.directories)}
    all_notes = (*plan.notes, *notes)
    report(target or source, plan.meta, counts, size_bytes, all_notes, as_json=as_json)
    if not as_json:
        note(f"start it with: tidelog serve --data-dir {target or source}")
    return ExitCode.OK


def _copy(
    source: Path,
    target: Path,
    plan: ImportPlan,
    security: Documents,
    files: RealFiles,
    *,
    is_quiet: bool,
) -> int:
    size_bytes = copy_partitions(source, target, plan.directories, is_imported, is_quiet=is_quiet)
    _write_journal(target, plan, security, files)
    if (source / CLEAN_SHUTDOWN_FILE).exists():
        write_clean_shutdown(str(target), files)
    files.replace_atomically(f"{target}/{META_PROPERTIES_FILE}", format_meta_properties(plan.meta))
    return size_bytes


def _adopt(source: Path, plan: ImportPlan, security: Documents, files: RealFiles) -> None:
    """In place. It is Kafka's until the journal is there, and Tidelog's from then on."""
    files.replace_atomically(f"{source}/{META_PROPERTIES_FILE}", format_meta_properties(plan.meta))
    _write_journal(source, plan, security, files)
    metadata = f"{source}/{METADATA_DIRECTORY}"
    if files.exists(metadata):
        # Its content is out of date from here on. Kafka, too, knows such names and leaves them.
        unique = os.urandom(_UNIQUE_BYTES).hex()
        files.rename(metadata, f"{source}/{stray_directory_name(METADATA_DIRECTORY, unique)}")
        files.sync_directory(str(source))


def _write_journal(
    directory: Path, plan: ImportPlan, security: Documents, files: RealFiles
) -> None:
    MetadataJournal(
        str(directory),
        files,
        adopted=plan.topics,
        adopted_documents=(
            (KIND_BROKER_OVERRIDES, ONLY_KEY, dict(plan.broker_overrides)),
            (KIND_PRODUCER_IDS, ONLY_KEY, plan.next_producer_id),
            *((kind, *pair) for kind, read in security.items() for pair in read.items()),
        ),
    ).close()


def _open_once(directory: Path, files: RealFiles, *, is_quiet: bool) -> list[str]:
    """Open and close the result; returns the notes of that start."""
    config = load(command_line={"log.dirs": str(directory)})
    with Progress("opening partitions", None, is_quiet=is_quiet) as progress:
        data_dir = DataDir.open(
            str(directory),
            files=files,
            broker_config=config,
            now_ms=now_ms(),
            progress=lambda done, total: progress.reach(done, total),
        )
        data_dir.close(now_ms())
    return data_dir.notices
