"""`tidelog` with clocks that stand still and random numbers that repeat.

`python frozen_broker.py WALL_MS SEED serve ...` runs the code of the current directory, whichever
commit it is: this program imports nothing of the project before time and randomness are fixed.
Timers of the event loop still fire.
"""

import itertools
import os
import random
import runpy
import sys
import time

MONOTONIC_MS = 1_000_000
_ID_BITS = 128


def main() -> None:
    """Fix the clocks and the random numbers, then run the command of the remaining arguments."""
    wall_ms, seed = int(sys.argv[1]), int(sys.argv[2])
    source = random.Random(seed)
    time.time = lambda: wall_ms / 1000
    time.time_ns = lambda: wall_ms * 1_000_000
    time.monotonic_ns = lambda: MONOTONIC_MS * 1_000_000
    os.urandom = source.randbytes
    random.Random = _Seeded  # type: ignore[misc,assignment]
    sys.path[0] = os.getcwd()
    sys.argv = ["tidelog", *sys.argv[3:]]
    runpy.run_module("tidelog", run_name="__main__")


class _Seeded(random.Random):
    """A generator that has a seed even when the caller gives none.

    Ids of 128 bits are counted, so that they do not depend on the draws of the timers' jitter.
    """

    def __init__(self, seed: int | bytes = 0) -> None:
        super().__init__(seed)
        self._ids = itertools.count(1)

    def getrandbits(self, k: int, /) -> int:
        return next(self._ids) if k == _ID_BITS else super().getrandbits(k)


if __name__ == "__main__":
    main()
