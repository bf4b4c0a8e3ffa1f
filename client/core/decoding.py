"""The records of a batch as users get them.

Apart from `client.core.records`, because decoding needs the codecs, which Spark's executors do
without.
"""

from client.types import ConsumerRecord, TopicPartition
from protocol.records.layout import TimestampType
from protocol.records.scan import iter_records


def to_records(
    partition: TopicPartition,
    batch: memoryview,
    timestamp_type: TimestampType,
    leader_epoch: int,
    first: int = 0,
) -> list[ConsumerRecord]:
    """The records of a batch from offset `first` on, as users get them.

    Raises:
        ProtocolError: the batch does not parse.
    """
    topic, number = partition
    return [
        ConsumerRecord(
            topic,
            number,
            record.offset,
            record.timestamp,
            timestamp_type,
            record.key,
            record.value,
            record.headers,
            leader_epoch,
        )
        for record in iter_records(batch)
        if record.offset >= first
    ]
