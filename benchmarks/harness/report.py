"""Turns the JSON of a run into Markdown; `pictures` draws it.

A result is compared within its run only: the table gives ratios of medians, above 1 where Tidelog
is better, whichever way the figure points. docs/benchmarks.md holds generated sections between
markers, each renewed by the benchmark that owns it; the prose around them is written by hand.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import machine
from values.words import format_count

Document = dict[str, Any]
"""A run as JSON; every benchmark's document has "kind", "when" and "machine"."""

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
PICTURE = DOCS / "benchmarks.svg"

RESOLUTION_MS = 1
"""The tools print latencies in whole milliseconds: what is below has no ratio."""

RAW = "raw requests"
"""How the title of a load begins that no client sends: the sender costs nearly nothing there."""

_FAILED_ONCE = "\N{DAGGER}"
_PAIRS = (
    ("In the page cache", "kafka", "tidelog", "limit"),
    ("On disk before the acknowledgement", "kafka-synced", "tidelog-synced", "limit-synced"),
)
_BEFORE = (
    ("Beside the earlier checkout, in the page cache", "before", "tidelog"),
    ("Beside the earlier checkout, on disk", "before-synced", "tidelog-synced"),
)


def comparison(document: Document) -> str:
    """The tables of `benchmarks.compare`."""
    parts = [
        f"Measured {document['when']}, medians of {rounds(document)}. "
        "Ratios above 1 say that Tidelog is better; CPU is the broker's, in seconds per load.",
        machine.markdown(document["machine"]),
    ]
    for title, kafka, tidelog, limit in _PAIRS:
        parts += _pair_table(document, title, kafka, tidelog)
        parts += _limit_table(document, tidelog, limit)
    for title, before, tidelog in _BEFORE:
        if before in document["memory"]:
            parts += _pair_table(document, title, before, tidelog)
    parts += _peer_table(document)
    parts += _memory_table(document)
    if any(f" {_FAILED_ONCE}" in part for part in parts):
        parts.append(f"{_FAILED_ONCE} failed in a later round: the median of those before it.")
    return "\n\n".join(parts)


