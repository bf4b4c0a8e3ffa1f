"""The plan of an append: `plan_append` checks and stamps incoming records, purely.

Owns the decision of KIP-32: which records may enter a log, with which timestamps, in which bytes.
It writes nothing to a file and keeps no state; offsets, clock and rules go in, an `AppendPlan` or
an exception comes out. Refuses to know producers' sequences (`storage.producers.state`), segments
(`storage.log.log`) and Kafka's numeric codes.

Invariant: an append is all or nothing. The bytes of a finished plan are sound: every CRC correct,
offsets contiguous from `next_offset`, every header's max timestamp the true one. A refused append
leaves the caller's buffer unchanged.

The checks run in Kafka's order, so the same records meet the same error:

1. Produce v3 and up: exactly one entry, of magic 2 (InvalidRecord); zstd needs Produce v7
   (UnsupportedCompressionType).
2. Per entry: a client's base offset is 0 (InvalidRecord), the size (MessageTooLarge), the CRC
   (CorruptBatch).
3. One entry if compressed or magic 2, one magic, counts that agree, no control batch from a client
   (InvalidRecord).
4. Records: structure and keys (InvalidRecord), timestamps (InvalidTimestamp); every bad record is
   listed, and one bad timestamp decides for the whole.
5. Sizes: rebuilt entries (MessageTooLarge), all of it against a segment (RecordListTooLarge).

One sound batch that needs no change but its offset, as in nearly all appends, takes a shortcut
through these checks (`storage.append.plain`). Other appends go one of three ways, the first that
fits:

| way       | when                                                    | cost                       |
|-----------|---------------------------------------------------------|----------------------------|
| in place  | magic 2, and the codec stored is the producer's         | a few header bytes, CRC    |
| recompress| magic 2 with only the codec to change                   | records copied as a blob   |
| rebuild   | an older magic, or offset deltas other than 0, 1, 2...  | every record decoded       |

The two halves are available separately: `examine_append`, which may take long and runs in any
thread, and `place_append`, which assigns the offsets.

Differs from Kafka (each seen by sending the same bytes to 4.3.1):

* scattered offset deltas are made contiguous; Kafka stores them uncompressed as they came and
  fails internally when they are compressed;
* a batch flagged LogAppendTime on a CreateTime topic is accepted by both with the flag cleared;
  here it is judged and kept by its records' own timestamps, which consumers then read;
* bytes after a complete gzip or lz4 stream are corrupt here and ignored there, though not by all of
  its clients; broken compression is corrupt here and an internal error there;
* a batch that decompresses beyond a cap is refused as too large; so is one that its request has no
  budget for (`storage.append.opening`), or whose million records would be rewritten; a zstd window
  above 8 MiB (levels 20 to 22 on large input) is refused as corrupt; Kafka has no such caps.

Source: KIP-32; Kafka `LogValidator`, `UnifiedLog.analyzeAndValidateRecords`, `ProduceRequest`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from protocol.errors import (
    DecompressionLimitExceeded,
    InvalidRecords,
    RecordsError,
    UnsupportedCompression,
)
from protocol.records import entry_loops
from protocol.records.builder import build_batch
from protocol.records.entry import Entry
from protocol.records.layout import (
    INT64_MAX,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_OFFSET,
    NO_TIMESTAMP,
    SIZE_AT,
    V0_MIN_SIZE,
    Codec,
)
from protocol.records.record import Record
from protocol.records.scan import scan_entries
from storage.append import entries as append_entries
from storage.append.entries import BatchEntry, IncomingEntry
from storage.append.opening import Opening
from storage.append.plain import plan_plain
from storage.append.rules import AppendRules
from storage.append.values import AppendPlan
from storage.errors import (
    CorruptBatch,
    InvalidRecord,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)

__all__ = [
    "AppendPlan",
    "AppendRules",
    "Examined",
    "Origin",
    "examine_append",
    "place_append",
    "plan_append",
]

_NOTHING_TO_OPEN: Final = Opening(0)

REBUILT_RECORDS_MAX: Final = 1_000_000
"""Records of one append that may be decoded for a rebuild: some 250 MB of objects."""

_FIRST_VERSION_OF_MAGIC_2: Final = 3
_FIRST_VERSION_OF_ZSTD: Final = 7


class Origin(Enum):
    """The origin of an append: a client's Produce request, or the broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class _Place(NamedTuple):
    """The log and the time at which the records arrive: the arguments of one append."""

    rules: AppendRules
    now_ms: int
    next_offset: int
    leader_epoch: int
    origin: Origin
    opening: Opening


