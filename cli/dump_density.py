"""The checks of ``tidelog dump-segment`` on a density file; rules: `storage.audit.density`."""

from collections.abc import Iterator, Sequence
from typing import Any

from storage.audit.density import Problem, judge_entries, read_side_file

Verdict = tuple[int, dict[str, int], str | None]


def density_verdicts(
    content: bytes, base_offset: int, maxima: Sequence[tuple[int, int]] | None
) -> Iterator[Verdict]:
    """(slot, entry, its problem) of every entry.

    `maxima` are (last offset, largest timestamp up to there) of the log's batches, in order; None
    when there is no log to compare with. A file that cannot be read is one entry without content.
    """
    side = read_side_file(content)
    if isinstance(side, Problem):
        yield 0, {}, f"the file cannot be read: expected {side.expected}, found {side.found}"
        return
    for slot, entry in enumerate(judge_entries(side, base_offset, maxima or ())):
        yield slot, {"time": entry.timestamp, "offset": entry.offset}, entry.problem


def side_file_facts(content: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Header and seal, for programs and for people; None when the file cannot be read."""
    side = read_side_file(content)
    if isinstance(side, Problem):
        return None
    carried = "" if side.carried_ms < 0 else f", the log before it reaches {side.carried_ms}"
    sealed = "no seal: a broker has it in use, or writes it again when needed"
    if side.covered is not None:
        size, next_offset, newest = side.covered
        sealed = f"sealed for a log of {size:,} bytes up to offset {next_offset}, newest {newest}"
    facts = {
        "variant": side.variant,
        "interval_ms": side.interval_ms,
        "carried_ms": side.carried_ms,
        "sealed_for": side.covered,
    }
    words = f"{side.variant}, buckets of {side.interval_ms:,} ms{carried}; {sealed}"
    return facts, {"words": words}
