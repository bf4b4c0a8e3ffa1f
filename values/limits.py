"""Limits that a package checks before another one does, so that both say the same."""

from typing import Final

CLOCK_STEP_MAX_MS: Final = 10 * 365 * 86_400_000
"""The most that one command moves a settable clock: ten years, beyond which a unit is wrong."""
