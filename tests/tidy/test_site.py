"""What the site's hooks do to a page; `make site` checks its links."""

import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS = Path(__file__).parents[2] / "docs" / "site" / "hooks.py"


def test_a_command_in_a_table_has_its_bar_without_a_backslash() -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    on_page_content = runpy.run_path(str(HOOKS))["on_page_content"]
    cell = r"<tr><td><code>seq 3 \| tidelog</code></td></tr>"
    assert on_page_content(cell) == "<tr><td><code>seq 3 | tidelog</code></td></tr>"
    assert on_page_content(r"<pre><code>grep 'a\|b'</code></pre>").count("\\|") == 1


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("listener.security.protocol.map", "listener.<wbr>security.<wbr>protocol.<wbr>map"),
        ("A:A,B:B", "A:<wbr>A,<wbr>B:<wbr>B"),
        (
            "TOPIC_ALREADY_EXISTS. Not so MAX_AGE.",
            'TOPIC_<wbr class="narrow">ALREADY_<wbr class="narrow">EXISTS. Not so MAX_AGE.',
        ),
        (
            "a --set b -t x-y -1",
            'a <span class="option">--set</span> b <span class="option">-t</span> x-y -1',
        ),
        (
            "TLS_RSA_WITH_AES_256_CBC_SHA384",
            "TLS_<wbr>RSA_<wbr>WITH_<wbr>AES_<wbr>256_<wbr>CBC_<wbr>SHA384",
        ),
    ],
)
def test_long_names_in_a_table_break_at_their_joints(text: str, broken: str) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    on_post_page = runpy.run_path(str(HOOKS))["on_post_page"]
    cell = "<p>a.b</p><td><code class='x.y'>{}</code></td>"
    assert on_post_page(cell.format(text)) == cell.format(broken)


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ('<script src="https://host/a.js"></script>', ["https://host/a.js"]),
        ("<script async\n src=//host/a.js>", ["//host/a.js"]),
        ("<img alt='' src='http://host/a.png'>", ["http://host/a.png"]),
        ('<link rel="stylesheet" href="https://host/a.css">', ["https://host/a.css"]),
        ('<link href="https://host" rel="preconnect" crossorigin>', ["https://host"]),
        ("@font-face { src: url(https://host/a.woff2) }", ["https://host/a.woff2"]),
        ("@import 'https://host/a.css';", ["https://host/a.css"]),
        ('<pre class="mermaid">', ["the script of its diagrams"]),
        ('<a href="https://host/">src="https://host/a.js"</a>', []),
        ('<link rel="canonical" href="https://host/page">', []),
        ('<script src="../assets/a.js"></script><img src="images/a.png">', []),
        ('<svg xmlns="http://www.w3.org/2000/svg">', []),
    ],
)
def test_what_a_page_loads_from_another_host_fails_the_build(text: str, loads: list[str]) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    assert runpy.run_path(str(HOOKS))["foreign"](text) == loads


def test_search_in_a_folder_needs_no_network() -> None:
    """The plugin loads its own script from the network unless it finds one of this name."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "plugins:\n  - search\n  - offline\n" in text
    (script,) = yaml.safe_load(text.partition("extra:")[2].partition("plugins:")[0])["polyfills"]
    assert "iframe-worker" in script
    assert (HOOKS.parent / Path(script).name).is_file()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("## lag", "groups.md"),
        ("## log files", "operations.md"),
        ("health check\n", "operations.md"),
        ("## too many open files", "operations.md"),
        ("ulimit", "operations.md"),
        ("monitoring", "operations.md"),
        ("helm", "operations.md"),
        ("kubernetes", "operations.md"),
        ("queue", "share-groups.md"),
        ("migrate", "how-to/move-from-kafka.md"),
    ],
)
def test_the_words_that_a_user_types_are_on_the_page(words: str, page: str) -> None:
    assert words in (ROOT / "docs" / page).read_text(encoding="utf-8").lower()


def test_the_search_finds_pages_for_users_first() -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    weigh = runpy.run_path(str(HOOKS))["_weight"]
    internal = ("ARCHITECTURE.md", "adr/0006-flush-policy.md", "CHANGELOG.md", "benchmarks.md")
    for page in internal:
        assert weigh(page) < weigh("configuration.md") < weigh("index.md") < weigh("time.md")
    named = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {weigh(page) for page in named} == {0.2, 0.5, 1.0, 2.0, 3.0}
