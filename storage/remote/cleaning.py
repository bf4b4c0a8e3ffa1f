"""What compaction needs of an object store: how far the bucket follows, and logs that only it has.

Owns the return of a segment's log from its object:

    1 GET the object in ranges, write the log beside the segment     `<base>.log.cleaned`
    2 compare the CRC-32C of the whole object, sync the file
    3 rename it to `<base>.log`

A crash before the third step leaves a file that the next start removes, one after it a segment
that has both, as before local retention. The round that has asked for the log drops it again, or
replaces the segment.

A log is compacted only below the end of what the bucket has of it (`storage.bucket.shipping`).
"""

from collections.abc import Callable
from functools import partial

from protocol.records.checksums import crc32c
from storage.disk.file_names import CLEANED_SUFFIX
from storage.disk.files import File
from storage.disk.steps import Steps, off_loop
from storage.errors import StoreFailed
from storage.log.log import Log
from storage.remote.object_store import ObjectStore
from storage.remote.upload import VERIFY_BYTES
from storage.segment.facts import RemoteObject
from storage.segment.remote.log import RemoteBytesNeeded
from storage.segment.scan import ensure_indexes
from storage.segment.segment import Segment
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredLogs:
    """The store, as `storage.log.compaction` uses it.

    Attributes:
        store: where the objects are.
        shipped_end: the bucket has all records of a log below this offset.
    """

    store: ObjectStore
    shipped_end: Callable[[Log], int]

    def bring_indexes(self, log: Log, segment: Segment) -> Steps[None]:
        """Make sure that the indexes of a remote segment are here. Raises StoreFailed, OSError."""
        interval = log.config.index_interval_bytes
        try:
            ensure_indexes(segment, index_interval=interval)
        except RemoteBytesNeeded as need:
            key = need.file.object.key
            data = yield from off_loop(partial(self.store.get, key, need.start, need.end))
            if segment.log is not need.file:
                return
            need.file.keep(need.start, data)
            try:
                ensure_indexes(segment, index_interval=interval)
            finally:
                need.file.forget(need.start)

    def bring_log(self, log: Log, segment: Segment) -> Steps[None]:
        """Make sure that the log of a segment is here.

        Raises:
            StoreFailed: the store failed, or has other bytes.
            OSError: the disk failed.
        """
        where = segment.remote
        if not segment.is_remote or where is None:
            return
        path = segment.log.path + CLEANED_SUFFIX
        if segment.files.exists(path):
            segment.files.unlink(path)
        file = segment.files.create(path)
        try:
            yield from self._fetch(where, file)
            mark = file.begin_sync()
            synced = None
            try:
                yield from off_loop(file.sync)
                synced = mark
            finally:
                file.end_sync(synced)
        except BaseException:
            file.close()
            if not log.is_closed:
                segment.files.unlink(path)
            raise
        file.close()
        if log.is_closed or not log.segments.holds([segment]):
            segment.files.unlink(path)
            return
        log.changes.adopt_local(segment, path)
        yield from off_loop(log.changes.sync_names)

    def _fetch(self, where: RemoteObject, file: File) -> Steps[None]:
        crc = 0
        for start in range(0, where.object_bytes, VERIFY_BYTES):
            end = min(start + VERIFY_BYTES, where.object_bytes)
            data = yield from off_loop(partial(self.store.get, where.key, start, end))
            crc = crc32c(data, crc)
            file.append(memoryview(data)[: max(0, where.log_bytes - start)])
        if crc != where.crc:
            raise StoreFailed(f"{where.key} has CRC-32C {crc:08x}, expected {where.crc:08x}")
