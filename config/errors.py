"""The problems of a configuration: all at once, each in one sentence."""

from collections.abc import Iterable

from values.dataclasses import dataclass
from values.store_url import without_credentials


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the setting, the given value, what is allowed, the cure, the origin.

    `is_reference` says that the value refers to a provider, and that this cannot be used.
    """

    key: str
    value: str
    reason: str
    cure: str
    origin: str = ""
    is_reference: bool = False

    def __str__(self) -> str:
        """One line for a person."""
        where = f" ({self.origin})" if self.origin else ""
        value = without_credentials(self.value)
        return f"{self.key} = {value!r}{where}: {self.reason}; {self.cure}"


class ConfigErrors(ValueError):
    """Every problem of a configuration, in the order of discovery; never raised empty."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        self.problems = tuple(problems)
        self.has_reference = any(problem.is_reference for problem in problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A cure for the unknown `name`: the closest known name, or the sentence `otherwise`."""
    import difflib  # only an error needs it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"did you mean {close[0]}?" if close else otherwise
