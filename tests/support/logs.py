"""Logs, segments and batches for tests of storage: short to write, on a simulated disk.

`batch(10, 20)` is a magic 2 batch of two records with these timestamps. `LogHarness` opens a log in
a directory, remembers how, and can close it, crash it and open it again.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import cast

from config import TopicConfig, load, topic_config
from protocol.records.builder import build_batch, build_end_txn_marker, build_message_set
from protocol.records.entry import Entry
from protocol.records.layout import Codec, TimestampType
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.append.plan import Origin
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.values import AppendResult, Isolation
from storage.recovery.recovery import open_log
from storage.segment.segment import Segment
from tests.support.power_loss import Survival
from tests.support.simulated_disk import SimulatedDisk

BROKER = load()
DIRECTORY = "/data/t-0"
PRODUCE_VERSION = 9


def config(**settings: object) -> TopicConfig:
    """A topic's configuration; `segment_bytes=1000` stands for `segment.bytes=1000`."""
    overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return topic_config(overrides, BROKER)


def batch(
    *timestamps: int,
    size: int | None = None,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    value: bytes | None = b"v",
    key: bytes | None = None,
    stamped_ms: int | None = None,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of one record per timestamp; padded to exactly `size` bytes when given.

    With `stamped_ms` its type is LogAppendTime, as a broker writes it.
    """

    def build(padding: bytes) -> bytes:
        records = [Record(0, timestamp, key, value) for timestamp in timestamps[:-1]]
        records.append(Record(0, timestamps[-1], key, padding if size else value))
        if stamped_ms is None:
            return build_batch(
                records, base_offset=base_offset, codec=codec, leader_epoch=leader_epoch
            )
        return build_batch(
            records,
            base_offset=base_offset,
            codec=codec,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_timestamp=stamped_ms,
            leader_epoch=leader_epoch,
        )

    if size is None:
        return bytearray(build(b""))
    for padding in range(max(0, size - 80 - 10 * len(timestamps)), size):
        built = build(b"x" * padding)
        if len(built) == size:
            return bytearray(built)
    raise AssertionError(f"a batch of {len(timestamps)} records cannot be {size} bytes")


def messages(
    *timestamps: int, base_offset: int = 0, magic: int = 0, codec: Codec = Codec.NONE
) -> bytes:
    """Magic 0 or 1 messages as they stand in a log, one per timestamp, or one wrapper of them."""
    records = [
        Record(base_offset + index, timestamp, None, b"v")
        for index, timestamp in enumerate(timestamps)
    ]
    return build_message_set(records, magic, codec)


def marker(
    *, commit: bool, producer_id: int, timestamp_ms: int, producer_epoch: int = 0
) -> bytearray:
    """A transaction marker, ready to be appended by a coordinator."""
    return bytearray(
        build_end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=timestamp_ms,
        )
    )


def produced(
    *timestamps: int,
    producer_id: int,
    sequence: int,
    epoch: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of an idempotent or transactional producer."""
    return bytearray(
        build_batch(
            [Record(0, timestamp, None, b"v") for timestamp in timestamps],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def disk() -> SimulatedDisk:
    """A simulated disk with the partition's directory on it, durably."""
    files = SimulatedDisk()
    files.make_directory(DIRECTORY)
    files.sync_directory("/")
    files.sync_directory("/data")
    return files


def new_segment(base_offset: int = 0, *, files: Files | None = None, now_ms: int = 0) -> Segment:
    """An empty segment on a disk of its own."""
    return Segment.create(disk() if files is None else files, DIRECTORY, base_offset, now_ms=now_ms)


def add(segment: Segment, data: bytes | bytearray, *, interval: int = 0, now_ms: int = 0) -> None:
    """Append entries with their offsets as they are."""
    segment.append(data, list(scan_entries(data)), now_ms=now_ms, index_interval=interval)


def add_at_end(
    segment: Segment, *timestamps: int, interval: int = 0, size: int | None = None
) -> None:
    """Append one batch after what is there."""
    data = batch(*timestamps, base_offset=segment.next_offset, size=size)
    add(segment, data, interval=interval)


def offset_entries(segment: Segment) -> list[tuple[int, int]]:
    """All entries of the offset index: (offset, position)."""
    index = segment.offset_index
    return [(entry[0], entry[1]) for entry in map(index.entry_at, range(index.count))]


def time_entries(segment: Segment) -> list[tuple[int, int]]:
    """All entries of the time index: (timestamp, offset)."""
    index = segment.time_index
    return [(entry[0], entry[1]) for entry in map(index.entry_at, range(index.count))]


def one_record(timestamp: int, offset: int) -> Entry:
    """The header of a batch of one record, for indexes that observe appends."""
    (entry,) = scan_entries(batch(timestamp, base_offset=offset))
    return entry


class LogHarness:
    """One log on one disk, which a test opens, closes, crashes and opens again."""

    def __init__(self, files: SimulatedDisk | None = None, **settings: object) -> None:
        self.files = disk() if files is None else files
        self.path = DIRECTORY
        self.now_ms = 1_000
        self.settings: Mapping[str, object] = settings
        self.log = self.open(is_clean=True)

    @classmethod
    def on_real_files(cls, directory: str, files: Files, **settings: object) -> "LogHarness":
        """The same on a real directory; `files` then has none of the simulated disk's levers."""
        log = cls.__new__(cls)
        log.files, log.path = cast(SimulatedDisk, files), directory
        log.now_ms, log.settings = 1_000, settings
        log.open(is_clean=False)
        return log

    @classmethod
    def after_power_cut(
        cls, log: "LogHarness", seed: int, survival: Survival, *, recovery_point: int = 0
    ) -> "LogHarness":
        """What another process finds on the disk when the power comes back."""
        again = cls.__new__(cls)
        again.files, again.path = log.files.power_cut(seed, survival), log.path
        again.now_ms, again.settings = log.now_ms, log.settings
        again.open(is_clean=False, recovery_point=recovery_point)
        return again

    def open(
        self,
        *,
        is_clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
    ) -> Log:
        """Open the directory as it is; the log is `self.log` from now on."""
        self.log = open_log(
            self.path,
            topic="t",
            partition=0,
            config=self.topic_config(),
            files=self.files,
            now_ms=self.now_ms,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            cleaned_offset=cleaned_offset,
            random=Random(0),
        )
        return self.log

    def reopen(self) -> Log:
        """Stop cleanly and start again."""
        self.log.close(self.now_ms)
        return self.open(is_clean=True, log_start_offset=self.log.log_start_offset)

    def crash(self, *, recovery_point: int = 0) -> Log:
        """Stop without a word and start again; the page cache survives."""
        self.log.abandon()
        return self.open(is_clean=False, recovery_point=recovery_point)

    def topic_config(self) -> TopicConfig:
        """The topic's configuration."""
        return config(**self.settings)

    def configure(self, **settings: object) -> None:
        """Change the topic's configuration."""
        self.settings = {**self.settings, **settings}
        self.log.reconfigure(self.topic_config())

    def append(self, *timestamps: int, flush: bool = True, **options: object) -> AppendResult:
        """Append one batch made by `batch`, and make it visible."""
        return self.write(batch(*timestamps, **options), flush=flush)  # type: ignore[arg-type]

    def write(
        self, data: bytearray | bytes, *, flush: bool = True, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Append bytes, and make them visible."""
        version = PRODUCE_VERSION if origin is Origin.CLIENT else None
        result = self.log.append(
            memoryview(bytearray(data)), now_ms=self.now_ms, origin=origin, produce_version=version
        )
        if flush:
            self.log.flush()
        return result

    def place(self, base_offset: int, data: bytes) -> None:
        """Put a `.log` file with this content into the directory, as another program may have."""
        self.files.create(f"{self.path}/{base_offset:020d}.log").append(data)

    def records(self, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[Record]:
        """Every visible record, read the way a consumer does."""
        return list(read_all(self.log, isolation=isolation))

    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return [segment.base_offset for segment in self.log.segments]

    def names(self) -> list[str]:
        """The files in the directory."""
        return self.files.list_directory(self.path)


def read_all(
    log: Log, *, max_bytes: int = 300, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Iterator[Record]:
    """Every visible record from the log's start on."""
    offset = log.log_start_offset
    while log.quarantine is None or offset < log.quarantine.good_until:
        result = log.read(offset, max_bytes=max_bytes, isolation=isolation)
        if not result.records:
            return
        for entry in scan_entries(result.records):
            for record in iter_records(result.records, entry.position):
                if record.offset >= log.log_start_offset:
                    yield record
        assert result.next_offset > offset, "a read that brings records must lead on"
        offset = result.next_offset
