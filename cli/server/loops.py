"""Which compiled modules an installation lacks; without a C compiler they run as plain Python."""

from types import ModuleType
from typing import Final

from broker.net import (
    connection,
    fetch_lane,
    lane_connection,
    produce_lane,
    receive,
    request_fields,
)
from protocol.records import encode_loops, entry_loops, record_loops
from storage.append import plain
from storage.disk import file_end
from storage.log import lane
from storage.segment import feed

MODULES: Final[tuple[ModuleType, ...]] = (
    record_loops,
    entry_loops,
    encode_loops,
    file_end,
    plain,
    feed,
    lane,
    request_fields,
    produce_lane,
    fetch_lane,
    receive,
    connection,
    lane_connection,
)

SLOWER: Final = (
    "a Produce executes 7 to 50 times the instructions, a Fetch 3.5 to 17 times "
    "(python -m benchmarks.instructions)"
)
"""Of the broker, in user space: one record 7, 16 KB of 1 KB 9.5, 1 MB of 100 bytes 50 times."""


def missing_loops() -> list[str]:
    """The names of the modules that are not compiled here."""
    return [module.__name__ for module in MODULES if not module.COMPILED]
