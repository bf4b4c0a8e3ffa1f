"""Opening a partition directory, after a clean stop or a crash.

Owns the passes, one function each, in this order:

1. to 4.                temporary files that an interrupted run left: `temporary_files`; then
                        segments that span too many offsets are split:
                        `storage.recovery.split_overflow`
5. `load_segments`      the facts about each segment: from the manifest, the indexes, or the log
                        itself, each trusted only as far as it can be proven without the next one;
                        and whether durable data is missing: `storage.recovery.loss`
6. `recover_segments`   after an unclean stop: verify every batch from the recovery point on
7. `choose_start`       the log's start, and a first segment if the log has none
8. producers, leader epochs, and the `Log`

The rule of pass 6. The first byte that is not part of a whole and correct batch ends the log, and
everything after it is cut off: no client was promised it. This applies from the recovery point on,
which is the newest offset *known* to be durable (from the checkpoint or the manifest). Damage below
the recovery point is different: those batches were synced, perhaps acknowledged and read, and later
segments may be intact. Then nothing is cut; the log opens read-only up to the damage and reports
it.

| first damage is                 | what was there                     | the log                   |
|---------------------------------|------------------------------------|---------------------------|
| at or above the recovery point  | an append that did not finish      | ends there, continues     |
| below the recovery point        | records that were durable          | quarantined, nothing lost |

Every pass can be interrupted and run again. Renames happen in an order that the next start can
complete, and nothing is removed before its replacement is in place.

Source: Kafka `LogLoader`; protocol-aware recovery (Alagappan et al., FAST 2018) for the quarantine.
"""

from collections import deque
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from config import TopicConfig
from protocol.errors import CorruptRecords
from protocol.records.layout import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, TimestampType
from protocol.records.scan import scan_entries
from storage.disk.checkpoints import CorruptCheckpoint
from storage.disk.file_names import (
    LOG_SUFFIX,
    MANIFEST_NAME,
    offset_file_name,
    parsed_names,
    resembles_segment_file,
)
from storage.disk.files import Files, sync_file
from storage.errors import CorruptLog, QuarantineKind, StorageFailed
from storage.log.auxiliary_indexes import KINDS, load_index
from storage.log.leader_epochs import LEADER_EPOCHS_NAME, LeaderEpochs
from storage.log.log import Log
from storage.log.producers import LogProducers
from storage.log.values import RecoveryReport
from storage.producers.snapshots import ProducerSnapshots
from storage.producers.state import ProducerState
from storage.recovery.loss import StoredFacts, quarantine
from storage.recovery.opening import DirectoryOpening
from storage.recovery.split_overflow import split_overflowing
from storage.recovery.temporary_files import (
    finish_rewrites,
    remove_below_start,
    remove_orphans,
    remove_temporary_files,
)
from storage.recovery.unusable_log import unusable_log
from storage.segment.facts import SegmentFacts
from storage.segment.manifest import OUTDATED_AT_START_MAX, Manifest
from storage.segment.scan import ScanEnd, SegmentDigest, ensure_indexes, rebuild_indexes
from storage.segment.segment import Segment

FIRST_LEADER_EPOCH: Final = 0

_RANDOM: Final = Random()
"""For jitter only; shared, because one per log would cost more memory than the log."""


def open_log(
    path: str,
    *,
    topic: str,
    partition: int,
    config: TopicConfig,
    files: Files,
    now_ms: int,
    is_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaned_offset: int = 0,
    producer_id_expiration_ms: int | None = None,
    random: Random | None = None,
) -> Log:
    """The log in the directory `path`, which exists; every byte of it is durable on return.

    `is_clean` is the report of the last stop that no batch has to be verified. The three offsets
    are checkpoints, taken as hints. The findings and repairs are in `Log.recovery_report`.

    Raises StorageFailed when the directory cannot be read or repaired.
    """
    try:
        opening = _begin(path, config, files, now_ms, is_clean, recovery_point, log_start_offset)
        if opening.manifest.cleaned_offset == NO_OFFSET and cleaned_offset > 0:
            # A directory of Kafka: take its checkpoint of what it has compacted.
            opening.manifest.cleaned_offset = cleaned_offset
        if producer_id_expiration_ms is not None:
            opening.producers.state.expiration_ms = producer_id_expiration_ms
        remove_temporary_files(opening)
        finish_rewrites(opening)
        remove_orphans(opening)
        remove_below_start(opening)
        split_overflowing(opening)
        stored = StoredFacts(opening)
        segments = load_segments(opening, stored)
        if not is_clean and opening.quarantine is None:
            recover_segments(opening, segments, stored)
        if opening.quarantine is not None and not segments:
            return unusable_log(
                opening.quarantine,
                opening.report,
                topic,
                partition,
                config,
                leader_epoch=max(FIRST_LEADER_EPOCH, opening.epochs.latest_epoch),
            )
        start = choose_start(opening, segments)
        return _finish(opening, segments, start, topic, partition, random or _RANDOM)
    except OSError as error:
        raise StorageFailed("open", path, str(error)) from error