class Examined(NamedTuple):
    """Records that may enter a log by `rules`, in the bytes that it will have without the stamps.

    Attributes:
        view: the bytes; none for an empty set.
        batch: the batch in them, or None for an empty set.
        rules: the rules by which they were judged.
    """

    view: memoryview
    batch: BatchEntry | None
    rules: AppendRules


def plan_append(
    records: bytes | bytearray | memoryview,
    *,
    rules: AppendRules,
    now_ms: int,
    next_offset: int,
    leader_epoch: int,
    origin: Origin = Origin.CLIENT,
    produce_version: int | None = None,
    opening: Opening | None = None,
) -> AppendPlan:
    """Plan the append of `records` at `next_offset`.

    A writable buffer is stamped in place where possible and borrowed by the plan, so the caller
    must not touch it until the plan is written; a read-only one is copied first. Bytes after the
    last complete entry are dropped. `now_ms` is the one clock reading of this append; the caller
    must already have clamped it if LogAppendTime must not go backwards. `produce_version` None
    skips the rules that depend on a Produce request's version. `opening` is the budget of the
    request.

    Raises:
        AppendRejected: the records break a rule; the table above says which subclass when.
        TooMuchAtOnce: `opening` requires the two halves to run separately.
    """
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    opening = opening or Opening(INT64_MAX, at_once=False)
    if produce_version is None or produce_version >= _FIRST_VERSION_OF_MAGIC_2:
        knows_zstd = produce_version is None or produce_version >= _FIRST_VERSION_OF_ZSTD
        codecs_end = len(Codec) if knows_zstd else Codec.ZSTD
        plan = plan_plain(view, rules, now_ms, next_offset, leader_epoch, opening, codecs_end)
        if plan is not None:
            return plan
    place = _Place(
        rules=rules,
        now_ms=now_ms,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        origin=origin,
        opening=opening,
    )
    examined = _examine(view, place, produce_version)
    return _stamp(examined, place)


def examine_append(
    records: memoryview,
    *,
    rules: AppendRules,
    now_ms: int,
    opening: Opening,
    produce_version: int | None = None,
) -> Examined:
    """The first half of a client's `plan_append`: all but the offsets and the stamps.

    Raises AppendRejected as `plan_append` does.
    """
    view = records if not records.readonly else memoryview(bytearray(records))
    place = _Place(
        rules=rules,
        now_ms=now_ms,
        next_offset=0,
        leader_epoch=0,
        origin=Origin.CLIENT,
        opening=opening,
    )
    return _examine(view, place, produce_version)


def place_append(
    examined: Examined, *, now_ms: int, next_offset: int, leader_epoch: int
) -> AppendPlan:
    """The second half: stamp the examined records for `next_offset`; cheap."""
    place = _Place(
        rules=examined.rules,
        now_ms=now_ms,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        origin=Origin.CLIENT,
        opening=_NOTHING_TO_OPEN,
    )
    return _stamp(examined, place)


