"""Names of topics: how long they may be, and of which characters."""

import re
from typing import Final

LENGTH_MAX: Final = 249
CHARACTERS: Final = "a-z A-Z 0-9 . _ -"
"""What a name may have, as people read it."""

_OTHERS: Final = re.compile(r"[^a-zA-Z0-9._-]")
_SHOWN: Final = 5


def wrong_characters(name: str) -> str:
    """The first of the characters that no name has, quoted; "" where there are none."""
    return ", ".join(map(repr, sorted(set(_OTHERS.findall(name)))[:_SHOWN]))
