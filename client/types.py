"""The values that users of the client hold: partitions, records and their metadata.

Plain data, without behaviour or connection: these may be kept, compared and sent elsewhere. Times
are milliseconds since the epoch in fields that end in ``_ms``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, NamedTuple, TypedDict

from client.times import datetime_of
from protocol.records.layout import TimestampType

if TYPE_CHECKING:
    # Checkers of types know defaults (PEP 696) before Python 3.13 does.
    from typing_extensions import TypeVar

    KeyT = TypeVar("KeyT", default=bytes)
    ValueT = TypeVar("ValueT", default=bytes)
else:
    from typing import TypeVar

    KeyT = TypeVar("KeyT")
    ValueT = TypeVar("ValueT")

Header = tuple[str, bytes | None]

NO_GENERATION = -1


class TopicPartition(NamedTuple):
    """A named log: the unit of order, of offsets and of assignment."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """``topic-partition``, as Kafka writes it in messages."""
        return f"{self.topic}-{self.partition}"


class RecordOptions(TypedDict, Generic[KeyT], total=False):
    """What a record to be sent may have besides its topic and value; see `Producer.send`."""

    key: KeyT | None
    partition: int | None
    timestamp_ms: int | datetime | None
    headers: Iterable[Header]


class ConsumerRecord(NamedTuple, Generic[KeyT, ValueT]):
    """One record as it was read.

    `key` and `value` are bytes, or what the consumer's deserializers make of them; None stays None.
    `timestamp_ms` is the producer's time or the broker's, by `timestamp_type`; it is
    ``NO_TIMESTAMP`` (-1) for records of format 0. `leader_epoch` is -1 where the record's format
    carries none. `delivery_count` is how often a share group has delivered it, this time included;
    0 outside of share groups.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: KeyT | None
    value: ValueT | None
    headers: Sequence[Header]
    leader_epoch: int
    delivery_count: int = 0

    @property
    def time(self) -> datetime | None:
        """`timestamp_ms` as an aware `datetime` in UTC, None where the record carries no time."""
        return datetime_of(self.timestamp_ms)

    @property
    def topic_partition(self) -> TopicPartition:
        """The log this record was read from."""
        return TopicPartition(self.topic, self.partition)


class RecordMetadata(NamedTuple):
    """The stored position of a produced record.

    `offset` is -1 with acks=0, where the broker sends no answer. `timestamp_ms` is the time that
    was stored: the broker's own under LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType

    @property
    def time(self) -> datetime | None:
        """`timestamp_ms` as an aware `datetime` in UTC, None where there is no time."""
        return datetime_of(self.timestamp_ms)


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, its own timestamp, its leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int

    @property
    def time(self) -> datetime | None:
        """`timestamp_ms` as an aware `datetime` in UTC, None where there is no time."""
        return datetime_of(self.timestamp_ms)


class RecordsBefore(NamedTuple):
    """The records of a partition up to the first one at or after a time; all of them are older.

    Attributes:
        start: the first offset of the partition.
        stop: the offset of the first record at or after the time; without one it is `end`.
        end: one past the last offset.
        next_ms: the time of that record, None without one.
    """

    start: int
    stop: int
    end: int
    next_ms: int | None


class OffsetAndMetadata(NamedTuple):
    """A group's position: the next offset to read, with a note of the committer's choice."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """In whose name a group's offsets are committed; by default from outside, by no member.

    Attributes:
        group_id: the group.
        generation: the generation, or a member of the consumer protocol's epoch; -1 for no member.
        member_id: the member, empty for none.
        instance_id: the name of a static member.
        has_epoch: whether `generation` is a member epoch, which may grow while a request is sent.
        joins_count: how often the member has joined; what it owned before the last time is lost.
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    has_epoch: bool = False
    joins_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker of the cluster, where clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return format_address(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """Who serves a partition; `leader` is a node id, -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as the cluster describes it; `topic_id` is 16 zero bytes where brokers have none."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


def format_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
