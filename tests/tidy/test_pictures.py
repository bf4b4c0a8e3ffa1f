"""The drawings of the documents can be read in light and in dark surroundings."""

import re
from pathlib import Path

import pytest

from tests.support.cli import ROOT

DRAWINGS = sorted((ROOT / "docs").rglob("*.svg"))
ENOUGH = 4.5
"""The contrast that WCAG 2 (AA) asks for between a text and what it stands on."""

_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(.*?)\n\}\n", re.DOTALL)
_RULE = re.compile(r'^  \[(fill|stroke)="(#\w+)"\] \{ \1: (#\w+); \}$', re.M)
_CLASS_FILL = re.compile(r"(\.\w+|text) \{[^}]*?fill: (#\w{6});")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def fills(drawing: str) -> list[dict[str, set[str]]]:
    """The colours of texts and of what lies under them, in light and in dark surroundings."""
    dark = _DARK.search(drawing)
    assert dark is not None
    if rules := _RULE.findall(dark[1]):
        exchanged = {(kind, light): other for kind, light, other in rules}
        used = set(re.findall(r' (fill|stroke)="(#\w+)"', drawing.replace(dark[0], "")))
        assert used == set(exchanged)
        light = {
            name: set(re.findall(rf'<{name} [^>]*fill="(#\w+)"', drawing))
            for name in ("text", "rect")
        }
        as_dark = {
            name: {exchanged["fill", colour] for colour in colours}
            for name, colours in light.items()
        }
        return [light, as_dark]
    found = []
    for style in (drawing.replace(dark[0], ""), dark[1]):
        named = dict(_CLASS_FILL.findall(style))
        found.append({"text": {named["text"], named[".quiet"]}, "rect": {named[".page"]}})
    return found


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_is_readable_in_light_and_dark_surroundings(path: Path) -> None:
    light, dark = fills(path.read_text(encoding="utf-8"))
    for colours in (light, dark):
        pairs = [(text, under) for text in colours["text"] for under in colours["rect"]]
        assert pairs
        assert [pair for pair in pairs if contrast(*pair) < ENOUGH] == []
    assert max(map(luminance, dark["rect"])) < min(map(luminance, light["rect"]))
