"""What the figures should be, and whether a run shows it: the first table of docs/benchmarks.md.

Every target has its row, reached or missed, and a missed one names each load that misses it. A
figure that the run did not measure is said to be missing.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks import start, workers
from benchmarks.harness import report

LIMIT_SHARE: Final = 0.8
CPU_SHARE: Final = 0.4
MEANS: Final = {"page cache": 1.3, "synced": 1.8}
WORKERS_GAIN: Final = 1.5
WORKERS_CPU: Final = 1.1
START_SHARE: Final = 0.1

_MODES: Final = {
    "page cache": ("kafka", "tidelog", "limit"),
    "synced": ("kafka-synced", "tidelog-synced", "limit-synced"),
}
_PACED: Final = "p99 of produce"

Row = tuple[str, str, str, bool | None]
"""What, wanted, found, whether that is reached; None if it was not measured."""


def table(documents: Mapping[str, report.Document]) -> str:
    """A line for each target, and how many of them are missed."""
    rows = list(_rows(documents))
    lines = [
        [what, wanted, found, {True: "reached", False: "**missed**", None: "not measured"}[reached]]
        for what, wanted, found, reached in rows
    ]
    missed = sum(reached is False for *_, reached in rows)
    unknown = sum(reached is None for *_, reached in rows)
    head = f"{len(rows)} targets: {len(rows) - missed - unknown} reached, {missed} missed"
    head += f", {unknown} not measured." if unknown else "."
    return f"{head}\n\n{report.table(['figure', 'target', 'result', ''], lines)}"


def _rows(documents: Mapping[str, report.Document]) -> Iterator[Row]:
    compared = documents["compare"]
    for mode, (kafka, own, limit) in _MODES.items():
        yield from _limit_rows(compared, mode, own, limit)
        yield from _kafka_rows(compared, mode, kafka, own)
    yield from _worker_rows(documents.get("workers", {"rates": {}, "costs": {}}))
    yield _start_row(documents.get("start", {"starts": {}}))


def _limit_rows(compared: report.Document, mode: str, own: str, limit: str) -> Iterator[Row]:
    rates = dict(report.ratios(compared, limit, own))
    by_cpu = dict(report.cpu_ratios(compared, limit, own))
    for title in (cell["title"] for cell in compared["cells"]):
        if title.startswith(report.RAW):
            wanted = f"at least {LIMIT_SHARE}"
            rate, cpu = rates.get(title), by_cpu.get(title)
            shown = f"{rate:.2f}" if rate else "-"
            shown += f" (by CPU {cpu:.2f})" if cpu else ""
            what = f"{title} beside the bare loop, {mode}"
            yield what, wanted, shown, None if rate is None else rate >= LIMIT_SHARE


def _kafka_rows(compared: report.Document, mode: str, kafka: str, own: str) -> Iterator[Row]:
    theirs, ours = report.cpu_sum(compared, kafka), report.cpu_sum(compared, own)
    share = ours / theirs if ours and theirs else None
    yield (
        f"CPU of the broker beside Kafka's, all loads, {mode}",
        f"at most {CPU_SHARE}",
        f"{share:.2f}: {ours:.1f} s beside {theirs:.1f} s" if share else "-",
        None if share is None else share <= CPU_SHARE,
    )
    ratios = dict(report.ratios(compared, kafka, own))
    mean = report.mean_of_rates(compared, ratios)
    of_clients = report.mean_of_rates(compared, ratios, with_raw=False)
    yield (
        f"rates beside Kafka's, geometric mean, {mode}",
        f"at least {MEANS[mode]}",
        (f"{mean:.2f}" if mean else "-")
        + (f" ({of_clients:.2f} without raw requests)" if of_clients else ""),
        None if mean is None else mean >= MEANS[mode],
    )
    below = [f"{title} {ratio:.2f}" for title, ratio in ratios.items() if ratio < 1]
    yield (
        f"loads below Kafka, {mode}",
        "none",
        "; ".join(below) or ("none" if ratios else "-"),
        not below if ratios else None,
    )
    for cell in compared["cells"]:
        if cell["title"].startswith(_PACED):
            pairs = list(zip(report.values(cell, kafka), report.values(cell, own), strict=False))
            better = sum(our < their for their, our in pairs)
            yield (
                f"{cell['title']}, {mode}",
                "below Kafka's in each round",
                f"in {better} of {len(pairs)} rounds" if pairs else "-",
                better == len(pairs) if pairs else None,
            )


def _worker_rows(document: report.Document) -> Iterator[Row]:
    gain = workers.gain(document)
    yield (
        "two workers beside one, raw produce",
        f"at least {WORKERS_GAIN}",
        f"{gain:.2f}" if gain else "-",
        None if gain is None else gain >= WORKERS_GAIN,
    )
    for way in workers.WAYS:
        dearest = workers.dearest(document, way, 2)
        yield (
            f"CPU for a request with two workers beside one, {way}, the dearest kind",
            f"at most {WORKERS_CPU}",
            f"{dearest:.2f}" if dearest else "-",
            None if dearest is None else dearest <= WORKERS_CPU,
        )


def _start_row(document: report.Document) -> Row:
    theirs, ours = (
        start.median(document, "new", name, "first_ack_ms") for name in ("kafka", "tidelog-synced")
    )
    share = ours / theirs if ours and theirs else None
    return (
        "start to the first acknowledged record beside Kafka's",
        f"at most {START_SHARE}",
        f"{share:.2f}: {ours:,.0f} ms beside {theirs:,.0f} ms" if share else "-",
        None if share is None else share <= START_SHARE,
    )
