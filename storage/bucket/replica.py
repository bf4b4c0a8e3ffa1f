"""Appends to a log that follows another one: batches keep their offsets, epochs and times.

The log of a standby has the same bytes at the same positions as that of the bucket's owner, as far
as the bucket has them. So its segments fit the objects that the owner uploads, and one of them may
take the place of the other. What is appended here is visible at once: it is in the bucket, and a
standby that loses it reads it there again.

Refuses to know where the bytes come from (`storage.bucket.follower`).
"""

from contextlib import suppress

from protocol.records.layout import MAGIC_V2
from protocol.records.scan import Stop, scan_checked
from storage.disk.files import Bytes
from storage.errors import ObjectDamaged, storage_failure
from storage.log.log import Log


class NotNext(Exception):
    """The bytes do not continue this log: it has to be made from the bucket once more."""


def append_followed(log: Log, data: Bytes, now_ms: int) -> int:
    """Append the whole batches in `data`, which begin at the end of `log`; their number of bytes.

    An unfinished batch at the end of `data` is left out. `now_ms` is noted as the time of the
    append.

    Raises:
        NotNext: they begin at another offset, or are of a format before magic 2.
        ObjectDamaged: a batch is damaged.
        DiskFull, StorageFailed, LogOffline: nothing was written.
    """
    if log.offline is not None:
        raise log.offline
    segment = log.segments.active
    found = scan_checked(data)
    if found.stop is Stop.CORRUPT:
        raise ObjectDamaged(
            f"the bucket has a damaged batch for byte {segment.size + found.end_position} of "
            f"{segment.log.path} (checksum)"
        )
    batches, end = found.entries, log.log_end_offset
    if not batches:
        return 0
    for batch in batches:
        if batch.magic != MAGIC_V2 or batch.base_offset != end:
            raise NotNext(f"{log.path}: offset {batch.base_offset}, not {end}")
        end = batch.next_offset
    if not segment.fits(end - 1):
        raise NotNext(f"{log.path}: offset {end - 1} is too far above {segment.base_offset}")
    size_before = segment.size
    taken = memoryview(data)[: found.end_position]
    try:
        segment.append(
            taken, batches, now_ms=now_ms, index_interval=log.config.index_interval_bytes
        )
    except OSError as error:
        log.append_failed(segment, size_before, error)
    log.log_end_offset = end
    if segment.offset_index.wants_writing:
        with suppress(OSError):
            segment.write_out()
    try:
        log.producers.update(taken, batches, segment)
    except OSError as error:
        log.go_offline(error)
    log.producers.state.map_end_offset = end
    log.show_end()
    return len(taken)


def follow_epochs(log: Log, epochs: list[list[int]]) -> None:
    """Note the leader epochs, each with its first offset, that are newer than those of `log`.

    Raises StorageFailed.
    """
    for epoch, offset in epochs:
        if epoch > log.leader_epochs.latest_epoch and offset <= log.log_end_offset:
            try:
                log.leader_epochs.assign(epoch, offset)
            except OSError as error:
                raise storage_failure("follow", log.path, error) from error
    log.leader_epoch = max(log.leader_epoch, log.leader_epochs.latest_epoch)
