"""The jobs' one parser for `tidelog spark JOB`, `python -m pipeline JOB` and spark-submit.

A session is made only for jobs that need one, with the master given by `--master`; under
`spark-submit` the session that Spark makes is used. Results go to stdout (a sentence and a table,
or one JSON document with `--json`), progress to stderr. The exit code is that of
`jobs.outcome.JobCode`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from client.core.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP
from client.errors import ClientError, InvalidTime
from pipeline.errors import BadOptions, PipelineError
from pipeline.jobs.outcome import JobCode, Outcome, Progress, code_of, silent
from pipeline.options.options import time_of
from pipeline.options.reader import OptionReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")

Arguments = argparse.Namespace
Start = Callable[[], "SparkSession"]
_ROWS_SHOWN: Final = 50
_EXTRA: Final = ("pyspark", "pyarrow", "deltalake", "pyiceberg")
_TIMES: Final = ("--from", "--to", "--at")
_CURE: Final = "pip install 'tidelog[spark]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; the exit code. `arguments` default to the process's own."""
    parser = _parser()
    try:
        parsed = parser.parse_args(_with_times(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as leaving:
        return int(leaving.code or 0)
    progress = silent if parsed.json else _report
    try:
        outcome: Outcome = parsed.run(parsed, lambda: _session(parsed), progress)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        print(
            f"tidelog spark {parsed.job}: {error.name} is not installed: {_CURE}", file=sys.stderr
        )
        return JobCode.FAILED
    except (PipelineError, ClientError) as error:
        print(f"tidelog spark {parsed.job}: {_sentences(error)}", file=sys.stderr)
        return code_of(error)
    except Exception as error:
        code = _code_of_worker(str(error))
        if code is None:
            raise
        print(f"tidelog spark {parsed.job}: {_worker_sentence(str(error))}", file=sys.stderr)
        return code
    _show(outcome, as_json=parsed.json)
    return outcome.code


def _with_times(arguments: Sequence[str]) -> list[str]:
    """`arguments` with `--from -15m` as one word: argparse would parse the time as an option."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] in _TIMES and re.match(r"-\d", word):
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line as the other commands do."""

    def error(self, message: str) -> NoReturn:
        """End with the sentence and with the place of the help, not with all options."""
        self.exit(JobCode.USAGE, f"{self.prog}: {message}\n  (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidelog spark",
        description="Jobs between topics and lakes.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 no broker, 4 not found, 6 data loss or "
        "damage found, 7 nothing to do, 8 fenced by another run. See tidelog docs cli.",
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, (line, describe, run) in _JOBS.items():
        job = jobs.add_parser(name, help=line, description=line)
        _common(job)
        describe(job)
        job.set_defaults(run=run)
    return parser


def _common(job: argparse.ArgumentParser) -> None:
    job.add_argument("--master", default="local[*]", help="Spark's master (default: local[*])")
    job.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting; may be repeated",
    )
    job.add_argument(
        "-b",
        "--bootstrap",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help=f"where the broker is; else ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP}",
    )
    job.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the source, such as kafka.security.protocol=SSL",
    )
    job.add_argument("--dry-run", action="store_true", help="print what would be done")
    job.add_argument("--json", action="store_true", help="one JSON document on stdout")


def _window(job: argparse.ArgumentParser) -> None:
    job.add_argument(
        "--from",
        dest="oldest",
        metavar="TIME",
        help="from this time on: ISO 8601 (UTC), ms, or relative such as -15m",
    )
    job.add_argument("--to", dest="newest", metavar="TIME", help="before this time")


# --- one pair of functions for each job ---------------------------------------------------------


def _describe_archive(job: argparse.ArgumentParser) -> None:
    job.add_argument("--topic", required=True, help="topics with commas")
    job.add_argument("--target", required=True, help="a directory, or NAMESPACE.TABLE for iceberg")
    job.add_argument("--state-dir", required=True, help="this archive's own directory")
    job.add_argument("--format", dest="lake", default="parquet", help="parquet, delta or iceberg")
    job.add_argument("--from", dest="oldest", metavar="TIME", help="where the first run starts")
    job.add_argument("--min-rows", type=int, default=1, help="leave fewer new records for later")
    job.add_argument("--grace", default="1h", help="how far past its end a day is complete")
    job.add_argument("--continuous", action="store_true", help="run until stopped")
    job.add_argument("--interval", default="5m", help="with --continuous: how often")


def _run_archive(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.archive import ArchiveSettings, archive

    options = _source_options(arguments)
    if arguments.oldest:
        options["startingTimestamp"] = arguments.oldest
        options.setdefault("startingOffsetsByTimestampStrategy", "latest")
    grace_ms = duration_ms("--grace", arguments.grace)
    settings = _settings(ArchiveSettings, arguments, options=options, grace_ms=grace_ms)
    session = _session_unless_dry(arguments, start)
    return _repeated(arguments, progress, lambda: archive(session, settings, progress))


def _repeated(arguments: Arguments, progress: Progress, run: Callable[[], Outcome]) -> Outcome:
    """The outcome of `run`; with --continuous again and again."""
    interval_s = duration_ms("--interval", arguments.interval) / 1000
    while True:
        outcome = run()
        if not arguments.continuous:
            return outcome
        progress(outcome.sentence)
        time.sleep(interval_s)


def _describe_compact_files(job: argparse.ArgumentParser) -> None:
    job.add_argument("--target", required=True, help="NAMESPACE.TABLE, as the archive was given it")
    job.add_argument("--state-dir", required=True, help="the archive's state directory")
    job.add_argument("--small", default="64m", help="files below this size are joined")
    job.add_argument("--file-size", default="256m", help="to files of about this size")
    job.add_argument("--keep", default="7d", help="how long replaced files stay for old queries")


def _run_compact_files(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.compact_files import CompactFilesSettings, compact_files

    sizes = OptionReader({"--small": arguments.small, "--file-size": arguments.file_size})
    settings = _settings(
        CompactFilesSettings,
        arguments,
        small_bytes=sizes.size("--small", 0),
        file_bytes=sizes.size("--file-size", 0),
        keep_ms=duration_ms("--keep", arguments.keep),
    )
    sizes.raise_problems()
    return compact_files(_session_unless_dry(arguments, start), settings, progress)


def _describe_restore(job: argparse.ArgumentParser) -> None:
    job.add_argument("--source", required=True, help="the archive's directory")
    job.add_argument("--state-dir", default="", help="the archive's state: read what it committed")
    job.add_argument("--topic", required=True, help="the topic to write to")
    job.add_argument("--from-topic", default="", help="only records of this archived topic")
    job.add_argument("--name", default="", help="a name for this restore: exactly once under it")
    job.add_argument("--by-key", action="store_true", help="partitions by key, not as they were")
    job.add_argument("--rate", type=int, default=0, help="rows a second in each task")
    job.add_argument("--force", action="store_true", help="though the topic would spoil it")
    _window(job)


def _run_restore(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.restore import RestoreSettings, restore

    settings = _settings(
        RestoreSettings,
        arguments,
        options=_base_options(arguments),
        **_window_ms(arguments),
        keep_partitions=not arguments.by_key,
        rows_per_second=arguments.rate,
    )
    return restore(start(), settings, progress)


def _describe_skew(job: argparse.ArgumentParser) -> None:
    job.add_argument("--topic", default="", help="topics with commas")
    job.add_argument(
        "--state-dir",
        default="",
        help="the state of an archive: read its lake, and no broker (topic and lake as one: "
        "--topic with --option archive=DIR)",
    )
    job.add_argument("--source", default="", help="with --state-dir: where the lake is now")
    job.add_argument("--future", default="1h", help="how far ahead of now a time is doubtful")
    job.add_argument("--output", default="", help="write the table here as Parquet")
    _window(job)


def _run_skew(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.skew import LakeSkewSettings, SkewSettings, skew, skew_lake

    problems = _skew_problems(arguments)
    if problems:
        raise BadOptions(*problems)
    future_ms = duration_ms("--future", arguments.future)
    if arguments.state_dir:
        window, topics = _window_ms(arguments), _names(arguments.topic)
        alone = _settings(LakeSkewSettings, arguments, topics=topics, future_ms=future_ms, **window)
        return skew_lake(_session_unless_dry(arguments, start), alone, progress)
    options = _windowed_options(arguments)
    settings = _settings(SkewSettings, arguments, options=options, future_ms=future_ms)
    return skew(_session_unless_dry(arguments, start), settings, progress)


def _skew_problems(arguments: Arguments) -> list[str]:
    """What of a topic and of an archive by itself was mixed."""
    problems = []
    if not arguments.topic and not arguments.state_dir:
        problems.append(
            "give --topic TOPIC for a topic, or --state-dir DIR for an archive by itself"
        )
    if arguments.source and not arguments.state_dir:
        problems.append(
            f"--source {arguments.source!r} needs --state-dir, the archive's state, which lists "
            "its files"
        )
    if arguments.option and arguments.state_dir:
        problems.append(
            f"--option {arguments.option[0]!r} means nothing with --state-dir, which reads no "
            "broker: leave it out, or give --topic with --option archive=DIR for topic and lake "
            "as one"
        )
    return problems


def _describe_audit(job: argparse.ArgumentParser) -> None:
    job.add_argument("--topic", required=True, help="topics with commas")
    job.add_argument("--state-dir", required=True, help="the state of their archive")


def _run_audit(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.audit import AuditSettings, audit

    settings = _settings(AuditSettings, arguments, options=_source_options(arguments))
    return audit(_session_unless_dry(arguments, start), settings, progress)


def _describe_lateness(job: argparse.ArgumentParser) -> None:
    job.add_argument("--topic", required=True, help="topics with commas")
    job.add_argument("--state-dir", required=True, help="this job's own directory")
    job.add_argument("--share", type=float, default=0.999, help="what a watermark must keep")
    job.add_argument("--future", default="1h", help="how far ahead of now a time is doubtful")
    job.add_argument("--continuous", action="store_true", help="run until stopped")
    job.add_argument("--interval", default="1m", help="with --continuous: how often")


def _run_lateness(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.lateness import LatenessSettings, lateness

    options, future_ms = _source_options(arguments), duration_ms("--future", arguments.future)
    settings = _settings(LatenessSettings, arguments, options=options, future_ms=future_ms)
    session = _session_unless_dry(arguments, start)
    return _repeated(arguments, progress, lambda: lateness(session, settings, progress))


def _describe_diff(job: argparse.ArgumentParser) -> None:
    job.add_argument("--topic", required=True, help="topics with commas")
    job.add_argument("--output", default="", help="write the keys that differ here as Parquet")
    _window(job)


def _run_diff(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.diff import DiffSettings, diff

    if not arguments.oldest:
        raise BadOptions("--from is missing: give the earlier of the two times, such as -1d")
    now_ms = time.time_ns() // 1_000_000
    window = _window_ms(arguments)
    later_ms = now_ms if window["newest_ms"] is None else window["newest_ms"]
    settings = _settings(
        DiffSettings,
        arguments,
        options=_source_options(arguments),
        earlier_ms=window["oldest_ms"],
        later_ms=later_ms,
    )
    return diff(_session_unless_dry(arguments, start), settings, progress)


def _describe_retention(job: argparse.ArgumentParser) -> None:
    job.add_argument("--state-dir", required=True, help="the state of an archive")
    job.add_argument("--source", default="", help="where the lake is now")
    job.add_argument("--topic", default="", help="topics with commas; all without it")
    job.add_argument(
        "--try", dest="trials", action="append", required=True, metavar="SETTINGS",
        help="retention.ms, retention.bytes, segment.bytes, segment.ms with commas, such as "
        "retention.ms=7d,segment.bytes=64m; may be repeated",
    )  # fmt: skip
    job.add_argument("--at", metavar="TIME", help="the moment (default: the youngest record's)")


def _run_retention(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.retention import RetentionSettings, parse_trial, retention

    settings = _settings(
        RetentionSettings,
        arguments,
        trials=tuple(map(parse_trial, arguments.trials)),
        topics=_names(arguments.topic),
        at_ms=_time("--at", arguments.at),
    )
    return retention(_session_unless_dry(arguments, start), settings, progress)


def _describe_translate(job: argparse.ArgumentParser) -> None:
    job.add_argument("--group", action="append", required=True, help="may be repeated")
    job.add_argument("--to-bootstrap", required=True, metavar="HOST:PORT", help="the other cluster")
    job.add_argument("--to-option", action="append", default=[], metavar="KEY=VALUE")
    job.add_argument("--overlap", default="1m", help="how late records can be")
    job.add_argument("--commit", action="store_true", help="commit in the other cluster")


def _run_translate(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.jobs.translate import TranslateSettings, translate

    target = {
        "kafka.bootstrap.servers": arguments.to_bootstrap,
        **pairs("--to-option", arguments.to_option),
    }
    settings = TranslateSettings(
        options=_base_options(arguments),
        target_options=target,
        groups=arguments.group,
        overlap_ms=duration_ms("--overlap", arguments.overlap),
        commit=arguments.commit and not arguments.dry_run,
    )
    return translate(settings, progress)


def _describe_bundle(job: argparse.ArgumentParser) -> None:
    job.add_argument("--output", default="tidelog-spark.zip", help="the zip for --py-files")


def _run_bundle(arguments: Arguments, start: Start, progress: Progress) -> Outcome:
    from pipeline.bundle import write_bundle, write_launcher

    if arguments.dry_run:
        return Outcome(sentence=f"would write {arguments.output}")
    count = write_bundle(arguments.output)
    launcher = write_launcher(arguments.output)
    return Outcome(
        sentence=f"wrote {arguments.output} with {count} files, and {launcher} to run jobs by",
        report={"output": arguments.output, "files": count, "launcher": launcher},
    )


_Run = Callable[[Arguments, Start, Progress], Outcome]
_JOBS: Final[Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None], _Run]]] = {
    "archive": (
        "Topics into files by event date, each record once.",
        _describe_archive,
        _run_archive,
    ),
    "compact-files": (
        "The small files of an archive's Iceberg table into few large ones.",
        _describe_compact_files,
        _run_compact_files,
    ),
    "restore": (
        "An archive back into a topic, with its own times.",
        _describe_restore,
        _run_restore,
    ),
    "skew": (
        "Lateness, disorder and doubtful times of topics and archives.",
        _describe_skew,
        _run_skew,
    ),
    "lateness": (
        "The watermark and maxLateness that a growing topic needs.",
        _describe_lateness,
        _run_lateness,
    ),
    "audit": (
        "An archive against its topic: records and bytes by partition and hour.",
        _describe_audit,
        _run_audit,
    ),
    "diff": (
        "The keys of a topic that differ between two times.",
        _describe_diff,
        _run_diff,
    ),
    "retention": (
        "What other retention settings would have kept of an archive.",
        _describe_retention,
        _run_retention,
    ),
    "translate-offsets": (
        "A group's place in another cluster, by time.",
        _describe_translate,
        _run_translate,
    ),
    "bundle": ("A zip of the source for spark-submit --py-files.", _describe_bundle, _run_bundle),
}


# --- shared parts --------------------------------------------------------------------------------


def _settings(kind: Callable[..., _T], arguments: Arguments, **others: Any) -> _T:
    """The settings of a job: the options of the names of its fields, and `others` over them."""
    given = vars(arguments)
    return kind(
        **{name: given[name] for name in signature(kind).parameters if name in given} | others
    )


def duration_ms(name: str, text: str) -> int:
    """A duration such as 90s, 15m, 1h or 7d in ms; raises BadOptions."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if match is None:
        raise BadOptions(f"{name} {text!r}: write a duration such as 90s, 15m, 1h or 7d")
    units = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    return int(match[1]) * units[match[2]]


def pairs(name: str, texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; raises BadOptions."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise BadOptions(f"{name} {text!r}: write KEY=VALUE")
        found[key] = value
    return found


def _base_options(arguments: Arguments) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": arguments.bootstrap,
        **pairs("--option", arguments.option),
    }


def _source_options(arguments: Arguments) -> dict[str, str]:
    return {"subscribe": arguments.topic, **_base_options(arguments)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _windowed_options(arguments: Arguments) -> dict[str, str]:
    """Those of the source, with the strict window of `--from` and `--to`."""
    options = _source_options(arguments)
    for name, text in (("starting", arguments.oldest), ("ending", arguments.newest)):
        if text:
            options[f"{name}Timestamp"] = text
            options.setdefault("timeWindow", "strict")
    return options


def _window_ms(arguments: Arguments) -> dict[str, int | None]:
    """`--from` and `--to` as settings of jobs call them."""
    return {
        "oldest_ms": _time("--from", arguments.oldest),
        "newest_ms": _time("--to", arguments.newest),
    }


def _time(name: str, text: str | None) -> int | None:
    if not text:
        return None
    try:
        return time_of(text, time.time_ns() // 1_000_000)
    except InvalidTime as error:
        raise BadOptions(f"{name}: {error}") from error


def _session(arguments: Arguments) -> SparkSession:
    from pipeline.spark.session import session

    # Spark 4.3 warns of pandas 3 in every session that finds it; no job uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    return session(arguments.master, settings=pairs("--conf", arguments.conf))


def _session_unless_dry(arguments: Arguments, start: Start) -> SparkSession:
    """A session for jobs that use it only after their plan, which ends a dry run."""
    return cast("SparkSession", None) if arguments.dry_run else start()


def _report(sentence: str) -> None:
    print(f"... {sentence}", file=sys.stderr)


def _sentences(error: Exception) -> str:
    problems = getattr(error, "problems", ())
    return "\n  ".join(problems) if len(problems) > 1 else str(error)


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {"code": int(outcome.code), "result": outcome.sentence}
        print(json.dumps({**document, **outcome.report}, default=str))
        return
    print(outcome.sentence)
    if not outcome.rows:
        return
    names = list(outcome.rows[0])
    table = [names, *([str(row.get(name)) for name in names] for row in outcome.rows[:_ROWS_SHOWN])]
    widths = [max(len(line[index]) for line in table) for index in range(len(names))]
    for line in table:
        print(_padded(line, widths))
    if len(outcome.rows) > _ROWS_SHOWN:
        print(f"... and {len(outcome.rows) - _ROWS_SHOWN} more (--json has all)")


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
    return "  ".join(cells).rstrip()


_WORKER_ERROR: Final = re.compile(r"(?:pipeline|client)\.errors\.(\w+): (.*)")


def _code_of_worker(text: str) -> JobCode | None:
    """The code for an error of ours that comes back from a worker as text; None for others."""
    from client import errors as client_errors
    from pipeline import errors

    match = _WORKER_ERROR.search(text)
    modules = (errors, client_errors)
    kind = next((vars(one)[match[1]] for one in modules if match and match[1] in vars(one)), None)
    if match is None or kind is None:
        return None
    return code_of(kind(match[2]) if kind is not client_errors.BrokerRefused else kind(match[2], 0))


def _worker_sentence(text: str) -> str:
    match = _WORKER_ERROR.search(text)
    return match[2] if match else text


if __name__ == "__main__":
    sys.exit(main())
