"""All that docs/benchmarks.md claims, in one run: `make bench`, or `python -m benchmarks.whole`.

Runs the start, the workers and the comparison one after the other, within `--minutes`: the
comparison gets what is left, and its last rounds are cut if the time is short; the page says how
many rounds each median is of. Every figure goes to benchmarks/results/whole-*.json as soon as it is
there, and from there to the page: the targets, reached and missed, the tables, and two pictures.

`python -m benchmarks.whole [--minutes N] [--rounds N] [--smoke] [--no-write]`, or with
`--from FILE.json` the page again from the figures of a run.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import compare, pictures, start, targets, workers
from benchmarks.harness import brokers, machine, report

MINUTES = 45.0
SMOKE_MINUTES = 10.0
LEAST_MINUTES = 10.0
GRACE_MINUTES = 15.0
"""After so long beyond its time a run says where it stands and ends: something does not answer."""
ROUNDS = 5
STARTED = ("kafka", "tidelog-synced")
README_PICTURE = report.DOCS / "images" / "benchmarks.svg"

console = Console(highlight=False, stderr=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures everything and writes the page; 0 when nothing has failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole", description=__doc__)
    parser.add_argument(
        "--minutes", type=_minutes, help="begin no load after that, at least 10; default 45"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--smoke", action="store_true", help="that it runs, not how fast")
    parser.add_argument("--disk", type=Path, help="a folder on the disk to use; default: TMPDIR")
    parser.add_argument("--no-write", action="store_true", help="leave the page as it is")
    parser.add_argument("--from", dest="source", type=Path, help="the JSON of an earlier run")
    options = parser.parse_args(arguments)
    if options.source is not None:
        documents = json.loads(options.source.read_text())
    else:
        documents = _measure(options)
    problem = _not_to_publish(documents)
    if problem:
        console.print(f"[red]failed:[/] {problem}; docs/benchmarks.md stays as it is")
        return 1
    if options.no_write:
        print(page_sections(documents)["targets"])
    else:
        write_documents(documents)
    failed = compare.failures(documents["compare"])
    for line in failed:
        console.print(f"[red]failed:[/] {line}")
    return 1 if failed or not {"start", "workers"} <= documents.keys() else 0


def _minutes(text: str) -> float:
    minutes = float(text)
    if not minutes >= LEAST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"{text} is too short for one round of all loads: give {LEAST_MINUTES:g} or more"
        )
    return minutes


def _not_to_publish(documents: Mapping[str, report.Document]) -> str:
    """Why a run must not replace the figures of the page; empty where it may."""
    if "compare" not in documents:
        return "the run ended before its comparison with Apache Kafka"
    if report.rounds(documents["compare"]) == "0 rounds":
        return "the run ended before its first round that counts"
    return ""


def _measure(options: argparse.Namespace) -> dict[str, report.Document]:
    """All documents of a run, each kept on disk as soon as it is there."""
    brokers.end_with_us()
    if not options.smoke:
        machine.touch_memory()
    minutes = options.minutes or (SMOKE_MINUTES if options.smoke else MINUTES)
    faulthandler.dump_traceback_later(60 * (minutes + GRACE_MINUTES), exit=True)
    deadline = time.monotonic() + 60 * minutes
    compare.RESULTS.mkdir(exist_ok=True)
    result = compare.RESULTS / time.strftime("whole-%Y%m%d-%H%M%S.json")
    documents: dict[str, report.Document] = {}

    def keep(kind: str, document: report.Document) -> None:
        document["load"] = [round(value, 2) for value in os.getloadavg()]
        documents[kind] = document
        result.write_text(json.dumps(documents, indent=1))

    rounds = 1 if options.smoke else options.rounds
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.disk) as name:
        folder = Path(name)
        console.print(f"load before the run: {os.getloadavg()}, results: {result}")
        for kind in ("start", "workers", "compare"):
            (folder / kind).mkdir()
        contenders = [brokers.BY_NAME[broker] for broker in STARTED]
        with _left_out("start"):
            keep("start", start.measure(folder / "start", contenders, rounds))
        counts = (1, 2) if options.smoke else workers.WORKERS
        seconds = 0.2 if options.smoke else workers.SECONDS
        with _left_out("workers"):
            keep("workers", workers.measure(folder / "workers", counts, rounds, seconds))
        plan = compare.Plan.standard(rounds, deadline, smoke=options.smoke)
        found = compare.measure(plan, folder / "compare", lambda so_far: keep("compare", so_far))
        keep("compare", found)
    faulthandler.cancel_dump_traceback_later()
    return documents


@contextlib.contextmanager
def _left_out(part: str) -> Iterator[None]:
    """A part that fails does not take the others with it; the page says that it is missing."""
    try:
        yield
    except (brokers.PeerUnavailable, RuntimeError, *compare.FAILURES) as problem:
        console.print(f"[red]failed:[/] {part}: {type(problem).__name__}: {problem}")


def page_sections(documents: Mapping[str, report.Document]) -> dict[str, str]:
    """The generated sections of docs/benchmarks.md."""
    compared = documents["compare"]
    facts = machine.markdown(compared["machine"])
    load = ", ".join(
        f"{documents[kind]['load'][0]:g} after {what}"
        for kind, what in (("start", "the starts"), ("workers", "the workers"), ("compare", "all"))
        if kind in documents
    )
    sections = {
        "targets": f"Measured {compared['when']}, medians of {report.rounds(compared)}.\n\n"
        f"{facts}\n* load of the machine, its own work included: {load}\n\n"
        f"{targets.table(documents)}",
        "compare": f"{report.comparison(compared)}\n\n"
        f"![Tidelog beside Apache Kafka, a ratio for each load]({report.PICTURE.name})",
    }
    if "start" in documents:
        sections["start"] = start.tables(documents["start"])
    if "workers" in documents:
        sections["workers"] = workers.tables(documents["workers"])
    return sections


def write_documents(documents: Mapping[str, report.Document]) -> None:
    """Renews the page's sections and the pictures."""
    for name, text in page_sections(documents).items():
        report.replace_section(name, text)
    report.PICTURE.write_text(pictures.cells(documents["compare"]))
    README_PICTURE.write_text(pictures.summary(documents))


if __name__ == "__main__":
    sys.exit(main())
