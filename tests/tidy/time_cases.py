"""The numbered cases of docs/time.md: which tests show each, found by their names.

A test that shows a case is called `test_case_NN_what_it_shows`. `python -m tests.tidy.time_cases`
writes the table into the page; a test compares, so a case cannot lose its test unnoticed.
"""

import re
import sys

from tests.tidy.tree import ROOT, python_files, source

PAGE = ROOT / "docs" / "time.md"
CASES = range(1, 84)

_NAME = re.compile(r"^\s*(?:async )?def (test_case_(\d+)_(\w+))\(", re.M)
_PART = re.compile(r"(<!-- generated: time-cases -->\n).*?(<!-- end -->)", re.S)


def shown_by_case() -> dict[int, list[tuple[str, str]]]:
    """What is shown, in words, and the file, by number of the case."""
    found: dict[int, list[tuple[str, str]]] = {}
    for path in python_files("tests"):
        for match in _NAME.finditer(source(path)):
            shown = match[3].replace("_", " ")
            found.setdefault(int(match[2]), []).append((shown, str(path)))
    return found


def table() -> str:
    """The table as Markdown."""
    lines = ["| case | what is shown | test |", "|---:|---|---|"]
    for number, tests in sorted(shown_by_case().items()):
        shown = "; ".join(words for words, _ in tests)
        files = ", ".join(f"`{path}`" for path in dict.fromkeys(path for _, path in tests))
        lines.append(f"| {number} | {shown} | {files} |")
    return "\n".join(lines) + "\n"


def page_with_table() -> str:
    """docs/time.md as it should be."""
    return _PART.sub(lambda part: part[1] + table() + part[2], PAGE.read_text(encoding="utf-8"))


def main() -> int:
    """Write the page."""
    PAGE.write_text(page_with_table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
