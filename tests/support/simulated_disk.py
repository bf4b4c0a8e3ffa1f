"""A disk in memory that loses, tears and reorders un-synced changes.

Owns a tree of directories and files with two images each: *live*, which every reader sees, and
*durable*, which survives a power cut; between them is the list of changes that are not durable yet.
It implements `storage.disk.files.Files`, so the storage engine runs on it unchanged. It promises no
more than the contract in `storage.disk.files`: a file's data is durable after `sync` of the file,
its name after `sync_directory` of the directory, nothing sooner.

`power_cut` returns another disk: one state that the first could be in after the power came back,
drawn from a seed. `tests.support.power_loss` defines which changes can survive, and how.

Every operation that can fail is counted. `before_operation` is called first, so a test can check
every crash state of one run; `Fault` makes one operation fail, once or from then on. A failed sync
of a file behaves as on Linux: the changes count as clean afterwards, the next sync succeeds without
them, and readers see bytes that the medium never got. A failed sync of a directory by itself loses
nothing. Names are in the file system's journal, which either writes them or stops for good.

The same seed gives the same disk. Single-threaded. Nothing in production imports this.

Source: for failed syncs, "Can Applications Recover from fsync Failures?" (ATC '20).
Read next: `tests.support.power_loss`, `docs/crash-safety.md`.
"""

import enum
import errno
import functools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from storage.disk.files import TEMPORARY_SUFFIX, Bytes, File
from tests.support.power_loss import (
    DirectoryNode,
    FileNode,
    Node,
    Survival,
    apply_change,
    surviving_directory,
)

DEFAULT_FREE_BYTES: Final = 2**40
DEFAULT_NOW_MS: Final = 1_700_000_000_000


class Operation(enum.StrEnum):
    """The kinds of operation that are counted and can be made to fail."""

    CREATE = "create"
    OPEN = "open"
    APPEND = "append"
    READ = "read"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SYNC_DIRECTORY = "sync_directory"
    LIST = "list"
    MAKE_DIRECTORY = "make_directory"
    RENAME = "rename"
    UNLINK = "unlink"
    LOCK = "lock"


CHANGES: Final = frozenset(Operation) - {Operation.OPEN, Operation.READ, Operation.LIST}
"""The kinds that can change the state; a crash between two others shows nothing new."""


class PowerCut(BaseException):
    """The machine stopped here. Not an `Exception`: no handler in the engine may swallow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One operation that fails.

    `at` counts operations of `kinds` from 0. With `for_ever`, all of them from there on fail. An
    append that fails with `short_write` has written half of its bytes.
    """

    at: int
    errno: int = errno.EIO
    for_ever: bool = False
    short_write: bool = False
    kinds: frozenset[Operation] = CHANGES


