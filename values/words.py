"""Numbers in sentences for people, the same in log lines, errors and the output of commands."""


def format_count(count: int, one: str, many: str = "") -> str:
    """A number with its noun, such as ``1 record`` or ``1,204 records``."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
