"""``tidelog fsck``: whether the files of a data directory are correct and consistent.

The rules and the reading are `storage.audit.fsck`; this command shows findings and progress. It
only reads, unless ``--accept-loss`` names the data to give up (`storage.audit.accept_loss`). On a
directory that a broker has open it reports writes in progress as findings.
"""

from dataclasses import asdict
from pathlib import Path

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import DirectoryType, json_option
from cli.output import Progress, format_size, print_json
from cli.stores import cluster_of, open_bucket
from storage.audit.accept_loss import accept_loss
from storage.audit.fsck import AuditReport, audit_directory
from storage.audit.remote import read_partitions
from storage.bucket.audit import BucketReport, audit_bucket
from storage.bucket.emptied import read_to_hole
from storage.disk.checkpoints import META_PROPERTIES_FILE
from storage.disk.file_names import parse_partition_directory_name, parse_segment_file_name
from storage.disk.files import RealFiles
from storage.errors import DataDirLocked, StoreFailed
from values.words import format_count


@click.command()
@click.argument("directory", type=DirectoryType())
@click.option(
    "--accept-loss",
    "quarantined",
    metavar="TOPIC-PARTITION",
    help="Take this partition out of quarantine: give up what is damaged, keep all the rest.",
)
@click.option("--quick", is_flag=True, help="Do not decode every record.")
@click.option(
    "--remote",
    "url",
    metavar="URL",
    help="Also compare the bucket of the broker's remote.storage.url with its journal.",
)
@json_option
def command(
    *, directory: Path, quarantined: str | None, quick: bool, url: str | None, as_json: bool
) -> int:
    """Audit a data directory that no broker has open.

    Changes nothing, unless --accept-loss says what to give up.

    Exit code 6 says that there are errors. Warnings are what the next start repairs.
    """
    if not _is_data_directory(directory):
        raise CommandFailed(
            f"{directory} is not a data directory: it holds neither {META_PROPERTIES_FILE} nor "
            "the directory of a partition with a segment in it; name the broker's log.dirs",
            ExitCode.USAGE,
        )
    if quarantined is not None:
        return _accept_loss(directory, quarantined, as_json=as_json)
    with Progress("auditing partitions", None) as progress:
        report = audit_directory(
            str(directory),
            RealFiles(),
            deep=not quick,
            progress=lambda done, total: progress.reach(done, total),
        )
    bucket = None if url is None else _audit_bucket(directory, url, is_deep=not quick)
    if as_json:
        document = _document(report)
        print_json(document if bucket is None else {**document, "bucket": asdict(bucket)})
    else:
        _print(report)
        if bucket is not None:
            _print_bucket(bucket)
    has_problems = bucket is not None and bool(bucket.problems)
    return ExitCode.DAMAGED if report.errors or has_problems else ExitCode.OK


def _audit_bucket(directory: Path, url: str, *, is_deep: bool) -> BucketReport:
    store = open_bucket(url, cluster_of(directory))
    try:
        wanted = [
            one for part in read_partitions(str(directory), RealFiles()) for one in part.wanted
        ]
        state, hole = read_to_hole(store)
        return audit_bucket(state, store, hole=hole, named_here=wanted, is_deep=is_deep)
    except StoreFailed as error:
        raise CommandFailed(str(error), ExitCode.UNREACHABLE) from error


def _print_bucket(bucket: BucketReport) -> None:
    for problem in bucket.problems:
        click.echo(f"bucket: {problem}")
    for one in bucket.orphans:
        click.echo(f"bucket: {one.key} is named by nothing ({format_size(one.size)})")
    click.echo(
        f"bucket: {format_count(len(bucket.problems), 'error')}; "
        f"{format_count(bucket.objects, 'object')} of segments, "
        f"{format_count(bucket.pieces, 'piece')} of tails, "
        f"{format_count(len(bucket.orphans), 'orphan')}"
    )


def _is_data_directory(directory: Path) -> bool:
    """Whether a broker wrote there; one that lost its meta.properties still counts."""
    if (directory / META_PROPERTIES_FILE).exists():
        return True
    return any(
        parse_segment_file_name(file.name) is not None
        for partition in directory.iterdir()
        if parse_partition_directory_name(partition.name) is not None and partition.is_dir()
        for file in partition.iterdir()
    )


def _accept_loss(directory: Path, name: str, *, as_json: bool) -> int:
    key = parse_partition_directory_name(name)
    if key is None:
        raise CommandFailed(f"{directory} has no partition {name}", ExitCode.NOT_FOUND)
    try:
        report = accept_loss(str(directory), *key, RealFiles())
    except FileNotFoundError:
        raise CommandFailed(f"{directory} has no partition {name}", ExitCode.NOT_FOUND) from None
    except DataDirLocked as error:
        raise CommandFailed(str(error), ExitCode.FAILED) from error
    if as_json:
        print_json({"partition": name, **asdict(report)})
        return ExitCode.OK
    for lost in report.lost:
        kept = f"; the bytes are kept as {lost.kept_as}" if lost.kept_as else ""
        click.echo(f"{name}: lost offsets {lost.first_offset} to {lost.next_offset - 1}{kept}")
    if report.lost and report.is_tiered:
        click.echo(
            f"{name}: if the bucket has these records, the broker appends nothing now: "
            "tidelog restore gives them back, in a new directory"
        )
    if not report.lost:
        click.echo(f"{name}: nothing is damaged, nothing was changed")
    click.echo(f"{name}: the log ends at {report.log_end_offset}")
    return ExitCode.OK


def _print(report: AuditReport) -> None:
    for finding in report.findings:
        click.echo(str(finding))
    logs = report.logs.values()
    warnings = len(report.findings) - report.errors
    verdict = (
        click.style("damaged", fg="red", bold=True)
        if report.errors
        else click.style("sound", fg="green", bold=True)
    )
    click.echo(
        f"{report.path}: {verdict}, {format_count(report.errors, 'error')}, "
        f"{format_count(warnings, 'warning')}; {format_count(len(logs), 'partition')}, "
        f"{format_count(sum(log.segments for log in logs), 'segment')}, "
        f"{format_count(sum(log.batches for log in logs), 'batch', 'batches')}, "
        f"{format_count(sum(log.records for log in logs), 'record')}, "
        f"{format_size(sum(log.size_bytes for log in logs))}; "
        f"stopped {'cleanly' if report.stopped_cleanly else 'uncleanly or still running'}"
    )


def _document(report: AuditReport) -> dict[str, object]:
    return {
        "path": report.path,
        "stopped_cleanly": report.stopped_cleanly,
        "errors": report.errors,
        "findings": [
            asdict(finding) | {"severity": finding.severity.value} for finding in report.findings
        ],
        "partitions": [
            {
                "topic": topic,
                "partition": number,
                "log_start_offset": log.log_start_offset,
                "log_end_offset": log.log_end_offset,
                "segments": log.segments,
                "batches": log.batches,
                "records": log.records,
                "size_bytes": log.size_bytes,
            }
            for (topic, number), log in sorted(report.logs.items())
        ],
    }
