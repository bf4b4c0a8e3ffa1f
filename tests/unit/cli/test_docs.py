"""The pages that a command shows, and that messages name."""

import ast
import re
from pathlib import Path

import pytest

from cli.docs import pages, title_of
from cli.exit_codes import ExitCode
from cli.main import run

ROOT = Path(__file__).parents[3]
CODE = ("broker", "cli", "client", "config", "console", "pipeline", "protocol", "storage")


def test_the_list_has_every_page_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(pages()) > 30
    assert re.search(r"^how-to/keep-a-year +Keep a year", "\n".join(lines), re.M)
    assert [name for name, path in pages().items() if not title_of(path)] == []


@pytest.mark.parametrize("name", ["security", "security.md", "docs/security.md", "security#users"])
def test_a_page_is_found_by_each_form_of_its_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["docs", name]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("# Security: TLS, users, rights\n")


def test_a_page_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["docs", "how-to/keep-a-yaer"]) == ExitCode.NOT_FOUND
    assert "did you mean how-to/keep-a-year?" in capsys.readouterr().err
    assert run(["docs", "xyz"]) == ExitCode.NOT_FOUND
    assert "tidelog docs lists all" in capsys.readouterr().err


def texts(path: Path) -> list[str]:
    """The texts of a module without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


def test_every_page_that_a_message_names_is_one() -> None:
    """An installation has no file docs/security.md to look at, and has the command."""
    every = [
        (text, str(path.relative_to(ROOT)))
        for name in CODE
        for path in (ROOT / name).rglob("*.py")
        for text in texts(path)
    ]
    named = {page for text, _ in every for page in re.findall(r"tidelog docs ([a-z/-]+)", text)}
    assert {"security", "configuration", "cli"} <= named
    assert named - {"lists", *pages()} == set()
    assert [one for one in every if re.search(r"docs/\w", one[0])] == []
