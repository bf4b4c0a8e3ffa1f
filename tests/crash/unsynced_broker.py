"""`python -m broker` in which every sync reports success and does nothing: a negative control."""

import os
import sys
from typing import Any

from broker.__main__ import main


def _nothing(fd: Any) -> None:
    """What a disk that lies does."""


if __name__ == "__main__":
    os.fsync = os.fdatasync = _nothing
    sys.exit(main(sys.argv[1:]))
