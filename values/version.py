"""The version, stated here alone: pyproject.toml, metrics and the manual page read it."""

from typing import Final

DISTRIBUTION: Final = "tidelog"
VERSION: Final = "0.1.0"