def _examine(view: memoryview, place: _Place, produce_version: int | None) -> Examined:
    """Steps 1 to 5, without the stamps. Raises AppendRejected."""
    try:
        entries, end = _split(view, place, produce_version)
        if not entries:
            return Examined(view[:0], None, place.rules)
        return _examine_entries(view[:end], entries, place)
    except UnsupportedCompression as error:
        raise UnsupportedCompressionType(str(error)) from error
    except InvalidRecords as error:
        raise InvalidRecord(str(error)) from error
    except DecompressionLimitExceeded as error:
        raise MessageTooLarge(str(error)) from error
    except RecordsError as error:
        raise CorruptBatch(str(error)) from error


# --- steps 1 to 3: entries ----------------------------------------------------------------------


def _split(
    view: memoryview, place: _Place, produce_version: int | None
) -> tuple[list[IncomingEntry], int]:
    """(the entries, the position after them) after steps 1 and 2."""
    fields, end, stop = entry_loops.check_entries(view, 0, len(view), None, None)
    headers = [Entry._make(header) for header in fields]
    is_corrupt = stop == entry_loops.STOP_CORRUPT or _begins_too_small(view, end)
    if produce_version is not None and produce_version >= _FIRST_VERSION_OF_MAGIC_2:
        _check_request_rules(headers, is_corrupt, produce_version)
    entries: list[IncomingEntry] = []
    for header in headers:
        if header.magic == MAGIC_V2 and place.origin is Origin.CLIENT and header.base_offset:
            raise InvalidRecord(
                f"a batch from a client starts at offset {header.base_offset}, not 0"
            )
        _check_size(header.size, place.rules)
        entry = append_entries.incoming(view, header)
        if not entry.view.crc_ok():
            raise CorruptBatch(f"the checksum of the entry at byte {header.position} is wrong")
        entries.append(entry)
    if is_corrupt:
        raise CorruptBatch(f"no batch or message can start like the bytes at position {end}")
    return entries, end


def _begins_too_small(view: memoryview, position: int) -> bool:
    """Whether the rest begins with a size that no entry can have, however it might continue."""
    if len(view) - position < LOG_OVERHEAD:
        return False
    size = view[position + SIZE_AT : position + LOG_OVERHEAD]
    return int.from_bytes(size, "big", signed=True) < V0_MIN_SIZE


def _check_request_rules(headers: Sequence[Entry], is_corrupt: bool, produce_version: int) -> None:
    """Refuse content that a Produce request of version 3 and up must not carry."""
    if not headers:
        if is_corrupt:
            raise CorruptBatch("no batch can start like the bytes of this request")
        raise InvalidRecord(f"Produce v{produce_version} needs one record batch, found none")
    magic, attributes = headers[0].magic, headers[0].attributes
    if magic != MAGIC_V2:
        raise InvalidRecord(f"Produce v{produce_version} carries magic 2 only, found {magic}")
    if produce_version < _FIRST_VERSION_OF_ZSTD and attributes & 7 == Codec.ZSTD:
        raise UnsupportedCompressionType(
            f"zstd needs Produce v7, the request is v{produce_version}"
        )
    if is_corrupt:
        raise CorruptBatch("what follows the record batch is none")
    if len(headers) > 1:
        raise InvalidRecord(
            f"Produce v{produce_version} needs one record batch, found {len(headers)}"
        )


def _check_size(size: int, rules: AppendRules) -> None:
    """Refuse an entry larger than the topic accepts."""
    if size > rules.max_message_bytes:
        raise MessageTooLarge(
            f"a batch of {size} bytes exceeds max.message.bytes = {rules.max_message_bytes}"
        )


def _check_entry_rules(entries: Sequence[IncomingEntry], source: Codec, place: _Place) -> None:
    """Step 3: the rules that the headers alone can break."""
    first = entries[0]
    if len(entries) > 1 and (first.magic == MAGIC_V2 or source != Codec.NONE):
        raise InvalidRecord(f"a compressed or magic 2 append is one batch, found {len(entries)}")
    for entry in entries:
        if entry.magic != first.magic:
            raise InvalidRecord(f"magic {entry.magic} follows magic {first.magic} in one append")
        if isinstance(entry, BatchEntry) and place.origin is Origin.CLIENT:
            append_entries.check_client_batch(entry.view)


