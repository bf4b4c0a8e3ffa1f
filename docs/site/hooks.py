"""What the site has beyond the pages of ``docs``: the same links hold on GitHub and there.

* Pages of the root (README.md, ARCHITECTURE.md...) become pages; README.md is the start.
* A link to any other file of the repository leads to a copy of that file, below ``files``.
* In cells of tables ``\\|`` is ``|``, as on GitHub: commands can be copied.
* Long names and values in cells break at their dots, commas and the like, so that a table of
  settings fits beside the navigation; on a narrow screen names of errors do, too. Options of
  commands do not break at their hyphens.
* The pages below ``api`` are made from the public names: the docstrings are the only text.
* The search finds the pages for users before those about the code and its history.
* Nothing is loaded from another host: a page that does fails the build.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""Pages of the repository's root, and what they are on the site."""

API_PAGES = {
    "api/client.md": ("tidelog", "The client's classes"),
    "api/serde.md": ("tidelog.serde", "Serializers and deserializers"),
    "api/testing.md": ("tidelog.testing", "Brokers for tests"),
    "api/spark.md": ("tidelog.spark", "Spark's functions"),
}
"""A page made of docstrings, the module whose public names it has, and its title."""

_WEIGHTS = (
    (re.compile(r"adr/|(ARCHITECTURE|CHANGELOG|CONTRIBUTING|code-in-figures|parity)\.md"), 0.2),
    (re.compile(r"(benchmarks|performance)\.md"), 0.2),
    (re.compile(r"api/|(compatibility|configuration|density|formats)"), 0.5),
    (re.compile(r"(faq|operations|troubleshooting)\.md"), 3.0),
    (re.compile(r"how-to/|(groups|install|security|spark|time)\.md"), 2.0),
)
"""How much a hit in a page counts for the search, by the beginning of its path; else 1."""

_LINK = re.compile(r"(\[(?:[^\]\[]|\[[^\]]*\])*\]\()(?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")

_OURS = ("iframe-worker.js", "style.css")
"""Files beside this one that the site has below ``assets``; mkdocs.yml names them."""

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\ssrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\srel=["']?(?:stylesheet|preload|preconnect|icon|modulepreload|manifest))"""
    r"""[^>]*?\shref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:url\(|@import)\s*["']?((?:https?:)?//[^"'\s)]+)""",
    re.IGNORECASE,
)
"""What a browser loads by itself; links to click are no such thing."""

_DIAGRAM = 'class="mermaid"'
"""For these the theme loads a script from the network."""

_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<]+")
_JOINT = re.compile(r"[.,:=/](?=[^\s.])")
_LONG_NAME = re.compile(r"\w{27,}")
_NAME = re.compile(r"\b[A-Z]{2,}(?:_[A-Z]+){2,}\b")
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages, the pages of the API, and every file that a page links to."""
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for source, uri in ROOT_PAGES.items():
        texts[uri] = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=texts[uri]))
    for uri, (module, title) in API_PAGES.items():
        files.append(File.generated(config, uri, content=_api_page(module, title)))
    for name in _OURS:
        path = str(Path(__file__).parent / name)
        files.append(File.generated(config, f"assets/{name}", abs_src_path=path))
    for target in sorted({path for uri, text in texts.items() for path in _linked(uri, text)}):
        place = _on_the_site(PurePosixPath(target))
        files.append(File.generated(config, str(place), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite the links that leave ``docs``, and say how much the page counts for the search."""
    uri = page.file.src_uri
    page.meta["search"] = {"boost": _weight(uri)}

    def rewritten(match: "re.Match[str]") -> str:
        opening, target, anchor = match[1], match[2], match[3] or ""
        place = _on_the_site(_from_root(uri, target))
        return f"{opening}{_relative(place, uri)}{anchor})" if place else match[0]

    return _LINK.sub(rewritten, markdown)


def _weight(uri: str) -> float:
    return next((weight for pattern, weight in _WEIGHTS if pattern.match(uri)), 1.0)


def on_page_content(html: str, **_: Any) -> str:
    """Let code in cells of tables have bars without their backslash, which Markdown keeps there."""
    return _CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def on_post_page(output: str, **_: Any) -> str:
    """Say where cells of tables may break; the search has read its texts before."""
    return _CELL.sub(lambda cell: _TEXT.sub(lambda text: breakable(text[0]), cell[0]), output)


def breakable(text: str) -> str:
    """A text whose long names a browser may break at their joints; copied, it is the same."""
    broken = _JOINT.sub(lambda joint: f"{joint[0]}<wbr>", text)
    broken = _LONG_NAME.sub(lambda name: name[0].replace("_", "_<wbr>"), broken)
    broken = _NAME.sub(lambda name: name[0].replace("_", '_<wbr class="narrow">'), broken)
    return _OPTION.sub(lambda option: f'<span class="option">{option[0]}</span>', broken)


def on_post_build(config: MkDocsConfig) -> None:
    """Fail where a page or a style of the site loads something from another host."""
    site = Path(config.site_dir)
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]):
        found = foreign(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.relative_to(site)} loads {found[0]}: keep it in the site")


def foreign(text: str) -> list[str]:
    """The addresses on other hosts that a browser loads with a page or a style."""
    found = [next(filter(None, groups)) for groups in _LOADED.findall(text)]
    return [*found, *(["the script of its diagrams"] if _DIAGRAM in text else [])]


def _api_page(module: str, title: str) -> str:
    """A heading for each public name; the name's docstring follows from the module that has it."""
    public = griffe.load(module, search_paths=[str(ROOT)], resolve_aliases=False)
    names = sorted(str(name).strip("'\"") for name in public.exports or ())
    entries = []
    for name in names:
        member = public.members.get(name)
        if member is None:
            continue
        target = member.target_path if member.is_alias else f"{module}.{name}"
        entries.append(f"::: {target}\n    options:\n      show_root_toc_entry: true\n")
    return f"# {title}\n\n`from {module} import ...`\n\n" + "\n".join(entries)


def _from_root(uri: str, target: str) -> PurePosixPath:
    """The path in the repository that a link of a page means."""
    sources = {site: source for source, site in ROOT_PAGES.items()}
    page = PurePosixPath(sources.get(uri, f"docs/{uri}"))
    parts: list[str] = []
    for part in (page.parent / target).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def _on_the_site(path: PurePosixPath) -> str | None:
    """Where the site has a path of the repository, None if it has no such thing."""
    if str(path) in ROOT_PAGES:
        return ROOT_PAGES[str(path)]
    if path.parts[:1] == ("docs",):
        inside = PurePosixPath(*path.parts[1:])
        return f"{inside}/README.md" if (ROOT / path).is_dir() else str(inside)
    ending = ".txt" if path.suffix == ".md" else ""  # else it would become a page
    return f"files/{path}{ending}" if (ROOT / path).is_file() else None


def _linked(uri: str, text: str) -> set[str]:
    """The files outside ``docs`` that a page links to."""
    paths = {_from_root(uri, target) for _, target, _ in _LINK.findall(text)}
    places = {path: _on_the_site(path) for path in paths}
    return {str(path) for path, place in places.items() if place and place.startswith("files/")}


def _relative(place: str, uri: str) -> str:
    depth = len(PurePosixPath(uri).parts) - 1
    return "../" * depth + place
