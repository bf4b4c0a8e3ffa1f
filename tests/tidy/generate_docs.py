"""Writes the generated parts of the documents: `make docs`.

A page marks a generated part with `<!-- generated: NAME -->` and `<!-- end -->`; what stands
between is replaced by what the code says now. A test compares, so a page cannot fall behind.
"""

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable

from config.broker_keys import BROKER_KEYS
from config.group import GROUP_KEYS
from config.not_applicable.reasons import (
    NOT_APPLICABLE,
    NOT_APPLICABLE_PREFIXES,
    REFUSED_PREFIXES,
)
from config.topic_keys import TOPIC_KEYS
from config.values import Key, format_value
from protocol.api_keys import SUPPORTED, ApiKey
from tests.differential.intended import INTENDED
from tests.differential.run import REACHES
from tests.requests_differential.intended import INTENDED as REQUESTS_INTENDED
from tests.requests_differential.intended import Intended
from tests.rights.intended import INTENDED as RIGHTS_INTENDED
from tests.tidy.tree import ROOT

_PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.S)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _default(key: Key) -> str:
    text = format_value(key.default)
    return f"`{text}`" if text else "(empty)"


def topic_settings() -> str:
    """Every topic setting with its broker default's name."""
    return _inheriting_settings(TOPIC_KEYS.values())


def group_settings() -> str:
    """Every setting of groups with its broker default's name."""
    return _inheriting_settings(GROUP_KEYS.values())


def _inheriting_settings(keys: Iterable[Key]) -> str:
    return _table(
        ("setting", "default", "allowed", "broker setting for its default", "meaning"),
        (
            (
                f"`{key.name}`",
                _default(key),
                key.allowed(),
                ", ".join(f"`{name}`" for name, _ in key.synonyms),
                key.doc,
            )
            for key in keys
        ),
    )


def broker_settings() -> str:
    """Every broker setting that is not merely a topic default."""
    synonyms = {name for key in TOPIC_KEYS.values() for name, _ in key.synonyms}
    return _table(
        ("setting", "default", "allowed", "at run time", "meaning"),
        (
            (f"`{key.name}`", _default(key), key.allowed(), "yes" if key.dynamic else "", key.doc)
            for key in BROKER_KEYS.values()
            if key.name not in synonyms
        ),
    )


def not_applicable() -> str:
    """Kafka's settings that mean nothing here."""
    return _table(
        ("setting", "why it does not apply"),
        [
            *((f"`{name}`", reason) for name, reason in NOT_APPLICABLE.items()),
            *((f"`{name}*`", reason) for name, reason in NOT_APPLICABLE_PREFIXES.items()),
            *(
                (f"`{prefix}*` (others)", f"refused: {cure}")
                for prefix, cure in REFUSED_PREFIXES.items()
            ),
        ],
    )


def api_versions() -> str:
    """What the broker advertises."""
    return _table(
        ("key", "API", "versions"),
        (
            (
                str(int(key)),
                _api_name(key),
                f"{versions.min} to {versions.max}",
            )
            for key, versions in sorted(SUPPORTED.items())
        ),
    )


def _api_name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))


def metrics() -> str:
    """Every metric of a live broker: scraped, because some exist only once there is a topic."""
    lines = _scrape().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith("# TYPE "))
    rows = []
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            rows.append((f"`{name}`", kinds[name], text))
    return _table(("metric", "kind", "meaning"), rows)


def _scrape() -> str:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tidelog", "serve", "--json", "--data-dir", directory]
        command += ["--listen", "127.0.0.1:0", "--set", "metrics.listener=127.0.0.1:0"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            ready = json.loads(broker.stdout.readline())
            url = f"http://127.0.0.1:{ready['metrics_port']}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = str(answer.read().decode())
            broker.terminate()
    return text


_MARK = "Differs from Kafka"
_BULLET = re.compile(r"\n\s*[*-] ")


def differences() -> str:
    """Every place in the code that says how it differs, in the order of the layers."""
    rows = [
        (f"`{path.relative_to(ROOT)}`", text)
        for package in ("protocol", "storage", "broker", "client", "cli")
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in _marked(path.read_text(encoding="utf-8"))
    ]
    return _table(("where", 'difference ("it" and "there" are Kafka)'), rows)


def differential() -> str:
    """The families of differences that the differential test accepts."""
    rows = []
    for row in INTENDED:
        peers = [version for version in REACHES if re.fullmatch(row.versions, version)]
        shown = "all" if len(peers) == len(REACHES) else ", ".join(peers)
        rows.append((row.reason[0].upper() + row.reason[1:], shown))
    return _table(("difference", "against Kafka"), rows)


def requests_differential() -> str:
    """The families of differences that the differential test of requests accepts."""
    return _families(REQUESTS_INTENDED)


def rights() -> str:
    """The families of differences that the matrix of rights accepts beside those."""
    return _families(RIGHTS_INTENDED)


def _families(intended: Iterable[Intended]) -> str:
    return _table(
        ("APIs", "difference"),
        (
            (
                "all" if row.apis == tuple(ApiKey) else ", ".join(map(_api_name, row.apis)),
                row.reason[0].upper() + row.reason[1:],
            )
            for row in intended
        ),
    )


def _marked(source: str) -> Iterable[str]:
    """The paragraphs that begin at the mark, and the list items if it introduces a list."""
    for match in re.finditer(rf"{_MARK}( \([^)]*\))?: ?", source):
        rest = source[match.end() :]
        text = re.split(r'\n\s*\n|\s*"""', rest.lstrip("\n"))[0]
        if not _BULLET.match(f"\n{text}"):
            yield _one_line(text)
            continue
        yield from (_one_line(item) for item in _BULLET.split(f"\n{text}") if item.strip())


def _one_line(text: str) -> str:
    """The text without line breaks and final mark; what is code stays code."""
    line = " ".join(text.replace("``", "`").split()).rstrip(".;")
    return line[0].upper() + line[1:] if line[0].isalpha() else line


PARTS: dict[str, Callable[[], str]] = {
    "topic-settings": topic_settings,
    "group-settings": group_settings,
    "broker-settings": broker_settings,
    "not-applicable": not_applicable,
    "api-versions": api_versions,
    "differences": differences,
    "differential": differential,
    "requests-differential": requests_differential,
    "rights": rights,
    "metrics": metrics,
}

PAGES = ("docs/configuration.md", "docs/compatibility.md", "docs/operations.md")


def regenerate(page: str) -> str:
    """The text that `page` should have now."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return _PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", text)


def main() -> int:
    """Rewrites the pages that changed."""
    for page in PAGES:
        text = regenerate(page)
        if text != (ROOT / page).read_text(encoding="utf-8"):
            (ROOT / page).write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
