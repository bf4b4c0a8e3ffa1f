"""Closed segments read from a bucket: parts of objects, their tasks, and the reading of one.

An object begins with the bytes of the `.log`, so a position in the log is one in the object. The
indexes follow. A task that reads an object in part fetches these first, and then no more of the log
than it has to. The next chunks are under way together while the last one is decoded.

`bucket` decides which objects are read. The driver may know an object that is gone when a task asks
for it: retention has deleted its records, or the owner has replaced it. What is not there is the
caller's to read from the broker, which answers as it does to a reader that has no bucket.

Credentials and endpoints come from the environment of each process, as for a broker.

Source: the format is `storage.segment.remote.object`'s.
"""

import contextlib
import functools
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pipeline.errors import BadOptions, CorruptData, StoreFailed
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.segments import (
    READ_BYTES,
    AbortedTransaction,
    index_entries,
    position_before,
    whole_batches,
)
from pipeline.plan.splits import OffsetRange, arrange
from pipeline.records.batches import DecodeRules, PartitionDecoder

if TYPE_CHECKING:
    from storage.remote.object_store import ObjectStore
    from storage.segment.remote.object import IndexFiles

_AHEAD: Final = 4
"""Chunks of an object that are asked for at once: a store takes long for one, not for several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPart:
    """The records of one object that a task reads: those of `wanted`.

    Attributes:
        cluster_id: below which name of the bucket the object is.
        key: its name there.
        base_offset: the offset that names the segment.
        next_offset: one above the last offset in it.
        log_bytes: size of the `.log`, the first part of the object.
        object_bytes: size of the whole object.
        aborted: the aborted transactions with records in `wanted`, for readers of committed ones.
    """

    wanted: OffsetRange
    cluster_id: str
    key: str
    base_offset: int
    next_offset: int
    log_bytes: int
    object_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()

    def narrowed(self, wanted: OffsetRange) -> "ObjectPart":
        """The part of it for `wanted`."""
        aborted = tuple(
            one for one in self.aborted if one[1] < wanted.end and one[2] >= wanted.start
        )
        return replace(self, wanted=wanted, aborted=aborted)


def object_tasks(
    options: SourceOptions, parts: Sequence[ObjectPart]
) -> list[tuple[ObjectPart, ...]]:
    """Tasks for `parts`, by the options and the sizes of the objects, as ranges get theirs."""
    by_partition: dict[TopicPartition, list[ObjectPart]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: part.wanted):
        by_partition[part.wanted.topic_partition].append(part)
    starts = {tp: [part.wanted.start for part in those] for tp, those in by_partition.items()}

    def estimate(_: Sequence[OffsetRange]) -> Mapping[TopicPartition, float]:
        return {
            tp: sum(part.log_bytes for part in those)
            / sum(part.next_offset - part.base_offset for part in those)
            for tp, those in by_partition.items()
        }

    def part_of(one: OffsetRange) -> ObjectPart:
        tp = one.topic_partition
        return by_partition[tp][bisect_right(starts[tp], one.start) - 1].narrowed(one)

    groups = arrange(options, [part.wanted for part in parts], estimate)
    return [tuple(map(part_of, group)) for group in groups]


def read_object(
    url: str, part: ObjectPart, rules: DecodeRules
) -> Generator[pa.RecordBatch, None, OffsetRange]:
    """Yield the records of `part`; return the rest of its range, which the bucket no longer has.

    Raises:
        CorruptData: the object contradicts itself.
        StoreFailed: the store did not answer, or refused.
    """
    wanted = part.wanted
    decoder = PartitionDecoder(wanted.topic, wanted.partition, wanted.start, wanted.end, rules)
    # Not with the decoder inside: what it raises is no answer of the store.
    chunks = _chunks(store_at(url, part.cluster_id), part)
    while not decoder.is_done:
        try:
            data = next(chunks, None)
        except FileNotFoundError:
            break
        if data is None:
            # All offsets after the last record are a gap.
            decoder.next_offset = wanted.end
            break
        # Transactions that ended before this chunk must not start again in it.
        yield from decoder.feed(
            data, [one[:2] for one in part.aborted if one[2] >= decoder.next_offset]
        )
    chunks.close()
    return OffsetRange(
        wanted.topic, wanted.partition, min(decoder.next_offset, wanted.end), wanted.end
    )


def read_indexes(store: "ObjectStore", part: ObjectPart) -> "IndexFiles":
    """The indexes of an object.

    Raises:
        FileNotFoundError: there is no such object any more.
        StoreFailed: the store did not answer, or refused, or has other bytes.
    """
    from storage.segment.remote.object import decode_trailer

    with answers(part.key):
        return decode_trailer(store.get(part.key, part.log_bytes, part.object_bytes))[0]


@functools.lru_cache(maxsize=16)
def store_at(url: str, cluster_id: str) -> "ObjectStore":
    """The objects of a cluster in the bucket at `url`, kept: it holds connections.

    Raises:
        BadOptions: it is no address of a bucket, or the library for stores is missing.
    """
    from storage.remote.engine import BadStoreUrl, open_store

    try:
        return open_store(url, cluster_id)
    except BadStoreUrl as error:
        raise BadOptions(f"option segments.remote: {error}") from error


@contextlib.contextmanager
def answers(what: str) -> Iterator[None]:
    """Raise the errors of a store as those of the pipeline.

    Raises FileNotFoundError where an object is not there.
    """
    from storage import errors

    try:
        yield
    except errors.ObjectMissing as error:
        raise FileNotFoundError(str(error)) from error
    except errors.StoreFailed as error:
        raise StoreFailed(f"option segments.remote: {what}: {error}") from error


def _chunks(store: "ObjectStore", part: ObjectPart) -> Generator[memoryview, None, None]:
    """The batches of `part`, a few MiB at a time; the next chunks are asked for meanwhile.

    Raises as `read_indexes`; CorruptData where the log ends in the middle of a batch.
    """
    start, end = _span(store, part)
    left = b""
    pool = ThreadPoolExecutor(_AHEAD)
    asked = (
        pool.submit(store.get, part.key, at, min(at + READ_BYTES, end))
        for at in range(start, end, READ_BYTES)
    )
    try:
        coming = deque(islice(asked, _AHEAD))
        while coming:
            with answers(part.key):
                data = left + coming.popleft().result()
            coming.extend(islice(asked, 1))
            used = whole_batches(data)
            if used:
                yield memoryview(data)[:used]
            left = data[used:]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if left:
        raise CorruptData(
            f"{part.wanted.topic}-{part.wanted.partition}: the log in {part.key} ends in the "
            f"middle of a batch, {len(left)} bytes before byte {end}"
        )


def _span(store: "ObjectStore", part: ObjectPart) -> tuple[int, int]:
    """The bytes of the log that hold all records of `part`, by the index if it is not all."""
    first = part.wanted.start - part.base_offset
    if first <= 0 and part.wanted.end >= part.next_offset:
        return 0, part.log_bytes
    entries = index_entries(read_indexes(store, part).offset_index)
    # The batch at the first of these has the last record, or one before it has.
    last = part.wanted.end - 1 - part.base_offset
    after = [at for offset, at in entries if offset >= last][1:]
    return position_before(entries, first), min(after, default=part.log_bytes)
