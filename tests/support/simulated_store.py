"""An object store in memory that behaves as badly as a real one may, when a test says so.

The same protocol as `storage.remote.engine`. Faults are given by operation, in order, and each
counts once:

| fault     | what happens                                                             |
|-----------|--------------------------------------------------------------------------|
| REFUSED   | nothing is done, the caller gets an error                                |
| LOST      | it is done, the caller gets an error all the same                        |
| TWICE     | the library repeats it: it is done, the repetition meets its own result  |
| TORN      | of a PUT, the object has a wrong byte; of a GET, the answer              |
| SHORT     | of a PUT, the object lacks its end                                       |
| LATE      | the caller gets an error, and it is done before a later operation        |

Objects outlive a crash of the machine that wrote them: a test hands the same store to the next one.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum

from protocol.records.checksums import crc32c
from storage.disk.files import Bytes
from storage.errors import ObjectExists, ObjectMissing, StoreFailed
from storage.remote.object_store import StoredObject


class StoreFault(Enum):
    """What goes wrong with one operation."""

    REFUSED = "refused"
    LOST = "lost"
    TWICE = "twice"
    TORN = "torn"
    SHORT = "short"
    LATE = "late"


class SimulatedStore:
    """One bucket.

    Attributes:
        objects: content by name.
        operations: every request so far, as "PUT name" and so on.
        faults: what goes wrong with the next operations, by "PUT", "GET", "HEAD", "DELETE", "LIST".
        is_down: whether every request is refused.
        unlisted: names that no listing has yet.
        before: called before each operation with its name, for a crash there.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.operations: list[str] = []
        self.faults: dict[str, list[StoreFault | None]] = {}
        self.is_down = False
        self.unlisted: set[str] = set()
        self.now_ms = 1_000
        self.got_bytes = self.count_gets = 0
        self.before: Callable[[str], None] = lambda _: None
        self._modified_ms: dict[str, int] = {}
        self._late: list[tuple[str, str, bytes]] = []

    def count(self, kind: str) -> int:
        """How many requests of this kind were made."""
        return sum(one.startswith(f"{kind} ") for one in self.operations)

    @property
    def segments(self) -> dict[str, bytes]:
        """The objects of segments, without the bucket's journal."""
        return {key: data for key, data in self.objects.items() if key.endswith(".segment")}

    def begin_put(self, key: str, size: int) -> "SimulatedUpload":
        return SimulatedUpload(self, key, size)

    def put_new(self, key: str, *parts: Bytes) -> None:
        upload = self.begin_put(key, sum(map(len, parts)))
        for part in parts:
            upload.write(part)
        upload.finish()

    def get(self, key: str, start: int, end: int) -> bytes:
        fault = self._begin("GET", key)
        if key not in self.objects or end > len(self.objects[key]):
            raise ObjectMissing(f"GET {key}")
        data = self.objects[key][start:end]
        self.got_bytes += len(data)
        self.count_gets += 1
        if fault is StoreFault.TORN:
            # Not the byte that a torn PUT changes: two wrongs would make a right.
            return _torn(data[:1]) + data[1:]
        if fault is not None and fault is not StoreFault.TWICE:
            raise StoreFailed(f"GET {key}: the answer was lost")
        return data

    def crc32c_of(self, key: str, start: int, end: int, crc: int = 0) -> int:
        return crc32c(self.get(key, start, end), crc)

    def has(self, key: str, parts: Sequence[Bytes]) -> bool:
        size = self.size_of(key)
        try:
            return size is not None and self.get(key, 0, size) == b"".join(parts)
        except ObjectMissing:
            return False

    def get_all(self, wanted: Sequence[tuple[str, int]]) -> Sequence[bytes | None]:
        """One after the other, so that the same faults meet the same requests each time."""
        found: list[bytes | None] = []
        for key, size in wanted:
            try:
                found.append(self.get(key, 0, size))
            except ObjectMissing:
                found.append(None)
        return found

    def size_of(self, key: str) -> int | None:
        if self._begin("HEAD", key) is not None:
            raise StoreFailed(f"HEAD {key}: the answer was lost")
        return len(self.objects[key]) if key in self.objects else None

    def delete(self, key: str) -> None:
        fault = self._begin("DELETE", key)
        if fault is StoreFault.LATE:
            self._late.append(("DELETE", key, b""))
        else:
            self._remove(key)
        if fault is not None and fault is not StoreFault.TWICE:
            raise StoreFailed(f"DELETE {key}: the answer was lost")

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        if self._begin("LIST", prefix) is not None:
            raise StoreFailed(f"LIST {prefix}: the answer was lost")
        for key, data in list(self.objects.items()):
            # Like the real ones: a prefix ends with a part of the name.
            is_there = key.startswith(f"{prefix.rstrip('/')}/" if prefix else "")
            if is_there and key not in self.unlisted:
                yield StoredObject(key, len(data), self._modified_ms[key])

    def list_unfinished(self) -> Iterator[StoredObject]:
        return iter(())

    def create(self, key: str, data: bytes) -> None:
        """Put an object there, as a PUT does; an existing name is refused."""
        if key in self.objects:
            raise ObjectExists(f"PUT {key}: there is such an object")
        self.objects[key] = data
        self._modified_ms[key] = self.now_ms

    def copy(self, rng: random.Random) -> "SimulatedStore":
        """The store as another machine finds it; what is late has happened or has not."""
        other = SimulatedStore()
        other.objects, other._modified_ms = dict(self.objects), dict(self._modified_ms)
        other.now_ms = self.now_ms
        for kind, key, data in self._late:
            if rng.random() < 0.5:
                other._act(kind, key, data)
        return other

    def settle(self) -> None:
        """Do everything that was late."""
        late, self._late = self._late, []
        for kind, key, data in late:
            self._act(kind, key, data)

    def _act(self, kind: str, key: str, data: bytes) -> None:
        if kind == "DELETE":
            self._remove(key)
        else:
            # Late for an object under a condition: another one may have the name.
            with suppress(ObjectExists):
                self.create(key, data)

    def _remove(self, key: str) -> None:
        self.objects.pop(key, None)
        self._modified_ms.pop(key, None)

    def _begin(self, kind: str, key: str) -> StoreFault | None:
        self.before(kind)
        self.operations.append(f"{kind} {key}")
        if self._late and len(self.operations) % 2 == 0:
            self.settle()
        waiting = self.faults.get(kind)
        fault = waiting.pop(0) if waiting else None
        if self.is_down or fault is StoreFault.REFUSED:
            raise StoreFailed(f"{kind} {key}: the store does not answer")
        return fault


class SimulatedUpload:
    """One PUT; the bytes count at `finish`."""

    def __init__(self, store: SimulatedStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._parts: list[bytes] = []
        self.is_aborted = False

    def write(self, data: Bytes) -> None:
        self._parts.append(bytes(data))

    def finish(self) -> None:
        store, key = self._store, self._key
        fault = store._begin("PUT", key)
        data = b"".join(self._parts)
        assert len(data) == self._size, "an upload has the size that it was announced with"
        if fault is StoreFault.TORN:
            data = _torn(data)
        elif fault is StoreFault.SHORT:
            data = data[:-1]
        if fault is StoreFault.LATE:
            store._late.append(("PUT", key, data))
            raise StoreFailed(f"PUT {key}: no answer in time")
        store.create(key, data)
        if fault is StoreFault.TWICE:
            raise ObjectExists(f"PUT {key}: there is such an object")
        if fault is StoreFault.LOST:
            raise StoreFailed(f"PUT {key}: the answer was lost")

    def abort(self) -> None:
        self.is_aborted = True


def _torn(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
