"""Comparison of the facts about durable data with the files that a start finds.

Owns one rule for every start, after a clean stop or a crash: the start proves that durable data is
present, or it reports what is missing. It compares facts and reads no log:

| fact                                | stored by                          | proves               |
|-------------------------------------|------------------------------------|----------------------|
| the log's start                     | `start` line, log start checkpoint | where the log begins |
| base and end of each closed segment | `segment` lines of the manifest    | that segments follow |
| base and end of the last segment    | the same, at a clean stop          | where the log ends   |
| the recovery point                  | its checkpoint, `durable` lines    | its end at least     |
| the high watermark, after a clean   | its checkpoint                     | its end at least     |
| stop                                |                                    |                      |
| the newest sound producer snapshot, | its name                           | its end at least     |
| after a clean stop                  |                                    |                      |

After a crash the last two prove nothing: under `flush.policy=os` both may name offsets that were
never synced.

Missing data quarantines the log (`storage.errors.LogQuarantined`). Offsets before the missing ones
can be read; nothing is appended or removed; no fact is overwritten, so that every later start finds
the same. To that start the log has not stopped cleanly, so the end that the facts prove now becomes
its recovery point. `storage.audit.accept_loss` is the way out.

These do not count as missing, though facts or files suggest it: offsets below the log's start;
segments that a rewrite has merged into the one before them; gaps that Apache Kafka's compaction had
left before the directory came here; after an unclean stop, everything from the recovery point on.

See docs/crash-safety.md.
"""

from bisect import bisect_left
from datetime import UTC, datetime

