"""The seam between storage and an object store: every request to a bucket goes through here.

Owns the protocol that the rest of the package is written against. `storage.remote.engine` is the
production implementation, `tests/support/simulated_store.py` one that drops, tears, delays and
answers twice. What a method promises:

| operation         | after its return                                                        |
|-------------------|-------------------------------------------------------------------------|
| `put`, `finish`   | the object exists whole, and every later request finds it               |
| a raised error    | nothing is known: the store may have done it, may do it later, or never |
| `delete`          | the object is gone, or was never there                                  |

No object changes: a name is written once. All methods block for a network; they run in threads
that do nothing else, take their own deadline, and raise `StoreFailed`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from storage.disk.files import Bytes


class StoredObject(NamedTuple):
    """One object in a listing; `modified_ms` is the store's clock at its creation."""

    key: str
    size: int
    modified_ms: int


class ObjectUpload(Protocol):
    """One object on its way; not there before `finish` has returned. One thread at a time."""

    def write(self, data: Bytes) -> None:
        """Add the next bytes. They stay as they are: they may be sent after the return."""

    def finish(self) -> None:
        """Create the object from what was written. Raises ObjectExists when the name is taken."""

    def abort(self) -> None:
        """Give it up; parts that the store has already are removed as far as it answers."""


class ObjectStore(Protocol):
    """A store, from which this cluster sees its own prefix. Any thread may call it."""

    def begin_put(self, key: str, size: int) -> ObjectUpload:
        """Begin an object of `size` bytes."""

    def put_new(self, key: str, *parts: Bytes) -> None:
        """Create an object from its parts, in one request. Raises ObjectExists if there is one."""

    def get(self, key: str, start: int, end: int) -> bytes:
        """The bytes `[start, end)` of an object. Raises ObjectMissing."""

    def crc32c_of(self, key: str, start: int, end: int, crc: int = 0) -> int:
        """The CRC-32C of the bytes `[start, end)`, which continues `crc`. Raises ObjectMissing.

        As `get`, for those who need no more of the bytes: nothing is copied.
        """

    def has(self, key: str, parts: Sequence[Bytes]) -> bool:
        """Whether there is such an object, and its bytes are exactly those of the parts."""

    def get_all(self, wanted: Sequence[tuple[str, int]]) -> Sequence[bytes | None]:
        """The whole of each object, given with its size; None for one that is missing.

        Several requests are under way at once, and all contents are in memory on return.
        """

    def size_of(self, key: str) -> int | None:
        """Size of the object, or None when there is none."""

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there counts as removed."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose names begin with `prefix`, in any order."""

    def list_unfinished(self) -> Iterator[StoredObject]:
        """What broken uploads have left beside the objects, under names that `delete` takes.

        A folder has them; the parts of an upload to a bucket expire by the bucket's own rules.
        """
