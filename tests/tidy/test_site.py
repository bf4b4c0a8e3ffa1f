"""What the site's hooks do to a page; `make site` checks its links."""

import runpy
from pathlib import Path

import pytest

HOOKS = Path(__file__).parents[2] / "docs" / "site" / "hooks.py"


def test_a_command_in_a_table_has_its_bar_without_a_backslash() -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    on_page_content = runpy.run_path(str(HOOKS))["on_page_content"]
    cell = r"<tr><td><code>seq 3 \| tidelog</code></td></tr>"
    assert on_page_content(cell) == "<tr><td><code>seq 3 | tidelog</code></td></tr>"
    assert on_page_content(r"<pre><code>grep 'a\|b'</code></pre>").count("\\|") == 1
