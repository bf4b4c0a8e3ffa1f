"""The figures of the code are counted right: on a small tree whose figures can be seen."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.figures import figures, repeated_passages, table
from tests.tidy.tree import ROOT, look_at, python_files

PASSAGE = "".join(f"    total += {number}\n" for number in range(6))
FILES = {
    "storage/__init__.py": '"""Logs."""\n',
    "storage/log/__init__.py": "",
    "storage/log/log.py": (
        "from storage.disk import files\n\n\n"
        'def close(path: str) -> "Steps[None]":\n'
        '    """Close."""\n'
        "    assert path\n"
        "    return files.close_steps(path)\n\n\n"
        f"def size(total: int) -> int:\n{PASSAGE}    return total\n"
    ),
    "storage/disk/__init__.py": "",
    "storage/disk/files.py": (
        "from collections.abc import Callable\n"
        "from storage.log import log\n\n\n"
        "def close(path: str, done: Callable[[str], None]) -> None:\n    done(path)\n\n\n"
        'def close_steps(path: str) -> "Steps[None]":\n    return log.close(path)\n\n\n'
        f"def size(total: int) -> int:\n\n{PASSAGE}    return -total\n"
    ),
    "broker/server.py": (
        "from threading import Thread\n\n\n"
        "async def start() -> None:\n"
        '    """Start."""\n' + "    # Threads.\n" * 700 + "    Thread(target=print).start()\n"
    ),
    "config/broker_keys.py": 'KEYS = (number("log.dirs"), Key(name="port"), flag("a-b"))\n',
    "tests/test_log.py": "\n" * 70,
}


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A checkout without git."""
    for name, text in FILES.items():
        file = tmp_path / "before" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    yield tmp_path / "before"
    look_at(ROOT)


def test_figures_of_a_small_tree(checkout: Path) -> None:
    look_at(checkout)
    found = figures()
    product = sum(text.count("\n") for name, text in FILES.items() if "test" not in name)
    assert found["all: files, lines"] == f"7, {product}"
    assert found["storage: files, lines"] == "5, 39"
    assert found["storage: floors, circles of its parts"] == "1, 1"
    assert found["storage: floors of its files"] == "1"
    assert found["all: circles of modules"] == "1"
    assert found["broker: functions, median / 90 % / longest"] == "1, 702 / 702 / 702"
    assert found["modules of more than 450 lines"] == "1"
    assert found["modules of more than 700 lines"] == "1"
    assert found["lines of tests, for each line of the product"] == f"70, {70 / product:.2f}"
    assert found["asserts, for each function"] == f"1, {1 / 6:.3f}"
    assert found["settings"] == "2"
    assert found["modules that make threads"] == "1: broker/server.py"
    assert found["modules that connect to another process"] == "0"
    assert found["waiting: coroutines"] == "1 in broker"
    assert found["waiting: generators of steps"] == "2 in storage"
    assert found["waiting: functions with a callback"] == "1 in storage"
    assert found["waiting: twins, `X` beside `X_steps`"] == "1"


def test_a_passage_counts_once_in_each_place_and_its_lines_too(checkout: Path) -> None:
    look_at(checkout)
    # The line of the function and the six after it are in both files, the answers differ.
    assert repeated_passages(python_files("storage")) == (2, 14)


def test_columns_are_the_checkouts_and_a_figure_may_be_absent(checkout: Path) -> None:
    rows = table([checkout, checkout.parent / "before"]).splitlines()
    assert rows[:2] == ["| figure | before | before |", "|---|---|---|"]
    assert "| settings | 2 | 2 |" in rows


def test_a_checkout_ends_with_the_next_one(checkout: Path) -> None:
    look_at(checkout)
    assert len(python_files("storage")) == 5
    look_at(ROOT)
    assert len(python_files("storage")) > 50
