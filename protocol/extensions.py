"""The compiled modules are all loaded as extensions, or all from their sources.

They share structs and functions of C, so an extension beside an uncompiled neighbour cannot be
imported: one would ask the other for functions that only C knows. A build makes all of them or
none, but an interrupted copy or a pulled commit with a new module leaves a mix. Each package that
holds such modules calls `all_or_none` before one of them is imported.
"""

import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from os.path import dirname, exists, join
from typing import Final

PATHS: Final = (
    "protocol/records/record_loops",
    "protocol/records/entry_loops",
    "protocol/records/encode_loops",
    "pipeline/records/arrow_loops",
    "storage/disk/file_end",
    "storage/append/plain",
    "storage/segment/facts",
    "storage/segment/feed",
    "storage/log/reader",
    "storage/log/lane",
    "broker/net/request_fields",
    "broker/net/produce_lane",
    "broker/net/fetch_lane",
    "broker/net/receive",
    "broker/net/connection",
    "broker/net/lane_connection",
)
"""Of the modules, in the order in which they are built: each imports only those before it in C."""

SLOWER: Final = "a Produce executes 7 to 50 times the instructions, a Fetch 5 to 7 times"
"""What plain Python costs the broker, in user space: a Produce of one record 7 times, 16 KB of 1 KB
9.5, 1 MB of 100 bytes 50 times, a Fetch of 17 KB 5 and of 1 MB 7.3 times (`python -m
benchmarks.instructions`). `setup.py` says it too."""


class _Sources:
    """Finds the sources of the modules, whatever extension lies beside them."""

    def __init__(self, sources: dict[str, str]) -> None:
        """Find `sources`, paths by the names of modules."""
        self._sources = sources

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        source = self._sources.get(name)
        return None if source is None else spec_from_file_location(name, source)


@cache
def all_or_none() -> None:
    """Let all modules run from their sources unless each has its extension."""
    prefix = __name__.rpartition("protocol.")[0]  # empty in the checkout
    root = dirname(dirname(__file__))
    places = [join(root, path) for path in PATHS]
    count = sum(exists(place + EXTENSION_SUFFIXES[0]) for place in places)
    if 0 < count < len(places):
        names = [prefix + path.replace("/", ".") for path in PATHS]
        sources = [f"{place}.py" for place in places]
        sys.meta_path.insert(0, _Sources(dict(zip(names, sources, strict=True))))
