"""What a package index gets to see: metadata, the page, the wheels that are asked for."""

import re
import runpy
import tomllib
from typing import Any

import pytest

from tests.tidy.tree import ROOT

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUP: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_of_the_package_has_no_link_to_a_file_beside_it() -> None:
    page = SETUP["package_page"](README, "")
    assert re.findall(r"\]\((?!https?://|mailto:|#)[^)]*\)", page) == []
    assert "docs/security.md" in page
    assert "![" not in page
    # A picture and the empty line with it.
    assert len(page.splitlines()) >= len(README.splitlines()) - 2 * README.count("\n![")


def test_the_links_of_the_page_lead_to_where_the_project_is() -> None:
    text = "See [a](docs/a.md#b), [c](https://d/), [e](#f)\n![p](docs/p.png)\n"
    assert SETUP["package_page"](text, "https://host/tree/") == (
        "See [a](https://host/tree/docs/a.md#b), [c](https://d/), [e](#f)\n"
        "![p](https://host/tree/docs/p.png)\n"
    )


def test_the_metadata_name_every_python_that_wheels_are_built_for() -> None:
    project = PYPROJECT["project"]
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    built = re.findall(r"cp3(\d+)-", PYPROJECT["tool"]["cibuildwheel"]["build"])
    assert named == built
    assert project["requires-python"] == f">=3.{named[0]}"
    assert {"authors", "keywords", "license", "license-files", "description"} <= set(project)
    assert not [one for one in SETUP["requirements"]("x86_64-linux-gnu") if "win32" in one]


def test_an_installation_for_musl_needs_no_compiler() -> None:
    """Of what a broker needs, only this has no wheel for musl; Alpine's Python is named so."""
    usual = SETUP["requirements"]("cpython-312-x86_64-linux-gnu")
    without = SETUP["requirements"]("cpython-312-x86_64-linux-musl")
    assert [one for one in usual if one not in without] == ["google-re2>=1.1"]
    assert SETUP["requirements"]("") == usual
    assert "dependencies" in PYPROJECT["project"]["dynamic"]


@pytest.mark.parametrize("wanted", ["auto", "never"])
def test_loops_are_compiled_by_default(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_COMPILE", wanted)
    names = [one.name for one in SETUP["extensions"]()]
    assert names == ([] if wanted == "never" else list(SETUP["COMPILED"]))


def test_a_build_for_others_is_not_silently_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_COMPILE", "required")
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="no C compiler here, and TIDELOG_COMPILE=required"):
        SETUP["extensions"]()
    monkeypatch.setenv("TIDELOG_COMPILE", "yes")
    with pytest.raises(SystemExit, match="write auto, required or never"):
        SETUP["extensions"]()


def test_what_doctor_looks_at_is_what_is_compiled() -> None:
    from cli.server.loops import NAMES

    assert set(NAMES) == set(SETUP["COMPILED"])
    assert f" compiles {len(NAMES)} modules first" in (ROOT / "docs/install.md").read_text("utf-8")


def test_every_extra_that_a_page_or_a_message_names_exists() -> None:
    """`pip install` takes an unknown extra with a warning, and installs nothing for it."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    code = [path for name in SETUP["PACKAGES"] for path in (ROOT / name).rglob("*.py")]
    named = {
        (extra, str(path.relative_to(ROOT)))
        for path in (*pages, *code)
        for extras in re.findall(r"(?:tidelog|\.)\[([a-z,]+)\]['\"`]", path.read_text("utf-8"))
        for extra in extras.split(",")
    }
    known = PYPROJECT["project"]["optional-dependencies"]
    assert {extra for extra, _ in named} >= {"console", "spark", "serde", "kerberos"}
    assert {(extra, path) for extra, path in named if extra not in known} == set()
