"""A cure for an unknown name: the nearest known one."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A cure for the unknown `name`: the closest known name, or the sentence `otherwise`."""
    import difflib  # only an error needs it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"did you mean {close[0]}?" if close else otherwise
