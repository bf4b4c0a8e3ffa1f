"""Turns the JSON of a run into Markdown and one picture.

A result is compared within its run only: the table gives ratios of medians, above 1 where Tidelog
is better, whichever way the figure points. docs/benchmarks.md holds generated sections between
markers, each renewed by the benchmark that owns it; the prose around them is written by hand.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine

Document = dict[str, Any]
"""A run as JSON; every benchmark's document has "kind", "when" and "machine"."""

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PICTURE = DOCS / "benchmarks.svg"

RESOLUTION_MS = 1
"""The tools print latencies in whole milliseconds: what is below has no ratio."""

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


def write_documents(document: Document, section: str = "compare") -> None:
    """Renews a comparison in docs/benchmarks.md, and the picture beside it for the main one."""
    if section != "compare":
        replace_section(section, comparison(document))
        return
    link = f"![Tidelog beside Apache Kafka, a ratio for each load]({PICTURE.name})"
    replace_section(section, f"{comparison(document)}\n\n{link}")
    PICTURE.write_text(picture(document))


def replace_section(name: str, text: str, page_path: Path = PAGE) -> None:
    """Puts `text` between the markers of a section of a page."""
    page = page_path.read_text()
    opening, closing = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    before, _, rest = page.partition(opening)
    _, _, after = rest.partition(closing)
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


def rounds(document: Document) -> str:
    """How many rounds the medians are of; a range where cells differ, as in a run cut short."""
    counted = {
        len(found["values"]) for cell in document["cells"] for found in cell["results"].values()
    } - {0}
    if not counted:
        return "0 rounds"
    few, many = min(counted), max(counted)
    return f"{many} round{'s' * (many > 1)}" if few == many else f"{few} to {many} rounds"


def mean_of_rates(document: Document, found: Mapping[str, float]) -> float | None:
    """The geometric mean of the ratios of rates; latencies, a few milliseconds, stay out."""
    rates = {cell["title"] for cell in document["cells"] if cell["higher_is_better"]}
    some = [ratio for title, ratio in found.items() if title in rates]
    return geometric_mean(some) if some else None


def cpu_sum(document: Document, name: str) -> float | None:
    """CPU seconds of a broker: the sum of its cells' medians, None when it has none.

    Of a pair only cells that both got through count, so that the sums compare.
    """
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
    found = cell["results"].get(name, {"values": []})["values"]
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
    for label, start in (("produce", "produce"), ("consume", "consume"), ("all rates", "")):
        some = {name: value for name, value in found.items() if name.startswith(start)}
        mean = mean_of_rates(document, some)
        if mean is not None:
            rows.append([f"geometric mean, {label}", "", "", f"**{mean:.2f}**", "", ""])
    head = ["load", document["titles"].get(kafka, "-"), document["titles"].get(tidelog, "-")]
    return [f"#### {title}", table([*head, "ratio", f"CPU {kafka}", f"CPU {tidelog}"], rows)]


def _limit_table(document: Document, tidelog: str, limit: str) -> list[str]:
    found = dict(ratios(document, limit, tidelog))
    if not found:
        return []
    rows = []
    for cell in document["cells"]:
        if cell["title"] in found:
            shown = [_shown(cell, limit), _shown(cell, tidelog), f"**{found[cell['title']]:.2f}**"]
            rows.append([cell["title"], *shown])
    head = ["the same bytes from the same sender", document["titles"][limit], "Tidelog", "ratio"]
    return [table(head, rows)]


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


_MODES = (
    ("page cache", "kafka", "tidelog", "#1f6f8b"),
    ("synced", "kafka-synced", "tidelog-synced", "#e09f3e"),
)
_LEFT, _UNIT, _BAR, _TOP, _RATIO_MAX = 300, 110, 9, 64, 5.0


def picture(document: Document) -> str:
    """A bar for each ratio of Tidelog to Kafka, cell by cell in both modes, as SVG."""
    found = {mode: dict(ratios(document, kafka, own)) for mode, kafka, own, _ in _MODES}
    titles = [cell["title"] for cell in document["cells"] if _has_ratio(found, cell["title"])]
    step = 2 * _BAR + 8
    height = _TOP + step * len(titles) + 24
    width = round(_LEFT + _UNIT * _RATIO_MAX + 70)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="14">How many times as good as Apache Kafka on the same '
        "machine</text>",
        *_legend(document, found),
    ]
    for ratio in range(int(_RATIO_MAX) + 1):
        x = _LEFT + _UNIT * ratio
        colour = "#444" if ratio == 1 else "#ddd"
        lines += [
            f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{height - 20}" stroke="{colour}"/>',
            f'<text x="{x}" y="{height - 6}" text-anchor="middle">{ratio}</text>',
        ]
    for index, title in enumerate(titles):
        y = _TOP + step * index
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{title}</text>')
        for place, (mode, _, _, colour) in enumerate(_MODES):
            if title in found[mode]:
                lines += _bar(y + place * (_BAR + 1), found[mode][title], colour)
    return "\n".join([*lines, "</svg>", ""])


def _has_ratio(found: Mapping[str, Mapping[str, float]], title: str) -> bool:
    return any(title in ratios_of_mode for ratios_of_mode in found.values())


def _legend(document: Document, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = []
    for place, (mode, _, _, colour) in enumerate(_MODES):
        x = 10 + 260 * place
        rates = mean_of_rates(document, found[mode])
        mean = f", geometric mean of the rates {rates:.2f}" if rates is not None else ""
        lines += [
            f'<rect x="{x}" y="32" width="12" height="12" fill="{colour}"/>',
            f'<text x="{x + 18}" y="42">{mode}{mean}</text>',
        ]
    return lines


def _bar(y: int, ratio: float, colour: str) -> list[str]:
    length = _UNIT * min(ratio, _RATIO_MAX)
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{length:.0f}" height="{_BAR}" fill="{colour}"/>',
        f'<text x="{_LEFT + length + 4:.0f}" y="{y + _BAR - 1}" font-size="9">{ratio:.2f}</text>',
    ]
