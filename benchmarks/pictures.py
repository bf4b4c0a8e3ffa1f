"""Pictures of a run as SVG, made from its figures, for light and for dark pages.

`cells` shows every cell of a comparison, `summary` the few figures of the README. Colours are
those of a light page; a dark one changes them by a media query, so one file serves both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks import start
from benchmarks.harness import report

MODES = (
    ("page cache", "kafka", "tidelog", "cache"),
    ("synced", "kafka-synced", "tidelog-synced", "synced"),
)
_STYLE = """<style>
text { font-family: sans-serif; fill: #24292f; }
.page { fill: #ffffff; } .grid { stroke: #d0d7de; } .one { stroke: #57606a; }
.range { stroke: #24292f; } .quiet { fill: #57606a; }
.cache { fill: #1f6f8b; } .synced { fill: #d4862a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; } .grid { stroke: #30363d; } .one { stroke: #9198a1; }
  .range { stroke: #e6edf3; } .quiet { fill: #9198a1; }
  .cache { fill: #4fa3c7; } .synced { fill: #e3a857; }
}
</style>"""

_LEFT, _UNIT, _BAR, _TOP, _RATIO_MAX = 300, 110, 9, 64, 5.0
_WIDTH, _SUMMARY_LEFT, _SUMMARY_RIGHT = 760, 236, 70
_TICKS = (0.5, 1, 2, 5, 10, 20, 50)
_ROW, _SUMMARY_BAR = 46, 14


def cells(document: report.Document) -> str:
    """A bar for each ratio of Tidelog to Kafka, cell by cell in both modes."""
    found = {mode: dict(report.ratios(document, kafka, own)) for mode, kafka, own, _ in MODES}
    titles = [
        cell["title"]
        for cell in document["cells"]
        if any(cell["title"] in of_mode for of_mode in found.values())
    ]
    step = 2 * _BAR + 8
    height = _TOP + step * len(titles) + 24
    width = round(_LEFT + _UNIT * _RATIO_MAX + 70)
    lines = [
        *_head(width, height, "How many times as good as Apache Kafka on the same machine"),
        *_legend(document, found),
    ]
    for ratio in range(int(_RATIO_MAX) + 1):
        x = _LEFT + _UNIT * ratio
        lines += [
            _line(x, _TOP - 6, x, height - 20, "one" if ratio == 1 else "grid"),
            f'<text x="{x}" y="{height - 6}" text-anchor="middle">{ratio}</text>',
        ]
    for index, title in enumerate(titles):
        y = _TOP + step * index
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{title}</text>')
        for place, (mode, _, _, kind) in enumerate(MODES):
            if title in found[mode]:
                ratio_of_cell = found[mode][title]
                length = _UNIT * min(ratio_of_cell, _RATIO_MAX)
                top = y + place * (_BAR + 1)
                lines += [
                    _rectangle(_LEFT, top, length, _BAR, kind),
                    f'<text x="{_LEFT + length + 4:.0f}" y="{top + _BAR - 1}" font-size="9">'
                    f"{ratio_of_cell:.2f}</text>",
                ]
    return _ended(lines)


def summary(documents: Mapping[str, report.Document]) -> str:
    """The figures of the README on one logarithmic scale, with the range of their cells."""
    rows = list(_summary_rows(documents))
    height = 96 + _ROW * len(rows)
    when = documents["compare"]["when"].split()[0]
    rounds = report.rounds(documents["compare"])
    versions = documents["compare"]["machine"]
    lines = _head(_WIDTH, height, "Tidelog beside Apache Kafka, same machine, same disk")
    lines.append(
        f'<text x="10" y="40" class="quiet">times as good; the line is the range of the loads; '
        f"Kafka {versions.get('Apache Kafka', '')}, {when}, medians of {rounds}</text>"
    )
    for place, (mode, _, _, kind) in enumerate(MODES):
        x = 10 + 200 * place
        what = "in the page cache" if mode == "page cache" else "on disk before the answer"
        lines += [
            _rectangle(x, 50, 12, 12, kind),
            f'<text x="{x + 18}" y="60">{what}</text>',
        ]
    bottom = height - 22
    for tick in _TICKS:
        at = _place(tick)
        lines += [
            _line(at, 70, at, bottom, "one" if tick == 1 else "grid"),
            f'<text x="{at:.0f}" y="{height - 6}" text-anchor="middle">{tick:g}</text>',
        ]
    for index, (title, bars) in enumerate(rows):
        top = 76 + _ROW * index
        lines.append(
            f'<text x="{_SUMMARY_LEFT - 10}" y="{top + 20}" text-anchor="end">{title}</text>'
        )
        for place, (kind, values) in enumerate(bars):
            lines += _summary_bar(top + place * (_SUMMARY_BAR + 3), kind, values)
    return _ended(lines)


def _summary_rows(
    documents: Mapping[str, report.Document],
) -> Iterator[tuple[str, list[tuple[str, list[float]]]]]:
    """(title, a (kind, ratios) for each mode) of each row."""
    compared = documents["compare"]
    rates = {cell["title"] for cell in compared["cells"] if cell["higher_is_better"]}
    for title, begin in (
        ("producing, records/s", "produce"),
        ("consuming, records/s", "consume"),
        ("raw requests, bytes/s", "raw"),
    ):
        bars = []
        for _, kafka, own, kind in MODES:
            found = [
                ratio
                for name, ratio in report.ratios(compared, kafka, own)
                if name in rates and name.startswith(begin)
            ]
            if found:
                bars.append((kind, found))
        if bars:
            yield title, bars
    for title, of_broker in (
        ("CPU of the broker for it all", report.cpu_sum),
        ("memory under load", _peak_mb),
    ):
        bars = []
        for _, kafka, own, kind in MODES:
            theirs, ours = of_broker(compared, kafka), of_broker(compared, own)
            if theirs and ours:
                bars.append((kind, [theirs / ours]))
        if bars:
            yield title, bars
    if "start" in documents:
        theirs, ours = (
            start.median(documents["start"], "new", name, "first_ack_ms")
            for name in ("kafka", "tidelog-synced")
        )
        if theirs and ours:
            yield "start to first record", [("synced", [theirs / ours])]


def _peak_mb(document: report.Document, name: str) -> float | None:
    found = document["memory"].get(name, {}).get("peak_mb")
    return None if found is None else float(found)


def _place(ratio: float) -> float:
    """Where a ratio is on the logarithmic scale."""
    low, high = math.log(_TICKS[0]), math.log(_TICKS[-1])
    share = (math.log(min(max(ratio, _TICKS[0]), _TICKS[-1])) - low) / (high - low)
    return _SUMMARY_LEFT + share * (_WIDTH - _SUMMARY_LEFT - _SUMMARY_RIGHT)


def _summary_bar(top: int, kind: str, values: Sequence[float]) -> list[str]:
    """A bar from 1 to the mean, and a line from the worst to the best value."""
    mean = report.geometric_mean(values)
    begin, end = sorted((_place(1), _place(mean)))
    middle = top + _SUMMARY_BAR / 2
    last = end
    lines = [_rectangle(begin, top, max(end - begin, 1), _SUMMARY_BAR, kind)]
    if len(values) > 1:
        lines.append(_line(_place(min(values)), middle, _place(max(values)), middle, "range"))
        last = max(end, _place(max(values)))
    shown = f"{mean:.2f}" if mean < 10 else f"{mean:.1f}"
    lines.append(f'<text x="{last + 5:.0f}" y="{top + 11}" font-size="11">{shown}</text>')
    return lines


def _legend(document: report.Document, found: Mapping[str, Mapping[str, float]]) -> list[str]:
    lines = []
    for place, (mode, _, _, kind) in enumerate(MODES):
        x = 10 + 320 * place
        rates = report.mean_of_rates(document, found[mode])
        mean = f", geometric mean of the rates {rates:.2f}" if rates is not None else ""
        lines += [
            _rectangle(x, 32, 12, 12, kind),
            f'<text x="{x + 18}" y="42">{mode}{mean}</text>',
        ]
    return lines


def _head(width: int, height: int, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="11" role="img">',
        f"<title>{title}</title>",
        _STYLE,
        f'<rect width="{width}" height="{height}" class="page"/>',
        f'<text x="10" y="20" font-size="14">{title}</text>',
    ]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" class="{kind}"/>'


def _ended(lines: Sequence[str]) -> str:
    return "\n".join([*lines, "</svg>", ""])
