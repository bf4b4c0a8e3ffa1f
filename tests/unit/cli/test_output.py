"""Tables for people, JSON for programs."""

import json

import pytest

from cli.failures import complain
from cli.output import (
    Progress,
    format_size,
    json_line,
    note,
    print_json,
    print_table,
    say,
    time_fields,
)

HOSTILE = "g\x1b]0;title\x07\x1b[2J\r\n\u202e\x9b\ud800"
"""A name that a client may have chosen: it would change the terminal where it is listed."""


def test_a_table_aligns_numbers_and_groups_digits(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("NAME,>COUNT", [("a", 1_234_567), ("b", None)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME      COUNT",
        "a     1,234,567",
        "b             -",
    ]


def test_lines_of_a_table_have_no_blanks_at_their_ends(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A,B", [("x", "long"), ("y", "")])
    assert capsys.readouterr().out == "A  B\nx  long\ny\n"


def test_a_piped_table_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A,B", [("x" * 300, "y" * 300)])
    assert "x" * 300 + "  " + "y" * 300 in capsys.readouterr().out


def test_markup_in_data_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("A", [("[red]not markup[/red]",)])
    assert "[red]not markup[/red]" in capsys.readouterr().out


def test_piped_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, "ü"]})
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert json.loads(shown) == {"a": [1, "ü"]}


def test_a_name_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = r"g\x1b]0;title\x07\x1b[2J\r\n\u202e\x9b\ud800"
    print_table("A", [(HOSTILE,)])
    say(HOSTILE)
    assert capsys.readouterr().out == f"A\n{shown}\n{shown}\n"
    complain(f"no {HOSTILE[:-4]}")
    assert capsys.readouterr().err == "tidelog: no g\\x1b]0;title\\x07\\x1b[2J\n"
    note(f"first\n{HOSTILE[:3]}")
    assert capsys.readouterr().err == "first\ng\\x1b]\n"


def test_json_does_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([HOSTILE, "ü\U000e0001"])
    shown = capsys.readouterr().out
    assert shown.rstrip("\n").isprintable()
    assert json_line(HOSTILE).isprintable()
    assert json.loads(shown) == [HOSTILE, "ü\U000e0001"]


def test_no_timestamp_is_null_for_programs() -> None:
    assert time_fields(-1) == {"timestamp_ms": None, "time": None}
    assert time_fields(0)["timestamp_ms"] == 0


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_short(size: int, expected: str) -> None:
    assert format_size(size) == expected


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("working", 10) as progress:
        progress.advance(5)
        progress.reach(10, 10)
    assert capsys.readouterr() == ("", "")
