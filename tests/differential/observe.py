"""One broker given the whole catalogue: what it answered, stored, found and gave back.

Every case has a partition of its own in a topic per setting, so that one refusal does not move the
offsets of the next case. What cannot be equal is made equal here and nowhere else: the time of an
append becomes `APPENDED`, and compressed bytes that a broker made itself are compared by what is in
them. Everything else is compared as it is.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from protocol.errors import ProtocolError
from protocol.records.scan import Entry, Stop, iter_records, scan_checked
from tests.differential.catalogue import BEFORE_MAX_MS, TIMES_NEAR_NOW, Case
from tests.support.wire import Produced, Wire

APPENDED: Final = "time of the append"
CLOSED: Final = "closed the connection"

_CLOCK_TOLERANCE_MS: Final = 120_000
_MAX_INT64: Final = str(2**63 - 1)
_COMMON: Final = {
    "index.interval.bytes": "200",
    "segment.bytes": str(1 << 20),
    "retention.ms": "-1",
    "max.message.bytes": "2000000",
    # Kafka maps this much for each of two indexes of each partition.
    "segment.index.bytes": "65536",
}

SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "create-time": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "bounded": {
        "message.timestamp.before.max.ms": str(BEFORE_MAX_MS),
        "message.timestamp.after.max.ms": str(BEFORE_MAX_MS),
    },
    "compacted": {"cleanup.policy": "compact"},
    "gzip": {"compression.type": "gzip"},
    "lz4": {"compression.type": "lz4"},
    "uncompressed": {"compression.type": "uncompressed"},
    "small-messages": {"max.message.bytes": "1000"},
}
"""Topic by topic, what is set besides what is set for all."""

_WANTED: Final[Mapping[str, tuple[str, ...]]] = {
    "bounded": (" times ", "flagged", "no key"),
    "compacted": ("odd", "three", "no key", "times none"),
    "gzip": ("three", "odd", "times", "wrapper", "deltas", "headers", "long random"),
    "lz4": ("three", "odd", "headers", "LZ4", "long random"),
    "uncompressed": ("three", "odd", "headers", "deltas", "wrapper", "long random"),
    "small-messages": ("bytes",),
}
"""Parts of names, where only some cases can tell something new."""


@dataclass
class Observed:
    """What one case did, aspect by aspect; an aspect that was not looked at is absent."""

    aspects: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Reach:
    """What both brokers speak, as far as it makes a difference.

    `has_topic_settings` is False for brokers before CreateTopics, which make topics themselves.
    """

    produce: range
    fetch: tuple[int, ...]
    list_offsets: range
    has_batches: bool
    has_bounds: bool
    create_topics: int | None


def wanted(settings: str, case: Case, reach: Reach) -> bool:
    """Whether the case is sent to this topic of this broker."""
    parts = _WANTED.get(settings)
    if parts is not None and not any(part in case.name for part in parts):
        return False
    if any(version not in reach.produce for version, _ in case.sends):
        return False
    return reach.has_batches or not any(
        len(records) > 16 and records[16] >= 2 for _, records in case.sends
    )


def topic_settings(name: str, reach: Reach) -> dict[str, str]:
    """All settings of the topic, as the older side knows them."""
    settings = {**_COMMON, **SETTINGS[name]}
    if reach.has_bounds:
        settings.setdefault("message.timestamp.after.max.ms", _MAX_INT64)
        return settings
    bound = settings.pop("message.timestamp.before.max.ms", _MAX_INT64)
    settings.pop("message.timestamp.after.max.ms", None)
    return {**settings, "message.timestamp.difference.max.ms": bound}


class Observer:
    """Sends cases to one broker and looks at the results."""

    def __init__(self, bootstrap: str, data: Path, reach: Reach) -> None:
        self._bootstrap = bootstrap
        self._data = data
        self._reach = reach
        self._wire = Wire(bootstrap)
        self._started_ms = time.time_ns() // 1_000_000

    def close(self) -> None:
        self._wire.close()

    def run(self, topic: str, cases: Sequence[Case]) -> dict[str, Observed]:
        """All cases of one topic, by name; the topic is made here."""
        if self._reach.create_topics is None:
            self._wire.wait_for_topic(topic)
        else:
            self._wire.create_topic(
                topic,
                len(cases),
                topic_settings(topic, self._reach),
                version=self._reach.create_topics,
            )
        found = {}
        for partition, case in enumerate(cases):
            found[case.name] = self._run_case(topic, partition, case)
        return found

    def _run_case(self, topic: str, partition: int, case: Case) -> Observed:
        seen = Observed()
        answers = [self._send(topic, partition, *send) for send in case.sends]
        seen.aspects["answers"] = answers
        if _BY_FILE_TIMES in self._reach.list_offsets:
            seen.aspects["ends by version 0"] = [
                self._wire.offsets_before(topic, at, 10, partition=partition) for at in (-1, -2)
            ]
        if self._reach.list_offsets[-1] != _BY_FILE_TIMES:
            seen.aspects |= self._ends(topic, partition)
            times = sorted(self._times(topic, partition))
            seen.aspects["lookups"] = {at: self._lookup(topic, partition, at) for at in times}
        for version in self._reach.fetch:
            for offset in (0, 1):
                aspect = f"fetch v{version} from {offset}"
                seen.aspects[aspect] = self._fetch(topic, partition, offset, version)
        return seen

    def stored(self, topic: str, partition: int) -> dict[str, object]:
        """What is in the files; to be called when the broker has stopped cleanly."""
        directory = self._data / f"{topic}-{partition}"
        log = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        aspects: dict[str, object] = {
            "stored": self._entries(log),
            "segments": [path.stem for path in sorted(directory.glob("*.log"))],
        }
        for suffix in ("index", "timeindex"):
            files = sorted(directory.glob(f"*.{suffix}"))
            # A log that was never written to needs no index; Kafka leaves empty ones.
            aspects[suffix] = [path.read_bytes().hex() for path in files] if log else [""]
        aspects["raw"] = self._without_clock(log)
        return aspects

    # -- one thing at a time ---------------------------------------------------------------------

    def _send(self, topic: str, partition: int, version: int, records: bytes) -> object:
        try:
            got = self._wire.produce(topic, records, partition=partition, version=version)
        except (AssertionError, OSError):
            self._wire = Wire(self._bootstrap)
            return CLOSED
        return self._timeless(got)

    def _timeless(self, got: Produced) -> tuple[object, ...]:
        # Where a refusal comes from decides whether Kafka tells the log's start with it.
        start = None if got.error else got.log_start_offset
        append_time = self._time(got.log_append_time_ms)
        return (got.error, got.base_offset, append_time, start, got.record_errors)

    def _time(self, timestamp: int) -> object:
        is_now = self._started_ms - 5_000 <= timestamp <= self._started_ms + 600_000
        return APPENDED if is_now and timestamp not in TIMES_NEAR_NOW else timestamp

    def _ends(self, topic: str, partition: int) -> dict[str, object]:
        return {
            name: self._lookup(topic, partition, at)
            for name, at in _ENDS.items()
            if at != _MAX_TIMESTAMP or _MAX_TIMESTAMP_SINCE in self._reach.list_offsets
        }

    def _lookup(self, topic: str, partition: int, at: int) -> object:
        found = self._wire.offset_at(
            topic, at, partition=partition, version=self._reach.list_offsets[-1]
        )
        timestamp = self._time(found.timestamp)
        # Which of several appends had the latest millisecond is a matter of speed.
        offset = APPENDED if timestamp == APPENDED else found.offset
        return (found.error, timestamp, offset, found.leader_epoch)

    def _times(self, topic: str, partition: int) -> set[int]:
        """Around every timestamp that a consumer sees, where that is the producer's."""
        around = {0, 1, 2**62}
        for record in self._seen(topic, partition):
            if self._time(record) != APPENDED and 1 < record < 2**62:
                around |= {record - 1, record, record + 1}
        return set(sorted(around)[:: max(1, len(around) // 25)])

    def _seen(self, topic: str, partition: int) -> list[int]:
        got = self._wire.fetch(topic, 0, partition=partition, version=max(self._reach.fetch))
        with suppress(ProtocolError):
            return [record.timestamp for record in got.seen()]
        return []

    def _fetch(self, topic: str, partition: int, offset: int, version: int) -> object:
        try:
            got = self._wire.fetch(topic, offset, partition=partition, version=version)
        except (AssertionError, OSError):
            self._wire = Wire(self._bootstrap)
            return CLOSED
        if got.error:
            return got.error
        return (got.error, got.high_watermark, got.aborted, self._entries(got.records))

    # -- bytes -----------------------------------------------------------------------------------

    def _entries(self, log: bytes) -> list[object]:
        """Every entry: its header, and its records as bytes or, compressed, decoded."""
        checked = scan_checked(log)
        found = [self._entry(log, entry) for entry in checked.entries]
        if checked.stop is Stop.CORRUPT:
            found.append(f"{len(log) - checked.end_position} bytes that are no entry")
        return found

    def _entry(self, log: bytes, entry: Entry) -> object:
        payload: object
        try:
            payload = [
                (r.offset, self._time(r.timestamp), r.key, r.value, tuple(r.headers))
                for r in iter_records(log, entry.position)
            ]
        except ProtocolError as error:
            payload = f"unreadable: {type(error).__name__}"
        return (
            entry.magic,
            entry.attributes,
            # A wrapper of magic 0 or 1 has the offset of its last message, whatever its name says.
            entry.base_offset,
            entry.last_offset,
            self._time(entry.max_timestamp),
            self._time(entry.base_timestamp),
            (entry.producer_id, entry.producer_epoch, entry.base_sequence),
            entry.records_count,
            payload,
        )

    def _without_clock(self, log: bytes) -> str | None:
        """The bytes, unless a time of an append is in them or the broker compressed them."""
        entries = scan_checked(log).entries
        if any(self._time(entry.max_timestamp) == APPENDED for entry in entries):
            return None
        return log.hex()


_BY_FILE_TIMES: Final = 0
"""The version of ListOffsets that answers with a list, by the times of files."""

_MAX_TIMESTAMP: Final = -3
_MAX_TIMESTAMP_SINCE: Final = 7
_ENDS: Final = {"end": -1, "start": -2, "maximum": _MAX_TIMESTAMP}


def differing(ours: Observed, theirs: Observed) -> Iterator[str]:
    """The aspects in which two observations of one case differ."""
    same_bytes = ours.aspects.get("raw") == theirs.aspects.get("raw") is not None
    for aspect, value in theirs.aspects.items():
        if aspect == "raw":
            continue
        if aspect in ("index", "timeindex", "segments") and not same_bytes:
            # Positions differ with the sizes of what each compressed itself.
            continue
        if ours.aspects.get(aspect) != value:
            yield aspect
