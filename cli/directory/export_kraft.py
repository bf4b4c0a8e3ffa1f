"""``tidelog export-kraft``: make a data directory that Apache Kafka starts on, in KRaft mode.

The plan and the metadata snapshot are `storage.kafka.kafka_export` and
`storage.kafka.kraft_metadata`; this command opens the directory once (which recovers it after a
crash), then copies it or, with ``--in-place``, converts it. It reports what was not exported and
how to start Kafka. docs/adr/0012 has the reasons.
"""

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import click

from cli.directory.directory_copy import (
    check_new,
    copy_partitions,
    report,
)
from cli.directory.kraft_security import security_for_kafka
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import DirectoryType, json_option, now_ms
from cli.output import note
from config import load
from storage.directory.claim import LOCK_FILE
from storage.directory.clock_file import CLOCK_FILE
from storage.directory.data_dir import DataDir
from storage.directory.metadata import FIRST_WORKER
from storage.directory.metadata_journal import JOURNAL_FILE, read_topics
from storage.disk.checkpoints import (
    META_PROPERTIES_FILE,
    format_meta_properties,
    parse_meta_properties,
    random_uuid,
    write_clean_shutdown,
)
from storage.disk.file_names import AUXILIARY_SUFFIXES, MANIFEST_NAME
from storage.disk.files import RealFiles
from storage.kafka.kafka_export import ExportPlan, is_exported, plan_export
from storage.kafka.kraft_metadata import METADATA_DIRECTORY, write_cluster_metadata

EXPORTED_JOURNAL = "metadata.journal.exported"
"""The journal's name in a directory that was converted in place."""

_START_KAFKA = """\
Start Apache Kafka 3.9 or 4.x with these settings:
  process.roles=broker,controller
  node.id={node_id}
  controller.quorum.voters={node_id}@127.0.0.1:9093
  controller.listener.names=CONTROLLER
  listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
  log.dirs={directory}
  offsets.topic.replication.factor=1
  transaction.state.log.replication.factor=1
  transaction.state.log.min.isr=1
  share.coordinator.state.topic.replication.factor=1
  share.coordinator.state.topic.min.isr=1
Do not format the directory. Once it runs, switch newer features of Kafka 4 on:
  kafka-features.sh --bootstrap-server 127.0.0.1:9092 upgrade --release-version 4.3"""


@click.command()
@click.argument("directory", type=DirectoryType())
@click.argument("target", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--in-place", is_flag=True, help="Convert DIRECTORY itself; nothing is copied.")
@json_option
def command(*, directory: Path, target: Path | None, in_place: bool, as_json: bool) -> int:
    """Make TARGET a data directory of Apache Kafka (KRaft, 3.9 or 4.x) from DIRECTORY.

    No broker may have DIRECTORY open. It is recovered if its last stop was not clean, and otherwise
    left as it is.
    """
    if in_place == (target is not None):
        raise click.UsageError("name a TARGET, or give --in-place")
    if not (directory / META_PROPERTIES_FILE).exists():
        raise CommandFailed(
            f"{directory} is not a data directory: it has no {META_PROPERTIES_FILE}", ExitCode.USAGE
        )
    if (directory / CLOCK_FILE).exists():
        raise CommandFailed(
            f"{directory} was written with a settable clock, for tests: Kafka would delete its "
            "records by the real time; produce them to a broker without --clock settable"
        )
    if target is not None:
        check_new(target)
    files = RealFiles()
    _check_workers(directory)
    plan = _plan(directory, files)
    lock = files.lock(f"{directory}/{LOCK_FILE}")
    try:
        if target is None:
            size_bytes = 0
            _convert(directory, plan, files)
        else:
            size_bytes = _copy(directory, target, plan, files, is_quiet=as_json)
    finally:
        lock.release()
    place = target or directory
    counts = {"partitions": len(plan.directories)}
    report(place, plan.meta, counts, size_bytes, plan.notes, as_json=as_json)
    if not as_json:
        click.echo(_START_KAFKA.format(node_id=plan.node_id, directory=place.absolute()))
    return ExitCode.OK


def _check_workers(directory: Path) -> None:
    """Refuse a directory with partitions of several workers: Kafka knows one directory only."""
    journal = directory / JOURNAL_FILE
    topics = read_topics(journal.read_bytes()).values() if journal.exists() else ()
    apart = sum(topic.partitions - len(topic.of_worker(FIRST_WORKER)) for topic in topics)
    if apart:
        raise CommandFailed(
            f"{directory}: {apart} partitions are in directories of other workers; start the "
            "broker once with workers=1, which brings them together, stop it and export again"
        )


def _plan(directory: Path, files: RealFiles) -> ExportPlan:
    """Open and close the data directory: its content is then verified and on the medium."""
    meta = parse_meta_properties((directory / META_PROPERTIES_FILE).read_bytes())
    config = load(command_line={"log.dirs": str(directory)})
    data_dir = DataDir.open(str(directory), files=files, broker_config=config, now_ms=now_ms())
    try:
        for notice in data_dir.notices:
            note(f"tidelog: note: {notice}")
        notes: list[str] = []
        security = security_for_kafka(data_dir.documents, notes)
        plan = plan_export(
            data_dir,
            directory_id=meta.directory_id or random_uuid(os.urandom),
            security=security,
        )
        return replace(plan, notes=[*plan.notes, *notes])
    finally:
        data_dir.close(now_ms())


def _copy(
    directory: Path, target: Path, plan: ExportPlan, files: RealFiles, *, is_quiet: bool
) -> int:
    size_bytes = copy_partitions(
        directory, target, plan.directories, is_exported, is_quiet=is_quiet
    )
    _set_ages(target, plan)
    write_cluster_metadata(f"{target}/{METADATA_DIRECTORY}", plan.records, files, now_ms=now_ms())
    write_clean_shutdown(str(target), files)
    files.replace_atomically(f"{target}/{META_PROPERTIES_FILE}", format_meta_properties(plan.meta))
    return size_bytes


def _convert(directory: Path, plan: ExportPlan, files: RealFiles) -> None:
    """In place. It is Tidelog's until the journal gets its other name, and Kafka's from then on."""
    metadata = f"{directory}/{METADATA_DIRECTORY}"
    if files.exists(metadata):
        # Of an export that did not get to its end; a metadata log that is in force has no journal.
        files.remove_tree(metadata)
    write_cluster_metadata(metadata, plan.records, files, now_ms=now_ms())
    _set_ages(directory, plan)
    for name in plan.directories:
        # Its facts are true now; Kafka will not keep them true.
        with contextlib.suppress(FileNotFoundError):
            (directory / name / MANIFEST_NAME).unlink()
        # Kafka would not remove these with their segment.
        for suffix in AUXILIARY_SUFFIXES:
            for index in (directory / name).glob(f"*{suffix}"):
                index.unlink()
    files.replace_atomically(
        f"{directory}/{META_PROPERTIES_FILE}", format_meta_properties(plan.meta)
    )
    files.rename(f"{directory}/{JOURNAL_FILE}", f"{directory}/{EXPORTED_JOURNAL}")
    files.sync_directory(str(directory))


def _set_ages(directory: Path, plan: ExportPlan) -> None:
    for (name, file), modified_ms in plan.modified_ms.items():
        modified_ns = modified_ms * 1_000_000
        os.utime(directory / name / file, ns=(modified_ns, modified_ns))