from protocol.records.layout import INT64_MAX, NO_OFFSET
from storage.disk.file_names import LOG_SUFFIX, MANIFEST_NAME, segment_file_path
from storage.errors import LogQuarantined, QuarantineKind
from storage.recovery.opening import DirectoryOpening
from storage.segment.facts import SegmentFacts
from storage.segment.segment import Segment
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Offsets `[first_offset, next_offset)` that were durable and are lost; `found` says why."""

    first_offset: int
    next_offset: int
    found: str


class StoredFacts:
    """The facts as they were before this start changed anything. Made once for each start."""

    def __init__(self, opening: DirectoryOpening) -> None:
        """Take the facts of the manifest and the checkpoints."""
        self._opening = opening
        self._facts = dict(opening.manifest.facts)
        self._bases = sorted(self._facts)
        self._ends = {facts.next_offset for facts in self._facts.values()}
        # The least offset at which the log ends; after a clean stop, exactly its end.
        self.durable_end = opening.recovery_point
        if opening.is_clean:
            known = max((self.durable_end, *self._ends))
            self.durable_end = opening.producers.snapshots.newest_sound(known)
        # A crash may leave the name of a first manifest without its lines; a clean stop does not.
        self._has_manifest = MANIFEST_NAME in opening.names and bool(
            self._facts or not opening.is_clean
        )

    def find_missing_start(self, bases: list[int]) -> Loss | None:
        """The loss before the first of the existing segments."""
        start = self._opening.start
        if not bases:
            return None
        if self._opening.config.remote_storage_enable and not self._facts:
            # Only the manifest names the objects of a log whose older part is in a store: the file
            # is gone, or lost its lines.
            return self._missing_files(start, bases[0]) if start < bases[0] else None
        if not self._has_manifest:
            return None
        first = bases[0]
        below = self._bases[: bisect_left(self._bases, first)]
        missing = [base for base in below if self._facts[base].next_offset > max(start, base)]
        if self._opening.manifest.log_start_offset == NO_OFFSET and not missing:
            # No file stores where a directory of Apache Kafka began.
            return None
        if missing and self._opening.manifest.log_start_offset == NO_OFFSET:
            start = max(start, missing[0])
        return self._missing_files(start, first) if start < first else None

    def find_gap(self, before: Segment, following: int) -> Loss | None:
        """The loss between a segment and the base of the next one."""
        end = before.next_offset
        if self.is_meant(end, following):
            return None
        if following < end:
            path = self._path(following)
            return Loss(
                first_offset=following,
                next_offset=end,
                found=f"{path} begins below offset {end}, where {before.log.path} ends",
            )
        return self._missing_files(end, following)

    def is_meant(self, end: int, following: int) -> bool:
        """Whether a segment may end at `end` when the next one begins at `following`."""
        if end == following or not self._has_manifest:
            # Apache Kafka never checks for gaps. Directories of ours have a manifest:
            # `SegmentChanges.roll`.
            return True
        if end > following:
            return False
        at = bisect_left(self._bases, following)
        if at and self._facts[self._bases[at - 1]].next_offset > end:
            return False
        opening = self._opening
        durable = max(opening.recovery_point, opening.manifest.cleaned_offset)
        if opening.config.is_compacted and following <= durable:
            return True
        # Lines are read up to the first that is not whole, so a segment between would have a line.
        # The last segment has no line yet, but lies below the recovery point.
        is_known = following in self._facts or following <= opening.recovery_point
        return end in self._ends and is_known

    def find_cut(self, segment: Segment) -> Loss | None:
        """The loss at the end of a segment that was longer when it was closed."""
        facts = self._facts.get(segment.base_offset)
        if facts is None or segment.next_offset >= facts.next_offset:
            return None
        return Loss(
            first_offset=segment.next_offset,
            next_offset=facts.next_offset,
            found=_shorter(segment, facts),
        )

    def find_missing_end(self, segments: list[Segment]) -> Loss | None:
        """The loss at the end of the log; `segments` are all segments found, each known."""
        end = max(segments[-1].next_offset if segments else NO_OFFSET, self._opening.start)
        if end >= self.durable_end:
            return None
        last = segments[-1] if segments else None
        facts = None if last is None else self._facts.get(last.base_offset)
        if last is not None and facts is not None and facts.next_offset > last.next_offset:
            return Loss(first_offset=end, next_offset=self.durable_end, found=_shorter(last, facts))
        return self._missing_files(end, self.durable_end)

    def find_loss_after(self, segment: Segment, following: int | None) -> Loss | None:
        """The loss after a segment that was read; `following` is the base of the next one.

        A file may have reached the medium while the one before it, or its end, did not.
        """
        if following is None:
            return self.find_missing_end([segment])
        return self.find_gap(segment, following)

    def quarantine(self, loss: Loss) -> None:
        """Open the log read-only, up to the first missing offset."""
        assert loss.first_offset < loss.next_offset, f"a loss of nothing: {loss}"
        reason = (
            f"offsets {loss.first_offset} to {loss.next_offset - 1} were durable and are gone: "
            f"{loss.found}{self._times(loss)}"
        )
        quarantine(
            self._opening,
            QuarantineKind.LOST,
            good_until=loss.first_offset,
            reason=reason,
            durable_end=self.durable_end,
        )

    def _missing_files(self, first_offset: int, next_offset: int) -> Loss:
        """A loss of whole segments, with the names of their files as far as they are known."""
        at = bisect_left(self._bases, first_offset)
        bases = [base for base in self._bases[at:] if base < next_offset]
        paths = [self._path(base) for base in bases]
        if not paths:
            found = "no file has them"
        elif len(paths) == 1:
            found = f"{paths[0]} is missing"
        else:
            found = f"{len(paths)} segments from {paths[0]} on are missing"
        return Loss(first_offset=first_offset, next_offset=next_offset, found=found)

    def _times(self, loss: Loss) -> str:
        """The timestamps between which the missing records lie, as far as they are known."""
        touched = [
            facts
            for facts in self._facts.values()
            if facts.base_offset < loss.next_offset and facts.next_offset > loss.first_offset
        ]
        newest = max((facts.max_timestamp for facts in touched), default=-1)
        oldest = min((facts.min_timestamp for facts in touched), default=-1)
        if newest < 0:
            return ""
        if 0 <= oldest < INT64_MAX:
            return f"; their timestamps lie between {_time_text(oldest)} and {_time_text(newest)}"
        return f"; their timestamps lie up to {_time_text(newest)}"

    def _path(self, base: int) -> str:
        return segment_file_path(self._opening.path, base, LOG_SUFFIX)


def quarantine(
    opening: DirectoryOpening,
    kind: QuarantineKind,
    *,
    good_until: int,
    reason: str,
    durable_end: int,
) -> None:
    """Note why the log is read-only, and that it can be read only below `good_until`.

    Offsets below `durable_end` were durable.
    """
    opening.quarantine = LogQuarantined(
        opening.path,
        good_until=good_until,
        reason=reason,
        kind=kind,
        durable_end=durable_end,
        is_tiered=opening.config.remote_storage_enable,
    )
    opening.report.notes.append(opening.quarantine.reason)


def _shorter(segment: Segment, facts: SegmentFacts) -> str:
    return (
        f"{segment.log.path} has {segment.size} bytes and ends at offset {segment.next_offset}, "
        f"it had {facts.size_bytes} and ended at {facts.next_offset}"
    )


def _time_text(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return f"{timestamp_ms} ms"
