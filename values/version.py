"""The version that is installed here: for bug reports, metrics and the manual page.

What looks it up is imported at the first question: it brings the e-mail parser, a twentieth of a
start.
"""

from functools import cache
from typing import Final

DISTRIBUTION: Final = "tidelog"


@cache
def installed_version() -> str:
    """The version that is installed; "unknown (not installed)" for folders that were copied."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown (not installed)"
