"""A log with an object store: uploads, local retention, and reads that fetch what they lack."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from config import BrokerConfig, TopicConfig, load, topic_config
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from storage.disk.steps import run_steps
from storage.errors import StorageError
from storage.log.log import Log
from storage.log.lookup import TimestampOffset
from storage.log.values import Isolation, ReadResult
from storage.remote.local import drop_expired_locally
from storage.remote.object_store import ObjectStore
from storage.remote.upload import next_to_upload, upload_segment
from storage.segment.remote.log import RemoteBytesNeeded, RemoteLogFile
from tests.support.logs import LogHarness
from tests.support.simulated_store import SimulatedStore

Result = TypeVar("Result")

TOPIC_ID = bytes(range(16))
TRIES_MAX = 8


def tiered_broker() -> BrokerConfig:
    """A broker with an object store."""
    return load(command_line={"remote.storage.url": "memory:"})


def tiered_config(**settings: object) -> TopicConfig:
    """A tiered topic whose local copies go at once, unless `settings` say otherwise."""
    overrides = {"remote.storage.enable": "true", "local.retention.ms": "0"}
    overrides |= {name.replace("_", "."): str(value) for name, value in settings.items()}
    return topic_config(overrides, tiered_broker())


def upload_all(
    log: Log, store: ObjectStore, random: Random | None = None, topic_id: bytes = TOPIC_ID
) -> int:
    """Upload what is due; how many segments. Raises what an upload raises."""
    uploaded = 0
    random = random or Random()
    while (segment := next_to_upload(log)) is not None:
        run_steps(upload_segment(log, segment, topic_id, store, random))
        uploaded += 1
    return uploaded


def with_store(store: ObjectStore, read: Callable[[], Result]) -> Result:
    """The result of `read`, repeated with the bytes that it asks for, as the broker does."""
    for _ in range(TRIES_MAX):
        try:
            return read()
        except RemoteBytesNeeded as need:
            data = store.get(need.file.object.key, need.start, need.end)
            need.file.keep(need.start, data)
    raise AssertionError(f"still lacks bytes after {TRIES_MAX} requests")


def forget_all(log: Log) -> None:
    """Drop all remote bytes in memory."""
    for segment in log.segments:
        if isinstance(segment.log, RemoteLogFile):
            segment.log.close()


def read_everything(log: Log, store: ObjectStore, *, max_bytes: int = 300) -> list[Record]:
    """Every visible record from the log's start on."""
    found: list[Record] = []
    offset = log.log_start_offset
    while (result := read_at(log, store, offset, max_bytes)).records:
        for entry in scan_entries(result.records):
            records = iter_records(result.records, entry.position)
            found += [record for record in records if record.offset >= log.log_start_offset]
        offset = result.next_offset
    return found


def read_at(log: Log, store: ObjectStore, offset: int, max_bytes: int = 300) -> ReadResult:
    """One read, as a consumer's."""
    return with_store(
        store,
        lambda: log.read(offset, max_bytes=max_bytes, isolation=Isolation.READ_UNCOMMITTED),
    )


def look_up(log: Log, store: ObjectStore, timestamp: int) -> TimestampOffset | None:
    """The first record at or after `timestamp`."""
    return with_store(store, lambda: log.offset_for_timestamp(timestamp))


class TieredHarness(LogHarness):
    """A `LogHarness` with a store: a bucket that outlives crashes."""

    def __init__(self, **settings: object) -> None:
        self.store = SimulatedStore()
        super().__init__(None, **{"segment_bytes": 400, **settings})

    def topic_config(self) -> TopicConfig:
        return tiered_config(**self.settings)

    def upload(self) -> int:
        return upload_all(self.log, self.store)

    def drop_local(self) -> list[int]:
        """Apply local retention; the base offsets whose local files went."""
        return [segment.base_offset for segment in drop_expired_locally(self.log, self.now_ms)]

    def tier(self) -> None:
        """Upload all, then keep the active segment here only."""
        self.now_ms = max(self.now_ms, self.log.segments.max_timestamp) + 10_000
        self.upload()
        self.drop_local()

    def all_records(self) -> list[tuple[int, int]]:
        """(offset, timestamp) of every record."""
        return [(r.offset, r.timestamp) for r in read_everything(self.log, self.store)]


def try_upload(log: Log, store: ObjectStore) -> StorageError | None:
    """Upload what is due; the error that stopped it, or None."""
    try:
        upload_all(log, store)
    except StorageError as error:
        return error
    return None
