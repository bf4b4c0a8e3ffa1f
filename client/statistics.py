"""What a producer or a consumer counts, for the user's callback of statistics.

Plain values of one moment. Counters begin with 0 when the client starts and only rise; the rest is
the state at `time_ms`. Kafka's clients and librdkafka have the same figures under other names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from client.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatistics:
    """A producer's figures.

    Attributes:
        time_ms: when they were taken, milliseconds since the epoch.
        records_stored: acknowledged records.
        records_failed: records that were given up.
        bytes_stored: of keys, values and headers, with 24 bytes for each record.
        batches_stored: acknowledged batches.
        records_waiting: records without an outcome.
        buffered_bytes: their bytes; `send` waits above ``buffer_bytes``.
    """

    time_ms: int
    records_stored: int
    records_failed: int
    bytes_stored: int
    batches_stored: int
    records_waiting: int
    buffered_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatistics:
    """One partition that a consumer reads; None where it is not known yet.

    Attributes:
        position: the next offset to be handed out.
        committed: the offset that this consumer committed last, with auto-commit.
        end: one past the last offset that the latest fetch saw.
        lag: offsets from `position` to `end`.
        buffered_bytes: fetched bytes that wait to be handed out.
        is_paused: whether `pause` holds it back.
    """

    position: int | None
    committed: int | None
    end: int | None
    lag: int | None
    buffered_bytes: int
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatistics:
    """A consumer's figures.

    Attributes:
        time_ms: when they were taken, milliseconds since the epoch.
        records: records handed out.
        fetches: answers with records.
        bytes_fetched: compressed bytes in these answers.
        partitions: those that are read now.
    """

    time_ms: int
    records: int
    fetches: int
    bytes_fetched: int
    partitions: Mapping[TopicPartition, PartitionStatistics]

    @property
    def lag(self) -> int:
        """The sum over all partitions whose lag is known."""
        return sum(one.lag or 0 for one in self.partitions.values())
