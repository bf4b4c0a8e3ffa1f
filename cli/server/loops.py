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
from protocol import extensions
from protocol.records import encode_loops, entry_loops, record_loops
from storage.append import plain
from storage.disk import file_end
from storage.log import lane, reader
from storage.segment import feed

MODULES: Final[tuple[ModuleType, ...]] = (
    record_loops,
    entry_loops,
    encode_loops,
    file_end,
    plain,
    feed,
    reader,
    lane,
    request_fields,
    produce_lane,
    fetch_lane,
    receive,
    connection,
    lane_connection,
)

SLOWER: Final = f"{extensions.SLOWER} (tidelog docs install)"


def missing_loops() -> list[str]:
    """The names of the modules that are not compiled here."""
    return [module.__name__ for module in MODULES if not module.COMPILED]
