"""The problems of a configuration: all at once, each in one sentence."""

from dataclasses import dataclass


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
        return f"{self.key} = {self.value!r}{where}: {self.reason}; {self.cure}"


class ConfigErrors(ValueError):
    """Every problem of a configuration, in the order of discovery; never raised empty."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
