"""The un-synced changes that are left after a power cut.

Owns the two images of a simulated file or directory, *live* and *durable*, the list of changes
between them, and the choice of the changes that survive a power cut. Refuses to know operations,
faults and paths: that is `tests.support.simulated_disk`.

A seeded generator chooses the changes that survive:

| survival    | file contents                                          | names in directories     |
|-------------|--------------------------------------------------------|--------------------------|
| `KEPT`      | all changes (a killed process, the system lives)       | all                      |
| `LOST`      | none                                                   | none                     |
| `PREFIX`    | the first few, the next one up to a sector boundary    | the first few            |
| `TORN`      | each 512-byte sector of each write by itself           | each change by itself    |
| `ZEROED`    | the new length, but zeros where data had to come       | each change by itself    |
| `REORDERED` | each write by itself, holes read as zeros              | each change by itself    |
| `MIXED`     | one of these per file                                  | each change by itself    |

Invariant: what was synced survives, in every row.

Source: the failure models of ALICE and LazyFS. Read next: `tests.support.simulated_disk`.
"""

import enum
import random
from collections.abc import Iterator
from typing import Final

SECTOR_BYTES: Final = 512
"""The unit in which a medium writes: a power cut tears a write at its multiples."""


class Survival(enum.Enum):
    """The un-synced changes that survive a power cut; the module's table defines each value."""

    KEPT = "kept"
    LOST = "lost"
    PREFIX = "prefix"
    TORN = "torn"
    ZEROED = "zeroed"
    REORDERED = "reordered"
    MIXED = "mixed"


# A change of a file: position and bytes of a write, or the new length and None for a truncation.
Change = tuple[int, bytes | None]


class FileNode:
    """The contents of one file, apart from its names."""

    __slots__ = ("durable", "live", "modified_ms", "pending")

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        """A file whose content is on the medium."""
        self.live = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Change] = []
        self.modified_ms = modified_ms

    def change(self, change: Change) -> None:
        """Make the change visible to readers; the medium does not have it yet."""
        apply_change(self.live, change)
        self.pending.append(change)

    def sync(self, count: int) -> None:
        """Make the first `count` changes durable."""
        for change in self.pending[:count]:
            apply_change(self.durable, change)
        del self.pending[:count]


# A change of a directory: the names that go and the one that comes, as one step.
NameChange = tuple[str | None, str | None, "Node | None"]


class DirectoryNode:
    """The names in one directory."""

    __slots__ = ("durable", "live", "pending")

    def __init__(self) -> None:
        """An empty directory."""
        self.live: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        """Make the change visible to readers; the medium does not have it yet."""
        _rename(self.live, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Make all changes durable."""
        for change in self.pending:
            _rename(self.durable, change)
        self.pending.clear()


Node = FileNode | DirectoryNode


def apply_change(content: bytearray, change: Change) -> None:
    """Write or truncate in place; a gap before the position fills with zeros."""
    position, data = change
    gap = position - len(content)
    if gap > 0:
        content += bytes(gap)
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def _rename(names: "dict[str, Node]", change: NameChange) -> None:
    gone, come, node = change
    if gone is not None:
        names.pop(gone, None)
    if come is not None and node is not None:
        names[come] = node


def surviving_directory(
    node: DirectoryNode,
    rng: random.Random,
    survival: Survival,
    survivors: dict[int, FileNode],
) -> DirectoryNode:
    """A copy of the directory and all below it, as a power cut leaves it; all of it durable.

    `survivors` holds the files copied so far, by the identity of their originals.
    """
    names = dict(node.durable)
    for change in _surviving_names(node.pending, rng, survival):
        _rename(names, change)
    copy = DirectoryNode()
    for name, child in names.items():
        if isinstance(child, DirectoryNode):
            copy.live[name] = surviving_directory(child, rng, survival, survivors)
        else:
            # Two names of one file after half a rename are still one file.
            survivor = survivors.get(id(child))
            if survivor is None:
                survivor = FileNode(_surviving_content(child, rng, survival), child.modified_ms)
                survivors[id(child)] = survivor
            copy.live[name] = survivor
    copy.durable = dict(copy.live)
    return copy


def _surviving_names(
    pending: list[NameChange], rng: random.Random, survival: Survival
) -> list[NameChange]:
    if not pending or survival is Survival.KEPT:
        return pending
    if survival is Survival.LOST:
        return []
    if survival is Survival.PREFIX:
        return pending[: rng.randint(0, len(pending))]
    return [change for change in pending if rng.random() < 0.5]


_MIXTURE: Final = tuple(survival for survival in Survival if survival is not Survival.MIXED)


def _surviving_content(node: FileNode, rng: random.Random, survival: Survival) -> bytes:
    if not node.pending:
        return bytes(node.durable)
    if survival is Survival.MIXED:
        survival = rng.choice(_MIXTURE)
    content = bytearray(node.durable)
    for change in _surviving_changes(node.pending, rng, survival):
        apply_change(content, change)
    return bytes(content)


def _surviving_changes(
    pending: list[Change], rng: random.Random, survival: Survival
) -> Iterator[Change]:
    match survival:
        case Survival.KEPT:
            yield from pending
        case Survival.PREFIX:
            count = rng.randint(0, len(pending))
            yield from pending[:count]
            if count < len(pending):
                yield from list(_sectors(pending[count]))[: rng.randint(0, 3)]
        case Survival.TORN:
            for change in pending:
                yield from (sector for sector in _sectors(change) if rng.random() < 0.5)
        case Survival.ZEROED:
            for position, data in pending:
                yield position, None if data is None else bytes(len(data))
        case Survival.REORDERED:
            yield from (change for change in pending if rng.random() < 0.5)


def _sectors(change: Change) -> Iterator[Change]:
    """The change cut at sector boundaries of the file; a truncation is one piece."""
    position, data = change
    if data is None:
        yield change
        return
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
        yield position + start, data[start:end]
        start = end