def replace_section(name: str, text: str, page_path: Path = PAGE) -> None:
    """Puts `text` between the markers of a section of a page."""
    page = page_path.read_text()
    opening, closing = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, _, rest = page.partition(opening)
    _, found, after = rest.partition(closing)
    if not found:
        raise ValueError(f"{page_path} has no section {name}: add {opening} and {closing}")
    page_path.write_text(f"{before}{opening}\n{text}\n{closing}{after}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def ratios(document: Document, base: str, other: str) -> Iterator[tuple[str, float]]:
    """(title, ratio) of every cell that both brokers got through, with figures that have one.

    A latency below `RESOLUTION_MS` has none, nor has a rate of 0.
    """
    for cell in document["cells"]:
        old, new = (_median(cell, name) for name in (base, other))
        if old is None or new is None:
            continue
        if cell["higher_is_better"]:
            if min(old, new) > 0:
                yield cell["title"], new / old
        elif min(old, new) >= RESOLUTION_MS:
            yield cell["title"], old / new


def cpu_ratios(document: Document, base: str, other: str) -> Iterator[tuple[str, float]]:
    """(title, how many times the CPU of `other` the `base` takes) of cells with both."""
    for cell in document["cells"]:
        theirs, ours = (cell["results"].get(name, {}).get("cpu_seconds") for name in (base, other))
        if theirs and ours and statistics.median(ours) > 0:
            yield cell["title"], statistics.median(theirs) / statistics.median(ours)


def values(cell: Document, name: str) -> list[float]:
    """What a broker did in a cell, round by round."""
    return list(cell["results"].get(name, {"values": []})["values"])


def rounds(document: Document) -> str:
    """How many rounds the medians are of; a range where cells differ, as in a run cut short."""
    counted = {
        len(found["values"]) for cell in document["cells"] for found in cell["results"].values()
    } - {0}
    if not counted:
        return "0 rounds"
    few, many = min(counted), max(counted)
    return format_count(many, "round") if few == many else f"{few} to {many} rounds"


def mean_of_rates(
    document: Document, found: Mapping[str, float], *, with_raw: bool = True
) -> float | None:
    """The geometric mean of the ratios of rates; latencies, a few milliseconds, stay out."""
    rates = {
        cell["title"]
        for cell in document["cells"]
        if cell["higher_is_better"] and (with_raw or not cell["title"].startswith(RAW))
    }
    some = [ratio for title, ratio in found.items() if title in rates]
    return geometric_mean(some) if some else None


def cpu_sum(document: Document, name: str) -> float | None:
    """CPU seconds of a broker: the sum of its cells' medians, None when it has none.

    Of a pair only cells that both got through count, so that the sums compare.
    """
    if name not in document["memory"]:
        return None
    others = [pair for pair in (*_PAIRS, *_BEFORE) if name in pair[1:3]]
    needed = {name, *(other for pair in others for other in pair[1:3])} & set(document["memory"])
    medians = [
        statistics.median(cell["results"][name]["cpu_seconds"])
        for cell in document["cells"]
        if all(cell["results"].get(each, {}).get("cpu_seconds") for each in needed)
    ]
    return sum(medians) if medians else None


def geometric_mean(values: Sequence[float]) -> float:
    """The mean that suits ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def _median(cell: Document, name: str) -> Any:
    found = values(cell, name)
    return statistics.median(found) if found else None


def _cpu(cell: Document, name: str) -> str:
    found = cell["results"].get(name, {"cpu_seconds": []})["cpu_seconds"]
    return f"{statistics.median(found):.2f}" if found else "-"


def _shown(cell: Document, name: str) -> str:
    result = cell["results"].get(name)
    if result is None or not result["values"]:
        return "failed" if result and result["problem"] else "-"
    mark = f" {_FAILED_ONCE}" if result["problem"] else ""
    return f"{number(statistics.median(result['values']))} {cell['unit']}{mark}"


def _pair_table(document: Document, title: str, kafka: str, tidelog: str) -> list[str]:
    if not {kafka, tidelog} & set(document["memory"]):
        return []
    found = dict(ratios(document, kafka, tidelog))
    rows = []
    for cell in document["cells"]:
        ratio = found.get(cell["title"])
        rows.append(
            [
                cell["title"],
                _shown(cell, kafka),
                _shown(cell, tidelog),
                f"**{ratio:.2f}**" if ratio else "-",
                _cpu(cell, kafka),
                _cpu(cell, tidelog),
            ]
        )
    means = {
        start: mean_of_rates(
            document, {name: ratio for name, ratio in found.items() if name.startswith(start)}
        )
        for start in ("produce", "consume")
    }
    means["all rates"] = mean_of_rates(document, found)
    means["rates of clients"] = mean_of_rates(document, found, with_raw=False)
    for label, mean in means.items():
        if mean is not None:
            rows.append([f"geometric mean, {label}", "", "", f"**{mean:.2f}**", "", ""])
    head = ["load", document["titles"].get(kafka, "-"), document["titles"].get(tidelog, "-")]
    return [f"#### {title}", table([*head, "ratio", f"CPU {kafka}", f"CPU {tidelog}"], rows)]


def _limit_table(document: Document, tidelog: str, limit: str) -> list[str]:
    found = dict(ratios(document, limit, tidelog))
    if not found:
        return []
    by_cpu = dict(cpu_ratios(document, limit, tidelog))
    rows = []
    for cell in document["cells"]:
        if (title := cell["title"]) in found:
            cpu = f"{by_cpu[title]:.2f}" if title in by_cpu else "-"
            shown = [_shown(cell, limit), _shown(cell, tidelog), f"**{found[title]:.2f}**", cpu]
            rows.append([title, *shown])
    head = ["the same bytes from the same sender", document["titles"][limit], "Tidelog"]
    return [table([*head, "ratio", "ratio by CPU"], rows)]


def _peer_table(document: Document) -> list[str]:
    paired = {name for pair in (*_PAIRS, *_BEFORE) for name in pair[1:]}
    peers = [name for name in document["memory"] if name not in paired]
    if not peers:
        return []
    rows = [[cell["title"], *(_shown(cell, name) for name in peers)] for cell in document["cells"]]
    head = ["load", *(document["titles"][name] for name in peers)]
    return ["#### Other brokers that PyPI has", table(head, rows)]


def _memory_table(document: Document) -> list[str]:
    rows = [
        [
            document["titles"][name],
            f"{found['idle_mb']:.0f} MB",
            _with_unit(found.get("peak_mb"), ".0f", "MB"),
            _with_unit(cpu_sum(document, name), ".1f", "s"),
            _with_unit(found.get("cpu_seconds"), ".1f", "s"),
        ]
        for name, found in document["memory"].items()
    ]
    head = ["broker", "resident when started", "highest", "CPU, sum of medians", "CPU, whole run"]
    return ["#### Memory and CPU", table(head, rows)]


def _with_unit(value: float | None, digits: str, unit: str) -> str:
    return "-" if value is None else f"{value:{digits}} {unit}"