def _begin(
    path: str,
    config: TopicConfig,
    files: Files,
    now_ms: int,
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> DirectoryOpening:
    manifest = Manifest(path, files)
    report = RecoveryReport()
    try:
        epochs = LeaderEpochs.open(path, files)
    except CorruptCheckpoint as error:
        # Derived data: batches carry their epoch, and the epochs are learned from those read again.
        report.notes.append(f"{LEADER_EPOCHS_NAME} is not readable ({error}): it was emptied")
        epochs = LeaderEpochs.start_over(path, files)
    # Not earlier: starting over removes a temporary file that a crash has left.
    names = files.list_directory(path)
    report.notes += [
        f"{path}/{name} is no name that a segment's file can have; it is left alone"
        for name in names
        if resembles_segment_file(name)
    ]
    if MANIFEST_NAME not in names:
        manifest.hold()
    return DirectoryOpening(
        files=files,
        path=path,
        config=config,
        now_ms=now_ms,
        is_clean=is_clean,
        recovery_point=max(recovery_point, manifest.durable_offset),
        start=max(log_start_offset, manifest.log_start_offset, 0),
        manifest=manifest,
        producers=LogProducers(ProducerState(), ProducerSnapshots(path, files, names=names)),
        epochs=epochs,
        names=names,
        report=report,
    )


def load_segments(opening: DirectoryOpening, stored: StoredFacts) -> list[Segment]:
    """Pass 5: the segments in order, with all facts that need no verification.

    After an unclean stop the segments from the recovery point on stay unknown: pass 6 reads them.
    Where durable offsets are missing, the list ends and the log is quarantined.
    """
    names = parsed_names(opening.names)
    here = {name.base_offset for name in names if name.kind == LOG_SUFFIX}
    indexed = {name.base_offset for name in names if name.kind != LOG_SUFFIX}
    remote = opening.remote
    bases = sorted(here | remote.keys())
    segments = [
        Segment.open(opening.files, opening.path, base, now_ms=opening.now_ms)
        if base in here
        else Segment.open_remote(
            opening.files,
            opening.path,
            remote[base],
            now_ms=opening.now_ms,
            has_indexes=base in indexed,
        )
        for base in bases
    ]
    first_to_recover = _first_to_recover(opening, segments)
    loss = stored.find_missing_start(bases)
    sound = 0
    while loss is None and sound < first_to_recover:
        segment = segments[sound]
        try:
            _load_segment(opening, segments, sound, stored)
        except CorruptLog as error:
            # Its indexes had to be rebuilt, and now cover the part before the damage.
            _quarantine(opening, stored, segment, error.position, error.found)
            return _only(segments, sound + 1)
        sound += 1
        loss = stored.find_cut(segment)
        if loss is None and sound < len(segments):
            loss = stored.find_gap(segment, segments[sound].base_offset)
    if loss is None and (opening.is_clean or not segments or segments[-1].is_remote):
        loss = stored.find_missing_end(segments)
    if loss is None:
        return segments
    stored.quarantine(loss)
    return _only(segments, sound)


def _load_segment(
    opening: DirectoryOpening, segments: list[Segment], at: int, stored: StoredFacts
) -> None:
    """Load from the manifest if the files are unchanged, else from the indexes, else from the log.

    Raises OSError, or CorruptLog when the log is damaged.
    """
    segment = segments[at]
    facts = opening.manifest.facts.get(segment.base_offset)
    indexes = (segment.offset_index, segment.time_index)
    if facts is None and segment.is_empty and not any(index.exists for index in indexes):
        # Never written to, so a clean stop had nothing to store.
        return
    if facts is not None and segment is not segments[-1]:
        following = segments[at + 1].base_offset
        if not segment.is_remote and not stored.is_meant(facts.next_offset, following):
            # A crash may keep a rewritten segment and the facts of the old one, of the same size.
            facts = None
    if facts is not None and _fits(segment, facts):
        segment.adopt(facts)
        return
    appended_ms = opening.files.modified_ms(segment.log.path)
    if facts is not None and facts.size_bytes == segment.size:
        # Not trusted even when in order: a part of an index may look like a whole one.
        damage: str | None = "an index differs from the manifest"
        appended_ms = facts.appended_ms
    else:
        damage = _adopt_indexes(segment, appended_ms)
    if damage is not None:
        opening.report.rebuilt_indexes.append((segment.base_offset, damage))
        before = _local(segments[:at])
        try:
            has_markers = rebuild_indexes(
                segment, index_interval=opening.config.index_interval_bytes
            )
        except CorruptLog:
            opening.producers.rebuild_aborts(before, segment, now_ms=opening.now_ms)
            raise
        if has_markers or segment.txn_index.file is not None:
            opening.producers.rebuild_aborts(before, segment, now_ms=opening.now_ms)
        segment.appended_ms = appended_ms
    found = segment.seal(now_ms=opening.now_ms)
    if stored.find_cut(segment) is None:
        # Otherwise the stored facts are the proof that data is gone.
        opening.manifest.remember(found)


def _fits(segment: Segment, facts: SegmentFacts) -> bool:
    """Whether the stored facts are those of the files.

    They are those of an object, whose line was synced after them. Indexes that do not fit them are
    fetched from it at their first use.
    """
    if segment.is_remote:
        return True
    return segment.matches(facts) and segment.txn_index.find_damage() is None


def _adopt_indexes(segment: Segment, appended_ms: int) -> str | None:
    """Take the segment's numbers from its indexes; the reason against it in words, or None.

    Two things can be judged: their order, and whether they end with the log's maximum. See
    `Segment.adopt_indexes`.
    """
    damage = segment.txn_index.find_damage()
    if damage is None:
        try:
            segment.adopt_indexes(appended_ms=appended_ms)
            damage = segment.find_index_damage()
        except CorruptLog as error:
            damage = str(error)
    return damage


def _only(segments: list[Segment], count: int) -> list[Segment]:
    """The first `count` segments; the others are closed."""
    for segment in segments[count:]:
        segment.close()
    return segments[:count]


def _first_to_recover(opening: DirectoryOpening, segments: list[Segment]) -> int:
    """Number of the segment that holds the recovery point; after all of them when clean."""
    if opening.is_clean:
        return len(segments)
    # A segment that ends right at the recovery point is included: its records are durable, but its
    # indexes were written when it was closed, and that may have been after the last sync.
    below = [s for s in segments if s.base_offset < opening.recovery_point]
    # What an object has was durable before, with its indexes, and so was all before it.
    objects = opening.manifest.remote
    remote = max((at + 1 for at, s in enumerate(segments) if s.base_offset in objects), default=0)
    return max(remote, len(below) - 1)


def recover_segments(
    opening: DirectoryOpening, segments: list[Segment], stored: StoredFacts
) -> None:
    """Pass 6: verify every batch from the segment of the recovery point on; cut or quarantine.

    Removes from `segments` all that come after the first damage.
    """
    first = _first_to_recover(opening, segments)
    if first < len(segments):
        opening.producers.rebuild(
            _local(segments[:first]),
            log_start_offset=min(segments[0].base_offset, segments[first].base_offset),
            log_end_offset=segments[first].base_offset,
            now_ms=opening.now_ms,
        )
    _remove_untrusted_indexes(opening, segments[:first])
    for index in range(first, len(segments)):
        if index > 0:
            # As at each roll, so that the next start need not read the segments again for it.
            with suppress(OSError):
                opening.producers.snapshots.take(opening.producers.state)
        end = _recover_segment(opening, segments[index])
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        loss = None
        if end.damage is None:
            loss = stored.find_loss_after(segments[index], following)
        if loss is not None:
            end = replace(end, damage=loss.found)
        if end.damage is None:
            continue
        if _was_durable(opening, end.next_offset):
            if loss is None:
                _quarantine(opening, stored, segments[index], end.valid_bytes, end.damage)
            else:
                stored.quarantine(loss)
        else:
            _cut(opening, segments[index], end)
            _remove_after_cut(opening, segments[index + 1 :])
        del segments[index + 1 :]
        return


def _local(segments: list[Segment]) -> list[Segment]:
    """Those whose log is here: a start reads no object. A snapshot covers what the others have."""
    return [segment for segment in segments if not segment.is_remote]


def _was_durable(opening: DirectoryOpening, offset: int) -> bool:
    return offset < opening.recovery_point


def _remove_untrusted_indexes(opening: DirectoryOpening, segments: list[Segment]) -> None:
    """Remove auxiliary indexes that lookups had made and that were not synced yet."""
    kinds = [kind for kind in KINDS if kind.GUIDES_LOOKUPS]
    for segment in segments:
        for kind in kinds:
            name = offset_file_name(segment.base_offset, kind.SUFFIX)
            if name not in opening.names:
                continue
            index = load_index(opening.files, segment, kind)
            if index is None:
                opening.remove(name)
            else:
                index.close()


def _recover_segment(opening: DirectoryOpening, segment: Segment) -> ScanEnd:
    """Verify one segment and rebuild its indexes; the log file stays as it is."""
    known = opening.manifest.facts.get(segment.base_offset)
    segment.appended_ms = opening.files.modified_ms(segment.log.path)
    if known is not None:
        segment.appended_ms = max(known.appended_ms, segment.max_timestamp)
    segment.txn_index.clear()
    opening.remove_auxiliary(segment.base_offset)
    learned = opening.epochs.latest_epoch
    scan = SegmentDigest(
        segment,
        index_interval=opening.config.index_interval_bytes,
        check_crc=True,
        epoch=learned,
    )
    for entry in scan:
        if entry.producer_id > NO_PRODUCER_ID:
            opening.producers.replay(segment, entry, scan.bytes_of(entry))
        if entry.partition_leader_epoch > learned:
            learned = entry.partition_leader_epoch
            opening.epochs.assign(learned, entry.base_offset)
    opening.producers.state.map_end_offset = segment.next_offset
    segment.indexes_verified = True
    opening.report.scanned_bytes += scan.end.valid_bytes
    return scan.end


def _cut(opening: DirectoryOpening, segment: Segment, end: ScanEnd) -> None:
    assert not _was_durable(opening, end.next_offset), "durable records would be cut off"
    assert 0 <= end.valid_bytes <= segment.size
    opening.report.truncated_bytes += segment.size - end.valid_bytes
    opening.report.notes.append(
        f"{segment.log.path} was cut at byte {end.valid_bytes}, offset {end.next_offset}: "
        f"{end.damage}"
    )
    segment.log.truncate(end.valid_bytes)


def _remove_after_cut(opening: DirectoryOpening, segments: list[Segment]) -> None:
    for segment in segments:
        opening.report.truncated_bytes += segment.size
        opening.report.removed_segments.append(segment.base_offset)
        opening.manifest.drop([segment.base_offset])
        for path in segment.mark_deleted():
            opening.files.unlink(path)


def _quarantine(
    opening: DirectoryOpening, stored: StoredFacts, segment: Segment, position: int, damage: str
) -> None:
    opening.end_position = position
    reason = (
        f"{segment.log.path} is damaged at byte {position} ({damage}), where everything had been "
        "synced"
    )
    quarantine(
        opening,
        QuarantineKind.DAMAGED,
        good_until=segment.next_offset,
        reason=reason,
        durable_end=stored.durable_end,
    )


def choose_start(opening: DirectoryOpening, segments: list[Segment]) -> int:
    """Pass 7: the log's start; `segments` is never empty afterwards."""
    start = opening.start
    if segments and segments[-1].next_offset < start and opening.quarantine is None:
        opening.report.notes.append(
            f"the log ended at {segments[-1].next_offset}, below its start {start}: it starts again"
        )
        # Segments after a cut may have been unlinked just before. Make that durable first: if one
        # of their names outlived these segments, the next start would find a log that begins there.
        opening.files.sync_directory(opening.path)
        _remove_after_cut(opening, segments)
        segments.clear()
        opening.epochs.clear()
    if not segments:
        is_only = not parsed_names(opening.names)
        new = Segment.create(
            opening.files, opening.path, start, now_ms=opening.now_ms, is_only=is_only
        )
        segments.append(new)
        opening.producers.state.clear(start)
    elif segments[-1].is_remote and opening.quarantine is None:
        # The active segment was empty, and a crash took its name.
        end = segments[-1].next_offset
        segments.append(Segment.create(opening.files, opening.path, end, now_ms=opening.now_ms))
    assert start >= 0
    return max(start, segments[0].base_offset)


def _finish(
    opening: DirectoryOpening,
    segments: list[Segment],
    start: int,
    topic: str,
    partition: int,
    random: Random,
) -> Log:
    active = segments[-1]
    existed = f"{active.base_offset:020d}{LOG_SUFFIX}" in opening.names
    if opening.quarantine is None:
        damage = ensure_indexes(active, index_interval=opening.config.index_interval_bytes)
        if damage is not None:
            opening.report.rebuilt_indexes.append((active.base_offset, damage))
    end_offset = max(active.next_offset, start)
    if opening.quarantine is None:
        # An epoch may begin right at the end: none of its records was written yet, or none is left.
        opening.epochs.truncate_from_end(end_offset + 1)
        opening.epochs.truncate_from_start(start)
        bases = {segment.base_offset for segment in segments}
        opening.producers.snapshots.delete_stray(bases, end_offset)
    if opening.producers.state.map_end_offset != end_offset:
        opening.producers.rebuild(
            _local(segments),
            log_start_offset=start,
            log_end_offset=end_offset,
            now_ms=opening.now_ms,
            may_skip_replay=opening.is_clean and existed,
            is_quarantined=opening.quarantine is not None,
        )
    opening.producers.has_aborts = any(
        segment.txn_index.count or (segment.is_remote and segment.facts.txn_index_bytes)
        for segment in segments
    )
    for segment in segments[:-1]:
        where = opening.manifest.remote.get(segment.base_offset)
        if where is not None and where.log_bytes == segment.size:
            segment.remote = where
    if opening.quarantine is None:
        _make_durable(opening, segments, existed)
    opening.manifest.forget_lines()
    return Log(
        files=opening.files,
        path=opening.path,
        topic=topic,
        partition=partition,
        config=opening.config,
        segments=segments,
        producers=opening.producers,
        leader_epochs=opening.epochs,
        leader_epoch=max(FIRST_LEADER_EPOCH, opening.epochs.latest_epoch),
        manifest=opening.manifest,
        random=random,
        log_start_offset=start,
        end_position=active.size if opening.end_position is None else opening.end_position,
        last_stamp_ms=_last_stamp_ms(opening, segments),
        is_new=not existed,
        report=opening.report,
        quarantine=opening.quarantine,
    )


def _make_durable(opening: DirectoryOpening, segments: list[Segment], existed: bool) -> None:
    """Sync after an unclean stop: pass 6 may have read bytes from the page cache only."""
    manifest = opening.manifest
    # A crash may keep lines about records that were never durable, and none of their segments. The
    # start after the next clean stop would take these lines for the proof of a loss.
    is_new = not existed and MANIFEST_NAME not in opening.names
    if opening.is_clean or is_new:
        if MANIFEST_NAME not in opening.names and len(segments) > 1:
            # Kafka's directory until now: from here on all of it is known and durable.
            manifest.durable_offset = segments[-1].next_offset
        manifest.release()
        manifest.drop(set(manifest.facts) - {segment.base_offset for segment in segments})
        if manifest.has_outdated(OUTDATED_AT_START_MAX):
            manifest.rewrite()
        return
    for segment in segments[_first_to_recover(opening, segments) :]:
        if segment is not segments[-1]:
            opening.manifest.remember(segment.seal(now_ms=opening.now_ms))
        for file in segment.all_files():
            sync_file(file)
    opening.manifest.drop(
        set(opening.manifest.facts) - {segment.base_offset for segment in segments[:-1]}
    )
    manifest.durable_offset = max(manifest.durable_offset, segments[-1].next_offset)
    manifest.rewrite()
    opening.files.sync_directory(opening.path)


def _last_stamp_ms(opening: DirectoryOpening, segments: list[Segment]) -> int:
    """The newest LogAppendTime stamp: that of the last batch, if the broker stamped it."""
    if opening.quarantine is not None:
        return NO_TIMESTAMP
    for segment in reversed(segments):
        if segment.is_empty:
            continue
        if segment.is_remote:
            stamps = opening.config.message_timestamp_type == "LogAppendTime"
            return segment.max_timestamp if stamps else NO_TIMESTAMP
        ensure_indexes(segment, index_interval=opening.config.index_interval_bytes)
        start = segment.offset_index.last().position
        data = segment.log.pread(segment.size - start, start)
        try:
            last = deque(scan_entries(data), maxlen=1)
        except CorruptRecords:
            # Damage in what a clean stop left: its readers get the error, the start continues.
            return NO_TIMESTAMP
        is_stamped = last and last[0].timestamp_type is TimestampType.LOG_APPEND_TIME
        return last[0].max_timestamp if is_stamped else NO_TIMESTAMP
    return NO_TIMESTAMP
