"""The upload of closed segments, and the record of them in the manifest.

Owns the order that makes an object count:

    1 choose a name that was never used         base offset, leader epoch, random number
    2 PUT                                       log, indexes, description
    3 the answer is lost or "exists"            look: is an object of that size there?
    4 GET all of it, compare our CRC-32C        what the store has is what was read here
    5 a `remote` line in the manifest, synced   from here on the object counts

A crash before the fifth step leaves an object that no manifest names; `storage.audit.remote`
finds it. Only a segment whose line is synced may lose its local file (`storage.remote.local`).

A segment is uploaded when it is closed, durable with its indexes, and below the last stable offset;
of a compacted log, when it is clean. One that was rewritten later is uploaded once more.
The bytes are read, summed and sent in slices by another thread, as are requests and syncs: the
owner's thread only says what is next. A large segment is one slice and one part in memory.

Source: KIP-405 for what may be uploaded; the order is ours (docs/adr/0028).
"""

import errno
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from protocol.records.checksums import crc32c
from storage.disk.files import File
from storage.disk.reading import pinned
from storage.disk.steps import SLICE_BYTES, Steps, off_loop
from storage.errors import ObjectExists, StorageError, StoreFailed, storage_failure
from storage.log.log import Log
from storage.remote.object_store import ObjectStore, ObjectUpload
from storage.segment.facts import RemoteObject
from storage.segment.remote.object import describe, encode_trailer
from storage.segment.segment import Segment

VERIFY_BYTES: Final = 4 * SLICE_BYTES
"""Bytes of one GET while an upload is verified."""

_NONCE_BITS: Final = 64


class UploadStopped(StorageError):
    """The segment or the log went away during the upload."""


def next_to_upload(log: Log) -> Segment | None:
    """The oldest segment that is due for upload; None when there is none."""
    config = log.config
    if not config.remote_storage_enable or config.remote_log_copy_disable:
        return None
    if log.offline_reason is not None or log.changes.swap is not None:
        # The facts of a segment that is being swapped in are not in the manifest yet.
        return None
    segment = log.segments[log.segments.uploaded]
    if segment is log.segments.active:
        return None
    end, durable = segment.next_offset, log.durable_offset
    # When a record after it is durable, so are the files that its roll has left.
    is_synced = durable > end or (
        durable == end and not log.unsynced.is_dirty and log.unsynced.ticket is None
    )
    if not _is_clean(log, segment):
        return None
    # A start reads no object: without a snapshot it would not know the producers of this segment.
    # A roll continues without one when the disk refuses it; the next roll's covers both.
    has_snapshot = any(end == at or end < at < durable for at in log.producers.snapshots.offsets)
    is_due = (
        is_synced and has_snapshot and end <= log.last_stable_offset and segment.matches_manifest
    )
    return segment if is_due else None


def _is_clean(log: Log, segment: Segment) -> bool:
    """Whether compaction has been there: before that, the segment would soon be another one."""
    return not log.config.is_compacted or segment.next_offset <= log.cleaned_offset


def backlog_of(log: Log) -> tuple[int, int]:
    """Bytes of closed segments that wait for an object, and when the oldest one was appended to.

    While `remote.log.copy.disable` is set none waits.
    """
    if not log.config.remote_storage_enable or log.config.remote_log_copy_disable:
        return 0, 0
    segments = log.segments
    closed = (segments[number] for number in range(segments.uploaded, len(segments) - 1))
    waiting = [one for one in closed if one.remote is None and _is_clean(log, one)]
    if not waiting:
        return 0, 0
    return sum(segment.size for segment in waiting), waiting[0].appended_ms


