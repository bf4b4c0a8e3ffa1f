"""Facts about one segment when its log is opened and no batch has to be verified.

Owns the choice between the three sources of these facts: the manifest, the indexes, the log itself.
Each is trusted only as far as it can be proven without the next one.

Read next: `storage.recovery.recovery`, `storage.recovery.loss`.
"""

from storage.errors import CorruptLog
from storage.recovery.loss import Remembered
from storage.recovery.temporary_files import Opening
from storage.segment.scan import rebuild_indexes
from storage.segment.segment import Segment


def load_segment(
    opening: Opening, before: list[Segment], segment: Segment, remembered: Remembered
) -> None:
    """Load from the manifest if the files are unchanged, else from the indexes, else from the log.

    `before` are the segments before it. Raises OSError, or CorruptLog when the log is damaged.
    """
    facts = opening.manifest.facts.get(segment.base_offset)
    indexes = (segment.offset_index, segment.time_index)
    if facts is None and segment.is_empty and not any(index.exists for index in indexes):
        # Never written to, so a clean stop had nothing to store.
        return
    if facts is not None and segment.matches(facts) and segment.txn_index.find_damage() is None:
        segment.adopt(facts)
        return
    appended_ms = opening.files.modified_ms(segment.log.path)
    if facts is not None and facts.size_bytes == segment.size:
        # Not trusted even when in order: a part of an index may look like a whole one.
        damage: str | None = "an index is not what is remembered"
        appended_ms = facts.appended_ms
    else:
        damage = _adopt_indexes(segment, appended_ms)
    if damage is not None:
        opening.report.rebuilt_indexes.append((segment.base_offset, damage))
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
    if remembered.find_cut(segment) is None:
        # Otherwise the remembered facts are the proof that data is gone.
        opening.manifest.remember(found)


def _adopt_indexes(segment: Segment, appended_ms: int) -> str | None:
    """Take the segment's numbers from its indexes; the reason against it in words, or None.

    Two things can be judged: their order, and whether they end with the log's maximum. See
    `Segment.adopt_indexes`.
    """
    missing = [i.path for i in (segment.offset_index, segment.time_index) if not i.exists]
    if missing and not segment.is_empty:
        return f"{missing[0]} is missing"
    damage = (
        segment.offset_index.find_disorder()
        or segment.time_index.find_disorder()
        or segment.txn_index.find_damage()
    )
    if damage is None:
        try:
            segment.adopt_indexes(appended_ms=appended_ms)
            damage = segment.find_index_damage()
        except CorruptLog as error:
            damage = str(error)
    return damage
