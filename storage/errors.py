"""Every error that storage raises on purpose, as typed exceptions.

Owns the `StorageError` family. Three branches, because callers treat them in three ways:

* `AppendRejected`: the batch is at fault. Nothing was written, and the log continues to work.
* `StorageFailed`: the machine is at fault (disk full, I/O error, a file whose content has changed).
  `LogOffline` is the final form of it: the log serves no request until it is opened again.
* `DataDirError`: the broker must not start on this directory; one sentence gives cause and remedy.

Refuses to know protocol error codes: the broker owns one total table from these classes to codes.

Every exception carries its facts as attributes. Messages are built from them in the order what,
where, expected, found, cure. No record payload ever gets into a message.

Source: the error table of Kafka's produce path (`LogValidator`, `UnifiedLog`); the split by
treatment is ours.
"""

import errno
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from values.dataclasses import dataclass

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class StorageError(Exception):
    """Base of everything that this package raises on purpose."""


# --- requests that cannot be served -------------------------------------------------------------


class OffsetOutOfRange(StorageError):
    """The offset lies outside of what the log holds or may show."""

    def __init__(self, offset: int, *, start: int, end: int) -> None:
        """Remember the requested offset and the range `[start, end]` that the log can serve."""
        super().__init__(f"offset {offset} is out of range: the log holds {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class PolicyViolation(StorageError):
    """The topic's configuration forbids the operation."""


class WindowTooLarge(StorageError):
    """A search by time in a window examined the bytes that one request may cost."""

    def __init__(self, topic: str, partition: int, examined_bytes: int) -> None:
        """Name the partition and the limit."""
        super().__init__(
            f"{topic}-{partition}: {examined_bytes} bytes were examined without a result; "
            "read the window from its start instead"
        )


class TooMuchAtOnce(Exception):
    """Not an error: the work is allowed, but not in the thread that serves all requests."""


# --- the batch is at fault ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordError:
    """Why one record caused the refusal of its batch; `batch_index` counts records from 0."""

    batch_index: int
    message: str | None = None


class AppendRejected(StorageError):
    """The records were not appended, and no byte of the log has changed.

    `record_errors` lists every offending record when the cause lies in single records; it is empty
    when the batch as a whole is wrong.
    """

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        """Remember the sentence for the client and the records at fault."""
        super().__init__(message)
        self.message = message
        self.record_errors = tuple(record_errors)


class InvalidTimestamp(AppendRejected):
    """A record's timestamp is outside of the topic's bounds, or of a type that it may not have."""


class InvalidRecord(AppendRejected):
    """The batch, or a record in it, breaks a rule of its format or of the topic."""


class CorruptBatch(AppendRejected):
    """The bytes disagree with their checksum or with their own lengths."""


class MessageTooLarge(AppendRejected):
    """A batch is larger than `max.message.bytes`."""


class RecordListTooLarge(AppendRejected):
    """The records of one append do not fit into one segment (`segment.bytes`)."""


class UnsupportedCompressionType(AppendRejected):
    """The codec is unknown, or may not be used at this request version or message format."""


class UnstorableTimestamp(AppendRejected):
    """A timestamp below -1 met a path that rewrites records, which has no way to store it."""


class ProducerStateError(AppendRejected):
    """The batch's producer fields do not continue what the log knows of the producer."""


class OutOfOrderSequence(ProducerStateError):
    """The first sequence number is not the one after the last that was appended."""


class DuplicateSequence(ProducerStateError):
    """The sequence was appended before, but too long ago for its offset to be known."""


class InvalidProducerEpoch(ProducerStateError):
    """The producer's epoch is older than the newest one seen: another instance has replaced it."""


class InvalidTxnState(ProducerStateError):
    """The batch is transactional where none may be, or the reverse."""


class TransactionCoordinatorFenced(ProducerStateError):
    """A marker comes from a coordinator older than the last one that wrote a marker."""


# --- the machine is at fault --------------------------------------------------------------------


class StorageFailed(StorageError):
    """A file operation failed; `path` and `operation` say where, `__cause__` is the OS error."""

    def __init__(self, operation: str, path: str, reason: str) -> None:
        """Remember what was tried on which file, and what the system returned."""
        super().__init__(f"{operation} failed on {path}: {reason}")
        self.operation = operation
        self.path = path
        self.reason = reason


class DiskFull(StorageFailed):
    """No space was left. Nothing was appended; the log resumes by itself once there is space."""


class CorruptLog(StorageFailed):
    """Committed data differs from what was written: found while reading, not repaired."""

    def __init__(self, path: str, *, position: int, expected: str, found: str) -> None:
        """Remember the file, the byte position in it, and what disagreed."""
        super().__init__("read", path, f"at byte {position} expected {expected}, found {found}")
        self.position = position
        self.expected = expected
        self.found = found


class LogOffline(StorageFailed):
    """The log stopped for good after an error that may not be retried (a failed fsync, mostly)."""

    def __init__(self, path: str, reason: str) -> None:
        """Remember the partition directory and the first error."""
        super().__init__("log is offline, every operation", path, reason)


class QuarantineKind(StrEnum):
    """Why a log was opened read-only or not at all; the value is a label of a metric."""

    DAMAGED = "damaged"
    """Bytes differ from what was written."""

    LOST = "lost"
    """Files, or the ends of files, are gone."""

    UNREADABLE = "unreadable"
    """The directory could not be opened at all."""


class LogQuarantined(LogOffline):
    """Durable data of the log is corrupt or gone; the offsets before it can still be read."""

    def __init__(
        self,
        path: str,
        *,
        good_until: int,
        reason: str,
        kind: QuarantineKind,
        durable_end: int = 0,
        is_tiered: bool = False,
    ) -> None:
        """Remember the offset (exclusive) up to which the log can be read.

        Offsets below `durable_end` were durable. The cure is part of the sentence: for a loss, the
        command that accepts it. A bucket may have what is gone of a log that `is_tiered`.
        """
        data_dir, _, name = path.rpartition("/")
        bucket = ", or make a new directory from the bucket (tidelog restore)" if is_tiered else ""
        cure = (
            "stop the broker, make the directory readable, start it again"
            if kind is QuarantineKind.UNREADABLE
            else f"stop the broker, then restore what is gone from a copy{bucket}, or give it up "
            f"with: tidelog fsck --accept-loss {name} {data_dir}"
        )
        rest = f"offsets below {good_until} can still be read" if good_until else "none can be read"
        super().__init__(path, f"{reason}; {rest}; {cure}")
        self.good_until = good_until
        self.durable_end = durable_end
        self.kind = kind


class StoreFailed(StorageError):
    """The object store did not do what it was asked: out of reach, too slow, or it refused."""


class ObjectExists(StoreFailed):
    """An object of that name is there already; look whose it is."""


class ObjectMissing(StoreFailed):
    """There is no object of that name, or it ends before the range that was asked for."""


class ObjectDamaged(StoreFailed):
    """An object has other bytes than were written."""


class DirectoryOlder(StorageError):
    """The bucket has records that this data directory lacks: it must not write there."""


class BucketEmptied(StoreFailed):
    """The bucket lacks what this data directory has put there; nothing is written there."""

    def __init__(self, key: str) -> None:
        """Remember an object that is missing."""
        super().__init__(
            f"the bucket has no {key}, which was there: it was emptied or created again, or "
            "remote.storage.url names another one. Nothing is uploaded or deleted, and local "
            "copies stay, until its objects are back; else correct remote.storage.url, and start "
            "again. tidelog restore and tidelog fsck --remote say if it is a hole in the journal, "
            "and what to bring back"
        )


class JournalDamaged(StoreFailed):
    """The journal of a bucket goes on after an object that cannot be read."""

    def __init__(self, damage: str, state: Any, entry: int | None = None) -> None:
        """Remember a clause about the object, which is an `entry` or none, and the map before it.

        `state` is a `storage.bucket.map.BucketState`.
        """
        super().__init__(f"the journal of the bucket cannot be read to its end: {damage}")
        self.damage = damage
        self.state = state
        self.entry = entry


class Fenced(StoreFailed):
    """Another broker has taken the bucket over; this one must not write to it any more."""

    def __init__(self, owner: str, epoch: int) -> None:
        """Remember the owner, by the id of its data directory, and its epoch."""
        super().__init__(
            f"the broker of data directory {owner} has taken the bucket over (epoch {epoch}); stop "
            "this one, and start it again on a directory of tidelog restore"
        )
        self.owner = owner
        self.epoch = epoch


class LeaseOver(StoreFailed):
    """The owner of a bucket could not renew its lease; it accepts nothing until it has."""

    def __init__(self, lease_ms: int) -> None:
        """Name the setting."""
        super().__init__(
            f"no entry of this broker came into the bucket within remote.lease.ms={lease_ms}: "
            "another one may take the bucket over; retry, appends continue when the store has "
            "answered"
        )


class FollowsBucket(StorageError):
    """The log follows a bucket, whose owner is another broker: nothing may be appended here."""

    def __init__(self) -> None:
        """Name the cure; it is the same for all logs and changes of a standby."""
        super().__init__(
            "this broker is a standby, which only reads what its bucket has; write to the broker "
            "that owns the bucket, or let this one take over: tidelog promote"
        )


class UnknownBucketFormat(StoreFailed):
    """A newer program has written to the bucket."""

    def __init__(self, found: object, known: int) -> None:
        """Remember both versions."""
        super().__init__(
            f"the bucket has format {found}, and this program knows {known}; use the newer program "
            "that wrote it"
        )


def storage_failure(operation: str, path: str, error: OSError) -> StorageFailed:
    """The typed error for a failed file operation: `DiskFull` when the disk has no space left."""
    failure = DiskFull if error.errno in _NO_SPACE else StorageFailed
    return failure(operation, path, str(error))


# --- the directory is at fault ------------------------------------------------------------------


class DataDirError(StorageError):
    """The broker cannot start on this data directory.

    The message is one sentence: what is wrong, where, what was found and what helps.
    """

    def __init__(self, what: str, *, path: str, found: str = "", cure: str = "") -> None:
        """Remember the parts and join those that are not empty."""
        text = f"{what}: {path}"
        if found:
            text += f" ({found})"
        if cure:
            text += f"; {cure}"
        super().__init__(text)
        self.what = what
        self.path = path
        self.found = found
        self.cure = cure


class DataDirLocked(DataDirError):
    """Another process is using the directory."""


class DataDirNotWritable(DataDirError):
    """The directory cannot be created, or files in it cannot be created and synced."""


class ForeignDataDir(DataDirError):
    """The directory belongs to another cluster or node, or its format is newer than this code."""


class HalfWrittenDataDir(DataDirError):
    """A file that the directory cannot do without is missing, cut short or contradicts another."""
