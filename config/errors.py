"""The problems of a configuration: all at once, each in one sentence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem: the setting, the given value and its origin, the allowed values, the cure."""

    key: str
    value: str
    origin: str
    reason: str
    cure: str

    def __str__(self) -> str:
        """One line for a person."""
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.key} = {self.value!r}{where}: {self.reason}; {self.cure}"


class ConfigErrors(ValueError):
    """Every problem of a configuration, in the order of discovery; never raised empty."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
