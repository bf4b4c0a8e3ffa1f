"""The file of locked packages has every package that a broker needs, with hashes."""

import re
import runpy
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.M)


def locked() -> dict[str, str]:
    """The version of each package, by its canonical name."""
    text = (ROOT / "requirements.lock").read_text()
    entries = ENTRY.findall(text)
    assert len(entries) == len(re.findall(r"^[^#\s]", text, re.M)), "an entry without hashes"
    return {canonicalize_name(name): version for name, version, _ in entries}


def test_every_dependency_is_locked_at_a_version_that_is_allowed() -> None:
    setup = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    versions = locked()
    for text in setup["requirements"](""):
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not in requirements.lock: make it again"
        assert requirement.specifier.contains(version), f"{text}: locked at {version}"


def test_the_image_installs_what_is_locked() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes -r requirements.lock" in text