# --- steps 4 and 5: records, and the way they are stored ----------------------------------------


def _examine_entries(view: memoryview, entries: Sequence[IncomingEntry], place: _Place) -> Examined:
    """Examine the records, choose the way, build."""
    rules = place.rules
    source = next((entry.view.codec for entry in reversed(entries) if entry.view.codec), Codec.NONE)
    target = source if rules.codec is None else rules.codec
    if entries[0].is_control and source == Codec.NONE:
        target = Codec.NONE
    _check_entry_rules(entries, source, place)
    window = rules.window(place.now_ms)
    if source != target:
        place.opening.check_rewrite(len(view))
    clear_bytes = 0
    for entry in entries:
        clear_bytes += entry.examine(window, rules.decompressed_bytes_max, place.opening)
    first = entries[0]
    whole = first if isinstance(first, BatchEntry) and first.is_gapless else None
    if whole and source == target:
        _check_total(len(view), rules)
        return Examined(view, whole, rules)
    place.opening.check_rewrite(clear_bytes)
    if whole:
        built = whole.recompress(target, rules.compression_level)
    else:
        built = _rebuild(entries, target, place)
    view = memoryview(bytearray(built))
    stored = BatchEntry(view, 0)
    assert stored.records_count == sum(entry.records_count for entry in entries), "none is lost"
    # The batch was built here, so its header is correct.
    stored.max_timestamp = stored.view.max_timestamp
    stored.min_timestamp = min(entry.min_timestamp for entry in entries)
    _check_size(len(view), rules)
    _check_total(len(view), rules)
    return Examined(view, stored, rules)


def _check_total(size: int, rules: AppendRules) -> None:
    """Refuse an append that no segment could hold."""
    if size > rules.segment_bytes:
        raise RecordListTooLarge(
            f"an append of {size} bytes exceeds segment.bytes = {rules.segment_bytes}"
        )


def _stamp(examined: Examined, place: _Place) -> AppendPlan:
    """Assign offsets, epoch and timestamps to a batch that keeps its bytes otherwise.

    Without a batch there is nothing to write: an empty set is a success that uses no offset.
    """
    view, batch, rules = examined
    if batch is None:
        return AppendPlan(view, (), NO_OFFSET, NO_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, 0, INT64_MAX)
    append_time = place.now_ms if rules.stamps else NO_TIMESTAMP
    batch.stamp(place.next_offset, place.leader_epoch, rules.timestamp_type, append_time)
    (line,) = scan_entries(view)
    assert line.base_offset == place.next_offset, "a log has no gaps"
    assert line.size == len(view), "the batch is all the bytes"
    assert line.last_offset - line.base_offset == batch.records_count - 1, "an offset each"
    assert batch.records_count > 0, "a batch has records"
    return AppendPlan(
        view,
        (line,),
        line.base_offset,
        line.last_offset,
        line.max_timestamp,
        append_time,
        batch.records_count,
        line.max_timestamp if rules.stamps else batch.min_timestamp,
    )


def _rebuild(entries: Sequence[IncomingEntry], target: Codec, place: _Place) -> bytes:
    """Rebuild: every record decoded into one batch.

    Offset, epoch and time of arrival are stamped later, as in place.
    """
    rules = place.rules
    count = sum(entry.records_count for entry in entries)
    if count > REBUILT_RECORDS_MAX:
        raise MessageTooLarge(
            f"{count} records would have to be rewritten, at most {REBUILT_RECORDS_MAX} are; "
            "send fewer in a batch"
        )
    records: list[Record] = []
    for entry in entries:
        records += entry.decode(rules.decompressed_bytes_max)
    append_entries.refuse_negative_timestamps(records)
    # Offsets are assigned again: the producer's inner ones may be the reason for the rebuild.
    return build_batch(
        records,
        codec=target,
        level=rules.compression_level,
        **append_entries.producer_fields(entries[0]),
    )
