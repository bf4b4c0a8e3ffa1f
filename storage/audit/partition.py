"""The audit of one partition directory: do all its files agree with the log?

Owns the rules about a single log. It derives everything from the `.log` files, one walk over
each, and compares: the indexes entry by entry, the transaction index and the producer snapshots
with a replay, the leader epochs and the manifest with the batches. It shares no code with the
engine's own writers and readers of indexes, because the same mistake in both would not show.

| rule | about                                                                              |
|------|------------------------------------------------------------------------------------|
| D1   | segments follow each other; first base <= log start <= log end; all offsets that   |
|      | the manifest has from the log start on are there                                   |
| D2   | batches are whole, their checksums right, offsets rise, records and headers agree  |
| D3   | time index: strictly rising, each entry the running maximum, the last one the max; |
|      | auxiliary indexes: `storage.audit.auxiliary`                                       |
| D4   | offset index: strictly rising, each position a batch that ends at the entry        |
| D6   | transaction index, producer snapshots, leader epochs, manifest agree with the log  |
| D8   | no temporary files                                                                 |

D5 (an index rebuilt from the log answers as the live one does) follows from D3 and D4: every entry
is correct, and lookups scan forward from an entry that is not above their target.

A log that was not stopped cleanly may be torn from its recovery point on, and the indexes of the
segments from there on are unfinished. The next start repairs that, so these faults are warnings
there and errors elsewhere.

Reads only. Source: the audit rules are ours; formats as in the modules named. Next:
`storage.audit.fsck`.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from protocol.errors import ProtocolError
from protocol.records.checksums import crc32c
from protocol.records.layout import (
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TimestampType,
)
from protocol.records.scan import Entry, Stop, iter_records, scan_checked
from storage.audit.auxiliary import AUXILIARY_READERS
from storage.audit.findings import Finding, IndexProblem, LogSummary, SegmentSummary, Severity
from storage.disk import file_names
from storage.disk.checkpoints import CorruptCheckpoint
from storage.disk.files import TEMPORARY_SUFFIX, Files
from storage.log.leader_epochs import LEADER_EPOCHS_NAME, LeaderEpochs, parse_leader_epochs
from storage.producers.snapshots import CorruptSnapshot, decode_snapshot
from storage.producers.state import EndTxnMarker, ProducerEntry, ProducerState
from storage.segment.facts import UNKNOWN, UNKNOWN_MINIMUM, RemoteObject
from storage.segment.manifest import Manifest

CHUNK_BYTES: Final = 4 * 2**20

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TXN_ENTRY: Final = struct.Struct(">hqqqq")


class PartitionAudit:
    """One audit of one directory; `run` once, then `findings` and `summary` are complete."""

    def __init__(
        self,
        directory: str,
        files: Files,
        *,
        stopped_cleanly: bool,
        recovery_point: int = 0,
        log_start: int = 0,
        is_compacted: bool = False,
        is_tiered: bool = False,
        deep: bool = True,
    ) -> None:
        """Audit `directory`; `deep` also decodes the records, which takes most of the time.

        `recovery_point` and `log_start` are the checkpoints: everything below the first had been
        synced, everything below the second is deleted. With `is_tiered` the first segments may be
        in an object store only.
        """
        self.findings: list[Finding] = []
        self.summary = LogSummary()
        self._directory = directory
        self._files = files
        self._clean = stopped_cleanly
        self._manifest = manifest = Manifest(directory, files)
        known_gaps = max(manifest.cleaned_offset, manifest.lost_offset) != NO_OFFSET
        self._recovery_point = max(recovery_point, manifest.durable_offset)
        self._log_start = max(log_start, manifest.log_start_offset)
        self._has_swaps = False
        self._is_compacted = is_compacted or known_gaps
        self._is_tiered = is_tiered
        self._deep = deep
        self._producers = ProducerState(expiration_ms=2**63)
        self._snapshots: dict[int, bytes] = {}
        self._epochs: LeaderEpochs | None = None
        self._remote: dict[int, RemoteObject] = {}
        self._first_replayed = 0

    def run(self) -> None:
        """Run the audit. Raises OSError when a file cannot be read."""
        names = self._files.list_directory(self._directory)
        bases = self._sort_names(names)
        self._read_epochs(names)
        self._read_snapshots()
        expected_base = bases[0] if bases else 0
        if self._is_tiered and not self._manifest.facts and self._log_start < expected_base:
            # The same rule as `storage.recovery.loss`.
            path = f"{self._directory}/{file_names.MANIFEST_NAME}"
            expected = f"the objects of offsets {self._log_start} to {expected_base - 1}"
            self._report("D1", path, expected, "no line of any")
        self.summary.first_base_offset = expected_base
        self._first_replayed = expected_base
        below = [base for base in bases if base < self._recovery_point]
        first_recovered = below[-1] if below else 0
        ends: list[int] = []
        for base in bases:
            if base != expected_base and not (self._is_compacted and base > expected_base):
                path = self._path(base, file_names.LOG_SUFFIX)
                is_cut = expected_base >= self._recovery_point
                self._report("D1", path, f"base {expected_base}", str(base), ending=is_cut)
            if base in self._remote:
                expected_base = self._first_replayed = self._check_remote(base)
                # What is in an object store only cannot be replayed: it begins after that.
                self._producers = ProducerState(expiration_ms=2**63)
                ends.append(expected_base)
                continue
            segment = self._walk(base)
            # After a crash, a start rebuilds the indexes of these.
            is_recovered = base >= first_recovered
            self._check_offset_index(segment, is_recovered)
            self._check_time_index(segment, is_recovered)
            self._check_auxiliary_indexes(segment)
            self._check_txn_index(segment, is_recovered)
            self._check_facts(segment, is_recovered)
            expected_base = segment.next_offset
            ends.append(expected_base)
            self.summary.segments += 1
            self.summary.size_bytes += segment.size
        self.summary.log_end_offset = expected_base
        self._check_known_segments(bases, ends)
        self._check_after_walk()

    # --- names ----------------------------------------------------------------------------------

    def _sort_names(self, names: list[str]) -> list[int]:
        """The bases of the segments; notes the snapshots, reports forbidden files."""
        parsed_names = [(name, file_names.parse_segment_file_name(name)) for name in names]
        here = {
            parsed.base_offset for _, parsed in parsed_names if parsed is not None and parsed.is_log
        }
        self._remote = self._manifest.remote_only(here)
        bases = sorted(here | self._remote.keys())
        for name, parsed in parsed_names:
            path = f"{self._directory}/{name}"
            if name.endswith((TEMPORARY_SUFFIX, file_names.CLEANED_SUFFIX, file_names.SWAP_SUFFIX)):
                self._report("D8", path, "no file of unfinished work", name, ending=True)
                self._has_swaps |= name.endswith(file_names.SWAP_SUFFIX)
            elif parsed is None or parsed.stage or parsed.kind == file_names.LOG_SUFFIX:
                # `.deleted` files wait for their delay, and a start removes them.
                continue
            elif parsed.kind == file_names.SNAPSHOT_SUFFIX:
                self._snapshots[parsed.base_offset] = b""
            elif parsed.base_offset not in bases:
                self._report("D8", path, "a .log of the same base", "none", ending=True)
        return bases

    def _read_snapshots(self) -> None:
        for offset in self._snapshots:
            self._snapshots[offset] = self._files.read_all(
                self._path(offset, file_names.SNAPSHOT_SUFFIX)
            )

    def _read_epochs(self, names: list[str]) -> None:
        if LEADER_EPOCHS_NAME not in names:
            return
        path = f"{self._directory}/{LEADER_EPOCHS_NAME}"
        try:
            self._epochs = LeaderEpochs(parse_leader_epochs(self._files.read_all(path)))
        except CorruptCheckpoint as error:
            self._report("D6", path, "rising leader epochs", str(error), ending=True)

    def _check_remote(self, base: int) -> int:
        """Compare the indexes of a segment in an object store with its facts; returns its end.

        The bytes of its log were verified when they were uploaded, and no audit fetches them.
        """
        facts, where = self._manifest.facts[base], self._remote[base]
        if (where.log_bytes, where.next_offset) != (facts.size_bytes, facts.next_offset):
            path = f"{self._directory}/{file_names.MANIFEST_NAME}"
            expected = f"{facts.size_bytes} bytes up to offset {facts.next_offset} in {where.key}"
            found = f"{where.log_bytes} up to {where.next_offset}"
            self._report("D6", path, expected, found)
        for kind, crc in (
            (file_names.OFFSET_INDEX_SUFFIX, facts.offset_index_crc),
            (file_names.TIME_INDEX_SUFFIX, facts.time_index_crc),
        ):
            path = self._path(base, kind)
            # The first use fetches one that is missing, so a restore writes none.
            found_crc = crc32c(self._files.read_all(path)) if self._files.exists(path) else crc
            if found_crc != crc:
                self._report("D6", path, f"CRC-32C {crc:08x}", f"{found_crc:08x}")
        self.summary.remote_segments += 1
        self.summary.remote_bytes += where.object_bytes
        return facts.next_offset

    # --- the log --------------------------------------------------------------------------------

    def _walk(self, base: int) -> SegmentSummary:
        path = self._path(base, file_names.LOG_SUFFIX)
        segment = SegmentSummary(base_offset=base, next_offset=base)
        segment.size = self._files.size(path)
        for entry, data, start in self._entries(path, segment):
            position = start + entry.position
            self._check_entry(entry, data, path, position, segment)
            segment.batches += 1
            segment.positions[entry.last_offset] = position
            # A batch that compaction left without records has no timestamp that a lookup could
            # find.
            if entry.records_count and entry.max_timestamp > segment.max_timestamp:
                segment.max_timestamp = entry.max_timestamp
                segment.maxima[entry.last_offset] = entry.max_timestamp
            self._replay(entry, data, segment)
            segment.next_offset = entry.next_offset
            self.summary.batches += 1
            self.summary.records += entry.records_count if entry.records_count >= 0 else 1
        return segment

    def _entries(
        self, path: str, segment: SegmentSummary
    ) -> "Iterator[tuple[Entry, memoryview, int]]":
        """Entries with the chunk that holds them and the chunk's position in the file."""
        file = self._files.open(path)
        position, size = 0, segment.size
        chunk_bytes = CHUNK_BYTES
        while position < size:
            data = memoryview(file.pread(chunk_bytes, position))
            entries, end, stop = scan_checked(data)
            for entry in entries:
                yield entry, data, position
            position += end
            if stop is Stop.CORRUPT or (not entries and position + len(data) >= size):
                self._report(
                    "D2",
                    path,
                    "a whole batch with the right checksum",
                    f"{size - position} bytes that are none",
                    position=position,
                    # Where records were durable, a start keeps the damage as it is and stops.
                    ending=segment.next_offset >= self._recovery_point,
                )
                break
            # The entry is longer than the chunk: read more at once.
            chunk_bytes = CHUNK_BYTES if entries else 2 * chunk_bytes
        file.close()

    def _check_entry(
        self,
        entry: Entry,
        data: memoryview,
        path: str,
        position: int,
        segment: SegmentSummary,
    ) -> None:
        first_offset = entry.base_offset
        if entry.magic == MAGIC_V2:
            self._check_epoch(entry, path, position)
            delta = entry.last_offset - entry.base_offset
            if not self._is_compacted and delta != entry.records_count - 1:
                expected = f"{entry.records_count} records to span as many offsets"
                self._report("D2", path, expected, f"{delta + 1}", position=position)
        else:
            # The header of a wrapper has the last offset only.
            first_offset = segment.next_offset
        out_of_order = entry.last_offset < segment.next_offset or first_offset < segment.next_offset
        is_gap = first_offset > segment.next_offset and not self._is_compacted
        if out_of_order or is_gap:
            expected, found = f"offset {segment.next_offset}", f"{first_offset}"
            self._report("D2", path, expected, found, position=position)
        if self._deep:
            self._check_records(entry, data, path, position, segment)

    def _check_records(
        self,
        entry: Entry,
        data: memoryview,
        path: str,
        position: int,
        segment: SegmentSummary,
    ) -> None:
        try:
            records = list(iter_records(data[entry.position : entry.position + entry.size]))
        except ProtocolError as error:
            self._report("D2", path, "records that can be decoded", str(error), position=position)
            return
        if entry.magic == MAGIC_V2 and len(records) != entry.records_count:
            expected = f"{entry.records_count} records"
            self._report("D2", path, expected, f"{len(records)}", position=position)
        offsets = [record.offset for record in records]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] > entry.last_offset):
            self._report("D2", path, "rising record offsets", f"{offsets[:5]}", position=position)
        timestamps = [record.timestamp for record in records]
        newest = max(timestamps, default=NO_TIMESTAMP)
        newest = max(newest, NO_TIMESTAMP)
        segment.min_timestamp = min((segment.min_timestamp, *timestamps))
        segment.records += len(records)
        if records and not entry.is_control:
            segment.data_max_timestamp = max(segment.data_max_timestamp, entry.max_timestamp)
        is_own = entry.timestamp_type is TimestampType.CREATE_TIME
        if is_own and records and newest != entry.max_timestamp:
            expected = f"max timestamp {newest}"
            self._report("D2", path, expected, str(entry.max_timestamp), position=position)

    def _check_epoch(self, entry: Entry, path: str, position: int) -> None:
        stamped = entry.partition_leader_epoch
        if self._epochs is None or stamped == NO_LEADER_EPOCH:
            return
        earliest = self._epochs.earliest
        if earliest is not None and entry.base_offset < earliest.start_offset:
            # Below the log's start; the epochs there were dropped.
            return
        known = self._epochs.epoch_for_offset(entry.base_offset)
        if known != stamped:
            expected = f"leader epoch {known} of {LEADER_EPOCHS_NAME}"
            self._report("D6", path, expected, str(stamped), position=position, ending=True)

    def _replay(self, entry: Entry, data: memoryview, segment: SegmentSummary) -> None:
        """Follow producers and transactions, comparing each snapshot when its offset is reached."""
        if entry.base_offset in self._snapshots:
            self._check_snapshot(entry.base_offset)
        if entry.producer_id > NO_PRODUCER_ID:
            marker = None
            if entry.is_control:
                end = entry.position + entry.size
                for record in iter_records(data[entry.position : end]):
                    marker = EndTxnMarker.decode(record.key or b"", record.value or b"")
            completed = self._producers.update(entry, marker=marker)
            if completed is not None:
                if completed.is_aborted:
                    stable = self._producers.last_stable_offset_after(completed)
                    segment.aborted.append((*completed[:3], stable))
                self._producers.complete_txn(completed)

    # --- derived files --------------------------------------------------------------------------

    def _check_offset_index(self, segment: SegmentSummary, is_recovered: bool) -> None:
        path = self._path(segment.base_offset, file_names.OFFSET_INDEX_SUFFIX)
        report = self._reporter("D4", path, is_recovered)
        before = (-1, -1)
        for at, (relative, position) in self._index_entries(path, _OFFSET_ENTRY, report):
            offset = segment.base_offset + relative
            if offset <= before[0] or position <= before[1]:
                report("rising entries", f"({offset}, {position}) after {before}", at)
                return
            if segment.positions.get(offset) != position:
                at_position = f"a batch that ends at {offset}"
                found = f"it at {segment.positions.get(offset)}, indexed {position}"
                report(at_position, found, at)
            before = (offset, position)

    def _check_time_index(self, segment: SegmentSummary, is_recovered: bool) -> None:
        path = self._path(segment.base_offset, file_names.TIME_INDEX_SUFFIX)
        report = self._reporter("D3", path, is_recovered)
        last, last_offset = NO_TIMESTAMP, segment.base_offset
        for at, (timestamp, relative) in self._index_entries(path, _TIME_ENTRY, report):
            offset = segment.base_offset + relative
            if timestamp <= last or offset < last_offset:
                report("rising entries", f"({timestamp}, {offset}) after ({last}, ...)", at)
                return
            if segment.maxima.get(offset) != timestamp:
                expected = f"the running maximum {segment.maxima.get(offset)} at offset {offset}"
                report(expected, str(timestamp), at)
            last, last_offset = timestamp, offset
        if last != segment.max_timestamp:
            report(f"a last entry of {segment.max_timestamp}", str(last), -1)

    def _check_auxiliary_indexes(self, segment: SegmentSummary) -> None:
        for suffix, read in AUXILIARY_READERS.items():
            path = self._path(segment.base_offset, suffix)
            if not self._files.exists(path):
                continue
            index = read(self._files.read_all(path))
            problems = (index,) if isinstance(index, IndexProblem) else index.find_problems(segment)
            for position, expected, found, is_legal, is_usual in problems:
                if is_usual:
                    continue
                self._report("D3", path, expected, found, position=position, ending=True)
                if is_legal:
                    self.findings[-1] = replace(self.findings[-1], severity=Severity.WARNING)

    def _check_txn_index(self, segment: SegmentSummary, is_recovered: bool) -> None:
        path = self._path(segment.base_offset, file_names.TXN_INDEX_SUFFIX)
        report = self._reporter("D6", path, is_recovered)
        found = [
            (producer_id, first, last, stable)
            for _, (_, producer_id, first, last, stable) in self._index_entries(
                path, _TXN_ENTRY, report
            )
        ]
        expected = segment.aborted
        ends = {(txn[0], txn[2]) for txn in expected}
        is_partial = self._is_compacted or self._first_replayed > 0
        if is_partial and ends <= {(txn[0], txn[2]) for txn in found}:
            # Transactions that began before the first segment, or were compacted away, are not
            # known here, so only the ends of the known ones have to agree.
            return
        if found != expected:
            report(f"aborted transactions {expected[:3]}", f"{found[:3]}", -1)

    def _check_facts(self, segment: SegmentSummary, is_recovered: bool) -> None:
        """Check the manifest's facts about a segment, unless the file has changed since."""
        facts = self._manifest.facts.get(segment.base_offset)
        if facts is None or facts.size_bytes != segment.size:
            return
        expected = {"next_offset": segment.next_offset, "max_timestamp": segment.max_timestamp}
        if self._deep and facts.records != UNKNOWN:
            expected["records"] = segment.records
        if self._deep and facts.min_timestamp != UNKNOWN_MINIMUM:
            expected["min_timestamp"] = segment.min_timestamp
        found = {name: getattr(facts, name) for name in expected}
        if self._deep and facts.data_max_timestamp < segment.data_max_timestamp:
            # A bound: the records cut off since may have been newer.
            expected["data_max_timestamp"] = segment.data_max_timestamp
            found["data_max_timestamp"] = facts.data_max_timestamp
        if found != expected:
            path = f"{self._directory}/{file_names.MANIFEST_NAME}"
            what = f"of segment {segment.base_offset}: {expected}"
            self._report("D6", path, what, str(found), ending=is_recovered)

    def _index_entries(
        self, path: str, layout: struct.Struct, report: "Callable[[str, str, int], None]"
    ) -> "Iterator[tuple[int, tuple[int, ...]]]":
        if not self._files.exists(path):
            return
        content = self._files.read_all(path)
        rest = len(content) % layout.size
        if rest:
            report(f"entries of {layout.size} bytes", f"{rest} bytes more", len(content) - rest)
        for number, values in enumerate(layout.iter_unpack(content[: len(content) - rest])):
            yield number * layout.size, values

    def _check_snapshot(self, offset: int) -> None:
        path = self._path(offset, file_names.SNAPSHOT_SUFFIX)
        try:
            entries = {
                entry.producer_id: entry for entry in decode_snapshot(self._snapshots[offset])
            }
        except CorruptSnapshot as error:
            self._report("D6", path, "a producer snapshot", str(error), ending=True)
            return
        for replayed in self._producers:
            stored = entries.get(replayed.producer_id)
            if stored is None:
                # It may have expired; one with an open transaction cannot have.
                if replayed.txn_first_offset != NO_OFFSET and not self._is_compacted:
                    expected = f"producer {replayed.producer_id} with its open transaction"
                    self._report("D6", path, expected, "none")
                continue
            if self._is_compacted and stored.last_offset > replayed.last_offset:
                # Its last batch before the snapshot was compacted away since.
                continue
            here, there = _comparable(replayed, stored, self._first_replayed)
            if self._is_compacted:
                # The newest record of a batch may be compacted away, and with it the batch's time;
                # so may the first batch of a transaction.
                for name in ("last_timestamp", "txn_first_offset"):
                    here.pop(name, None), there.pop(name, None)
            if here != there:
                what = f"producer {replayed.producer_id} as replayed {here}"
                self._report("D6", path, what, str(there))

    def _check_known_segments(self, bases: list[int], ends: list[int]) -> None:
        """Look for offsets that the manifest has and no segment: a start quarantines such a log.

        `ends` are those of the segments at `bases`. A rewrite may have merged a segment into the
        one before it.
        """
        for base, facts in sorted(self._manifest.facts.items()):
            before = bisect_right(bases, base) - 1
            end = ends[before] if before >= 0 else base
            if end < facts.next_offset and self._log_start < facts.next_offset:
                first = max(base, end, self._log_start)
                path = self._path(base, file_names.LOG_SUFFIX)
                expected = f"offsets {first} to {facts.next_offset - 1}, which the manifest has"
                # A start puts rewritten segments in their place, and cuts what was not synced.
                is_repaired = self._has_swaps or facts.next_offset > self._recovery_point
                self._report("D1", path, expected, "none of them", ending=is_repaired)

    def _check_after_walk(self) -> None:
        end = self.summary.log_end_offset
        if end in self._snapshots:
            self._check_snapshot(end)
        for offset in self._snapshots:
            if offset > end:
                path = self._path(offset, file_names.SNAPSHOT_SUFFIX)
                self._report("D6", path, f"an offset up to {end}", str(offset), ending=True)
        if self._epochs is not None and self._epochs.entries:
            newest = self._epochs.entries[-1]
            if newest.start_offset > end:
                path = f"{self._directory}/{LEADER_EPOCHS_NAME}"
                found = f"epoch {newest.epoch} from {newest.start_offset}"
                self._report("D6", path, f"epochs up to {end}", found, ending=True)
        if self._manifest.log_start_offset != NO_OFFSET:
            self.summary.log_start_offset = self._manifest.log_start_offset

    # --- reporting ------------------------------------------------------------------------------

    def _path(self, base: int, kind: str) -> str:
        return file_names.segment_file_path(self._directory, base, kind)

    def _reporter(
        self, rule: str, path: str, is_recovered: bool
    ) -> "Callable[[str, str, int], None]":
        def report(expected: str, found: str, position: int) -> None:
            self._report(rule, path, expected, found, position=position, ending=is_recovered)

        return report

    def _report(
        self,
        rule: str,
        path: str,
        expected: str,
        found: str,
        *,
        position: int = -1,
        ending: bool = False,
    ) -> None:
        """Add a finding; `ending` says that a start after a crash would repair it."""
        repaired = ending and not self._clean
        self.findings.append(
            Finding(
                severity=Severity.WARNING if repaired else Severity.ERROR,
                rule=rule,
                path=path,
                position=position,
                expected=expected,
                found=found,
            )
        )


def _comparable(
    replayed: ProducerEntry, stored: ProducerEntry, first_base_offset: int
) -> tuple[dict[str, int], dict[str, int]]:
    """The producer state in which a replay from `first_base_offset` and a snapshot must agree.

    The snapshot may contain batches and transactions that began in records which are gone.
    """
    names = ["producer_epoch", "last_timestamp"]
    if stored.last_offset >= first_base_offset or first_base_offset == 0:
        names += ["last_sequence", "last_offset"]
    if not 0 <= stored.txn_first_offset < first_base_offset:
        names.append("txn_first_offset")
    return (
        {name: getattr(replayed, name) for name in names},
        {name: getattr(stored, name) for name in names},
    )
