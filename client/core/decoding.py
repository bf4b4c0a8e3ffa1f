"""The records of a batch as users get them.

Apart from `client.core.records`, because decoding needs the codecs, which Spark's executors do
without.
"""

from client.types import ConsumerRecord, TopicPartition
from protocol.records.batch import RecordBatch
from protocol.records.layout import MAGIC_AT, MAGIC_V2, TimestampType
from protocol.records.record import decode_fields
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
    is_v2 = batch[MAGIC_AT] == MAGIC_V2
    records = decode_fields(RecordBatch(batch)) if is_v2 else iter_records(batch)
    # Without the call of a Python function, which is what a named tuple's own constructor is.
    new, kind = tuple.__new__, ConsumerRecord
    stamp, epoch = timestamp_type, leader_epoch
    return [
        new(kind, (topic, number, offset, time_ms, stamp, key, value, headers, epoch, 0))
        for offset, time_ms, key, value, headers in records
        if offset >= first
    ]
