"""Turns the JSON of a run into Markdown and one picture.

A result is compared within its run only: the table gives ratios of medians, above 1 where Tidelog
is better, whichever way the figure points. docs/benchmarks.md holds generated sections between
markers, each renewed by the benchmark that owns it; the prose around them is written by hand.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine

Document = dict[str, Any]
"""A run as JSON; every benchmark's document has "kind", "when" and "machine"."""

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PICTURE = DOCS / "benchmarks.svg"

_PAIRS = (
    ("In the page cache", "kafka", "tidelog", "limit"),
    ("On disk before the acknowledgement", "kafka-synced", "tidelog-synced", "limit-synced"),
)


def comparison(document: Document) -> str:
    """The tables of `benchmarks.compare`."""
    parts = [
        f"Measured {document['when']}, medians of {document['rounds']} rounds. "
        "Ratios above 1 say that Tidelog is better; CPU is the broker's, in seconds per load.",
        machine.markdown(document["machine"]),
    ]
    for title, kafka, tidelog, limit in _PAIRS:
        parts += _pair_table(document, title, kafka, tidelog)
        parts += _limit_table(document, tidelog, limit)
    parts += _peer_table(document)
    parts += _memory_table(document)
    return "\n\n".join(parts)


def write_documents(document: Document) -> None:
    """Renews the comparison in docs/benchmarks.md and the picture beside it."""
    replace_section("compare", comparison(document))
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
    """(title, ratio) of every cell that both brokers got through."""
    for cell in document["cells"]:
        values = [_median(cell, name) for name in (base, other)]
        if None not in values:
            old, new = values
            yield cell["title"], new / old if cell["higher_is_better"] else old / max(new, 0.1)


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
    return f"{number(statistics.median(result['values']))} {cell['unit']}"


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
    for label, start in (("produce", "produce"), ("consume", "consume"), ("all", "")):
        some = [value for name, value in found.items() if name.startswith(start)]
        if some:
            mean = f"**{geometric_mean(some):.2f}**"
            rows.append([f"geometric mean, {label}", "", "", mean, "", ""])
    head = ["load", document["titles"].get(kafka, "-"), document["titles"].get(tidelog, "-")]
    return [f"#### {title}", table([*head, "ratio", "CPU Kafka", "CPU Tidelog"], rows)]


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
    paired = {name for pair in _PAIRS for name in pair[1:]}
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
            f"{found['peak_mb']:.0f} MB",
            f"{found['cpu_seconds']:.1f} s",
        ]
        for name, found in document["memory"].items()
    ]
    head = ["broker", "resident when started", "highest", "CPU, whole run"]
    return ["#### Memory and CPU", table(head, rows)]


def picture(document: Document) -> str:
    """A bar for each ratio of Tidelog to Kafka, both modes, as SVG."""
    bars = [
        (f"{title} ({mode})", ratio)
        for mode, kafka, tidelog in (
            ("page cache", "kafka", "tidelog"),
            ("synced", "kafka-synced", "tidelog-synced"),
        )
        for title, ratio in ratios(document, kafka, tidelog)
    ]
    left, scale, step = 380, 120, 20
    height = step * (len(bars) + 3)
    widest = max([3.0, *(ratio for _, ratio in bars)])
    width = int(left + scale * min(widest, 6) + 70)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="18" font-size="14">Tidelog / Apache Kafka, same run '
        "(right of the line: Tidelog is better)</text>",
    ]
    for index, (title, ratio) in enumerate(bars):
        y = step * (index + 2)
        colour = "#2a7f62" if ratio >= 1 else "#b5533c"
        length = scale * min(ratio, 6)
        lines += [
            f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{title}</text>',
            f'<rect x="{left}" y="{y}" width="{length:.0f}" height="14" fill="{colour}"/>',
            f'<text x="{left + length + 5:.0f}" y="{y + 11}">{ratio:.2f}</text>',
        ]
    bottom = step * (len(bars) + 2)
    x = left + scale
    lines.append(f'<line x1="{x}" y1="30" x2="{x}" y2="{bottom}" stroke="#333"/>')
    return "\n".join([*lines, "</svg>", ""])
