"""The problems of a configuration: all at once, each in one sentence."""

import re
from dataclasses import dataclass
from typing import Final

_CREDENTIALS: Final = re.compile(r"(?<=://).*(?=@)|(?<=[?#]).*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the setting, the given value, what is allowed, the cure, the origin."""

    key: str
    value: str
    reason: str
    cure: str
    origin: str = ""

    def __str__(self) -> str:
        """One line for a person."""
        where = f" ({self.origin})" if self.origin else ""
        value = without_credentials(self.value)
        return f"{self.key} = {value!r}{where}: {self.reason}; {self.cure}"


def without_credentials(value: str) -> str:
    """The value; of an address, without what may be a password or a token."""
    return _CREDENTIALS.sub("...", value) if "://" in value else value


class ConfigErrors(ValueError):
    """Every problem of a configuration, in the order of discovery; never raised empty."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