class SimulatedDisk:
    """A file system in memory; see `storage.disk.files.Files` for the contract of its methods.

    `operations` counts the operations, `counts` those of each kind. `modified_ms` of a file is the
    value of `now_ms` when it was changed.
    """

    def __init__(self, *, fault: Fault | None = None) -> None:
        """An empty disk with a root directory, on which at most one `fault` happens."""
        self.fault = fault
        self.before_operation: Callable[[Operation, str], None] | None = None
        self.free = DEFAULT_FREE_BYTES
        self.now_ms = DEFAULT_NOW_MS
        self.operations = 0
        self.counts: dict[Operation, int] = dict.fromkeys(Operation, 0)
        self.faults_raised = 0
        self._root = DirectoryNode()
        self._locks: set[str] = set()
        self._eligible = 0

    # --- Files ----------------------------------------------------------------------------------

    def create(self, path: str) -> "SimulatedFile":
        """See `Files.create`."""
        self._count(Operation.CREATE, path)
        parent, name = self._parent(path)
        if name in parent.live:
            raise _os_error(errno.EEXIST, path)
        node = FileNode(modified_ms=self.now_ms)
        parent.change((None, name, node))
        return SimulatedFile(self, path, node)

    def open(self, path: str) -> "SimulatedFile":
        """See `Files.open`."""
        self._count(Operation.OPEN, path)
        return SimulatedFile(self, path, self._file(path))

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """See `Files.is_directory`."""
        return isinstance(self._find(path), DirectoryNode)

    def size(self, path: str) -> int:
        """See `Files.size`."""
        return len(self._file(path).live)

    def modified_ms(self, path: str) -> int:
        """See `Files.modified_ms`."""
        return self._file(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        """See `Files.list_directory`."""
        self._count(Operation.LIST, path)
        return sorted(self._directory(path).live)

    def make_directory(self, path: str) -> None:
        """See `Files.make_directory`."""
        node = self._root
        for name in _parts(path):
            child = node.live.get(name)
            if child is None:
                self._count(Operation.MAKE_DIRECTORY, path)
                child = DirectoryNode()
                node.change((None, name, child))
            if isinstance(child, FileNode):
                raise _os_error(errno.EEXIST, path)
            node = child

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        self._count(Operation.RENAME, source)
        parent, name = self._parent(source)
        target_parent, target_name = self._parent(target)
        node = parent.live.get(name)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        replaced = target_parent.live.get(target_name)
        if isinstance(replaced, DirectoryNode) and replaced.live:
            raise _os_error(errno.ENOTEMPTY, target)
        if parent is target_parent:
            parent.change((name, target_name, node))
        else:
            target_parent.change((None, target_name, node))
            parent.change((name, None, None))

    def rename_open(self, file: File, target: str) -> None:
        """See `Files.rename_open`."""
        assert isinstance(file, SimulatedFile)
        self.rename(file.path, target)
        file.path = target

    def unlink(self, path: str) -> None:
        """See `Files.unlink`."""
        self._count(Operation.UNLINK, path)
        self._file(path)
        parent, name = self._parent(path)
        parent.change((name, None, None))

    def remove_tree(self, path: str) -> None:
        """See `Files.remove_tree`; one operation for every name that goes."""
        node = self._find(path)
        if node is None:
            return
        if not isinstance(node, DirectoryNode):
            self.unlink(path)
            return
        for name, child in list(node.live.items()):
            if isinstance(child, DirectoryNode):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self._count(Operation.UNLINK, path)
        parent, name = self._parent(path)
        parent.change((name, None, None))

    def sync_directory(self, path: str) -> None:
        """See `Files.sync_directory`."""
        directory = self._directory(path)
        self._count(Operation.SYNC_DIRECTORY, path)
        directory.sync()

    def read_all(self, path: str) -> bytes:
        """See `Files.read_all`."""
        self._count(Operation.READ, path)
        return bytes(self._file(path).live)

    def replace_atomically(self, path: str, data: Bytes) -> None:
        """See `Files.replace_atomically`; the same five steps as on a real disk."""
        aside = path + TEMPORARY_SUFFIX
        self._count(Operation.CREATE, aside)
        parent, name = self._parent(aside)
        node = parent.live.get(name)
        if isinstance(node, FileNode):
            node.change((0, None))
        else:
            node = FileNode(modified_ms=self.now_ms)
            parent.change((None, name, node))
        file = SimulatedFile(self, aside, node)
        file.append(data)
        file.begin_sync()
        file.sync()
        self.rename(aside, path)
        self.sync_directory(os.path.dirname(path))

    def lock(self, path: str) -> "SimulatedLock":
        """See `Files.lock`."""
        self._count(Operation.LOCK, path)
        parent, name = self._parent(path)
        if name not in parent.live:
            parent.change((None, name, FileNode(modified_ms=self.now_ms)))
        if path in self._locks:
            raise _os_error(errno.EWOULDBLOCK, path)
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    # --- crashes and damage ---------------------------------------------------------------------

    def power_cut(self, seed: int, survival: Survival) -> "SimulatedDisk":
        """A disk as this one might be found after a power cut now; this one is unchanged.

        Everything on the new disk is durable, no lock is held and no fault is planned.
        """
        disk = SimulatedDisk()
        disk.now_ms = self.now_ms
        survivors: dict[int, FileNode] = {}
        rng = random.Random(seed)
        disk._root = surviving_directory(self._root, rng, survival, survivors)
        return disk

    def tree(self) -> dict[str, bytes]:
        """Every file by path with its live content, for the comparison of two disks."""
        return {path: bytes(node.live) for path, node in _walk(self._root, "")}

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change bytes silently, on the medium too: bit rot."""
        node = self._file(path)
        apply_change(node.live, (position, data))
        apply_change(node.durable, (position, data))

    # --- internals ------------------------------------------------------------------------------

    def _count(self, operation: Operation, path: str) -> None:
        if self.before_operation is not None:
            self.before_operation(operation, path)
        self.operations += 1
        self.counts[operation] += 1
        fault = self.fault
        if fault is None or operation not in fault.kinds:
            return
        number = self._eligible
        self._eligible += 1
        if number == fault.at or (fault.for_ever and number > fault.at):
            self.faults_raised += 1
            raise _os_error(fault.errno, path)

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _parts(path):
            if not isinstance(node, DirectoryNode):
                return None
            child = node.live.get(name)
            if child is None:
                return None
            node = child
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, DirectoryNode):
            raise _os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, FileNode):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        directory, _, name = path.rpartition("/")
        return self._directory(directory), name


class SimulatedFile:
    """A file of a `SimulatedDisk`; see `storage.disk.files.File` for the contract."""

    __slots__ = ("_disk", "_is_closed", "_is_closing", "_marked", "_node", "_pins", "path", "size")

    def __init__(self, disk: SimulatedDisk, path: str, node: FileNode) -> None:
        """A handle on the node; any number of handles may share one."""
        self.path = path
        self.size = len(node.live)
        self._disk = disk
        self._node = node
        self._marked = 0
        self._pins = 0
        self._is_closed = self._is_closing = False

    def append(self, data: Bytes) -> None:
        """See `File.append`."""
        content = bytes(data)
        try:
            self._disk._count(Operation.APPEND, self.path)
        except OSError:
            fault = self._disk.fault
            if fault is not None and fault.short_write:
                self._node.change((self.size, content[: len(content) // 2]))
            raise
        self._node.change((self.size, content))
        self._node.modified_ms = self._disk.now_ms
        self.size += len(content)

    def pread(self, size: int, position: int) -> bytes:
        """See `File.pread`."""
        self._disk._count(Operation.READ, self.path)
        if size < 0 or position < 0:
            raise OSError(errno.EINVAL, "Invalid argument", self.path)
        return bytes(self._node.live[position : position + size])

    def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        self._disk._count(Operation.TRUNCATE, self.path)
        self._node.change((size, None))
        self._node.modified_ms = self._disk.now_ms
        self.size = size

    def pin(self) -> None:
        """See `File.pin`. A closed file is opened again, by its name."""
        if self._is_closed:
            self._disk._file(self.path)
            self._is_closed = False
        self._pins += 1

    def unpin(self) -> None:
        """See `File.unpin`."""
        assert self._pins > 0, f"{self.path} is not pinned"
        self._pins -= 1
        if self._is_closing:
            self.close()

    def begin_sync(self) -> int:
        """See `File.begin_sync`. A closed file is opened again, by its name."""
        if self._is_closed:
            self._disk._file(self.path)
            self._is_closed = False
        self._marked = len(self._node.pending)
        return self._marked

    def sync(self) -> None:
        """See `File.sync`. A failure drops the changes from what a later sync would write."""
        node = self._node
        try:
            self._disk._count(Operation.SYNC, self.path)
        except OSError:
            del node.pending[: self._marked]
            raise
        node.sync(self._marked)

    def end_sync(self, mark: int | None) -> None:
        """See `File.end_sync`."""
        self._marked = 0

    def close(self) -> None:
        """See `File.close`."""
        self._is_closing = self._pins > 0
        self._is_closed = not self._is_closing


class SimulatedLock:
    """A lock on a path of a `SimulatedDisk`; a power cut does not carry it over."""

    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        """Keep the set that contains the path while it is locked."""
        self._locks = locks
        self._path = path

    def release(self) -> None:
        """See `Lock.release`."""
        self._locks.discard(self._path)


def _walk(directory: DirectoryNode, path: str) -> "Iterator[tuple[str, FileNode]]":
    for name, node in sorted(directory.live.items()):
        if isinstance(node, DirectoryNode):
            yield from _walk(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node


@functools.lru_cache(maxsize=10_000)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
