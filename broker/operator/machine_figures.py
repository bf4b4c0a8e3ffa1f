"""Figures of the machine and of the build, for the metrics port: values without a metrics library.

`disk_figures` looks at the file system of the data directory at each scrape, by one ``statvfs``.
"""

import math
import os
import resource
from functools import cache
from typing import NamedTuple

from broker.space import SpaceGuard
from protocol.records.record_loops import COMPILED
from values.version import VERSION


class Figure(NamedTuple):
    """One gauge without labels."""

    name: str
    help_text: str
    value: float


def disk_figures(space: SpaceGuard) -> list[Figure]:
    """The disk of the data directory, in bytes; nothing where the system does not report it."""
    try:
        found = space.look()
    except OSError:
        return []
    return [
        Figure(
            "tidelog_disk_size_bytes",
            "Size of the file system of the data directory",
            found.size,
        ),
        Figure(
            "tidelog_disk_free_bytes",
            "What the broker's user may still write there",
            found.free,
        ),
        Figure(
            "tidelog_disk_appendable_bytes",
            "What clients may append before log.reserved.bytes begins; at 0 they are refused",
            max(found.appendable, 0),
        ),
    ]


def file_figures() -> list[Figure]:
    """How many files and sockets this process has open and may open; what the system says."""
    limit: float = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = math.inf
    found = [Figure("process_max_fds", "Files and sockets that may be open at once", limit)]
    try:
        is_open = len(os.listdir("/dev/fd")) - 1  # the listing itself was one
    except OSError:
        return found
    return [Figure("process_open_fds", "Files and sockets that are open", is_open), *found]


@cache
def build_facts() -> dict[str, str]:
    """Labels of ``tidelog_build_info``; they do not change while the process runs."""
    import platform  # not with a start: the first scrape alone asks

    return {
        "version": VERSION,
        "python": platform.python_version(),
        "loops": "compiled" if COMPILED else "python",
    }


def resident_bytes() -> int:
    """Resident memory of this process, 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