def upload_segment(
    log: Log, segment: Segment, topic_id: bytes, store: ObjectStore, random: Random
) -> Steps[RemoteObject]:
    """Upload one segment and record it; returns its object.

    Raises:
        UploadStopped: the segment is gone; nothing counts.
        StoreFailed: the store failed, or has other bytes; nothing counts, the caller tries again.
        StorageFailed: a local file failed.
    """
    try:
        indexes, description = segment.index_files(), _describe(log, segment)
        trailer = encode_trailer(indexes, description, log_crc=0)
        where = RemoteObject(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            log_bytes=segment.size,
            object_bytes=segment.size + len(trailer),
            crc=0,
            epoch=log.leader_epoch,
            nonce=random.getrandbits(_NONCE_BITS),
            topic_id=int.from_bytes(topic_id, "big"),
            partition=log.partition,
        )
        upload = store.begin_put(where.key, where.object_bytes)
        is_finished = False
        try:
            crc = yield from _send(log, segment, upload)
            trailer = encode_trailer(indexes, description, log_crc=crc)
            yield from off_loop(partial(upload.write, trailer))
            where = replace(where, crc=crc32c(trailer, crc))
            yield from _finish(upload, store, where)
            is_finished = True
        finally:
            if not is_finished:
                upload.abort()
        yield from _verify(store, where)
        _check_there(log, segment)
        yield from record_object(log, segment, where)
    except OSError as error:
        raise storage_failure("upload", log.path, error) from error
    return where


def _describe(log: Log, segment: Segment) -> dict[str, Any]:
    epochs = [
        [entry.epoch, entry.start_offset]
        for entry in log.leader_epochs.entries
        if entry.start_offset < segment.next_offset
    ]
    return describe(segment.facts, topic=log.topic, epochs=epochs)


def _send(log: Log, segment: Segment, upload: ObjectUpload) -> Steps[int]:
    """Write the log to the upload; its CRC-32C."""
    crc = position = 0
    file = segment.log
    with pinned(file):
        while position < segment.size:
            _check_there(log, segment)
            sent, crc = yield from off_loop(partial(_send_slice, file, position, crc, upload))
            position += sent
    assert position == segment.size, f"{file.path}: {position} bytes were sent"
    return crc


def _send_slice(file: File, position: int, crc: int, upload: ObjectUpload) -> tuple[int, int]:
    """Send the bytes from `position` on; how many, and the CRC-32C up to their end.

    Raises OSError, also when another program has shortened the file.
    """
    data = file.pread(SLICE_BYTES, position)
    if not data:
        raise OSError(errno.EIO, f"the file has {position} bytes, of {file.size}", file.path)
    upload.write(data)
    return len(data), crc32c(data, crc)


def _finish(upload: ObjectUpload, store: ObjectStore, where: RemoteObject) -> Steps[None]:
    """End the upload; an answer that says nothing is settled by a look."""
    try:
        yield from off_loop(upload.finish)
    except StoreFailed as error:
        found = yield from off_loop(partial(store.size_of, where.key))
        if found != where.object_bytes:
            if isinstance(error, ObjectExists) and found is not None:
                raise StoreFailed(f"{where.key} is there with {found} bytes, not ours") from error
            raise


def _verify(store: ObjectStore, where: RemoteObject) -> Steps[None]:
    crc = 0
    for start in range(0, where.object_bytes, VERIFY_BYTES):
        end = min(start + VERIFY_BYTES, where.object_bytes)
        crc = yield from off_loop(partial(store.crc32c_of, where.key, start, end, crc))
    if crc != where.crc:
        raise StoreFailed(f"{where.key} has CRC-32C {crc:08x} in the store, {where.crc:08x} here")


def record_object(log: Log, segment: Segment, where: RemoteObject) -> Steps[None]:
    """Write the manifest's line and sync it; the segment then has its object.

    Raises UploadStopped, OSError.
    """
    manifest = log.manifest
    try:
        manifest.remember_remote(where)
        file = manifest.file
        if file is not None:
            mark, synced = file.begin_sync(), None
            try:
                yield from off_loop(file.sync)
                synced = mark
            except GeneratorExit:
                # The job ends here, and the line is in the file: the log's stop syncs it.
                log.unsynced.add_created(file)
                raise
            finally:
                file.end_sync(synced)
        yield from off_loop(log.changes.sync_names)
    except OSError:
        # Nothing counts. The line may be on disk all the same: the next attempt replaces it.
        if manifest.remote.get(where.base_offset) == where:
            del manifest.remote[where.base_offset]
        manifest.distrust()
        raise
    _check_there(log, segment)
    segment.remote = where


def _check_there(log: Log, segment: Segment) -> None:
    if log.offline_reason is not None or not log.segments.holds([segment]):
        raise UploadStopped(f"segment {segment.base_offset} of {log.path} is gone")
