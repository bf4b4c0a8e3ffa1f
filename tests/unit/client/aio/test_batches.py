"""The producer's queues: order, numbers, and what a delivery tells."""

import pytest

from client.aio.batches import BATCH_OVERHEAD_BYTES, Batch, Delivery, PartitionQueue
from client.errors import BrokerRefused, BrokerUnreachable
from client.types import RecordMetadata, TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.layout import NO_SEQUENCE, TimestampType
from protocol.records.record import Record

TP = TopicPartition("t", 0)
LIMIT = BATCH_OVERHEAD_BYTES + 100


def add(queue: PartitionQueue, size_bytes: int = 50, timestamp: int = 7) -> Delivery:
    record = Record(0, timestamp, None, b"v")
    return queue.append(record, size_bytes, limit_bytes=LIMIT, now=0.0)


def number(queue: PartitionQueue, batch: Batch) -> None:
    batch.sequence = queue.next_sequence
    batch.encoded = b"encoded"
    queue.next_sequence += len(batch.records)


def filled(batches: int) -> PartitionQueue:
    """A queue with full, numbered batches of two records, all under way."""
    queue = PartitionQueue(TP)
    for _ in range(2 * batches):
        add(queue)
    for _ in range(batches):
        number(queue, queue.take())
    return queue


async def test_records_share_a_batch_until_it_is_full() -> None:
    queue = PartitionQueue(TP)
    for _ in range(3):
        add(queue)
    assert [len(batch.records) for batch in queue.waiting] == [2, 1]
    assert queue.has_full_batch(LIMIT)


async def test_an_encoded_batch_takes_no_more_records() -> None:
    queue = PartitionQueue(TP)
    add(queue, size_bytes=1)
    number(queue, queue.waiting[0])
    add(queue, size_bytes=1)
    assert len(queue.waiting) == 2


async def test_what_is_sent_again_goes_before_everything_later() -> None:
    queue = filled(3)
    first, second, third = queue.in_flight
    add(queue)
    for batch in (second, third, first):
        queue.send_again(batch)
    assert list(queue.waiting)[:3] == [first, second, third]


async def test_nothing_goes_until_all_under_way_came_back() -> None:
    queue = filled(2)
    first, second = queue.in_flight
    queue.send_again(first)
    assert queue.is_recovering
    queue.send_again(second)
    assert not queue.is_recovering


async def test_after_a_refusal_later_batches_get_new_numbers() -> None:
    queue = filled(3)
    first, second, third = queue.in_flight
    queue.send_again(third)
    queue.settle(first)
    queue.renumber_from(first.sequence)
    assert (queue.next_sequence, third.sequence) == (0, NO_SEQUENCE)
    queue.send_again(second)
    assert second.sequence == NO_SEQUENCE
    assert list(queue.waiting) == [second, third]


async def test_the_oldest_unsettled_batch_is_known() -> None:
    queue = filled(2)
    first, second = queue.in_flight
    assert queue.is_oldest_unsettled(first)
    assert not queue.is_oldest_unsettled(second)
    queue.settle(first)
    assert queue.is_oldest_unsettled(second)


async def test_a_delivery_tells_offset_and_the_given_time() -> None:
    queue = PartitionQueue(TP)
    add(queue)
    delivery = add(queue, timestamp=9)
    assert not delivery.is_done
    batch = queue.take()
    queue.settle(batch)
    batch.succeed(100, -1)
    assert await delivery == RecordMetadata("t", 0, 101, 9, TimestampType.CREATE_TIME)


async def test_a_delivery_tells_the_brokers_time_where_it_stamps() -> None:
    queue = PartitionQueue(TP)
    delivery = add(queue)
    queue.take().succeed(5, 1234)
    assert await delivery == RecordMetadata("t", 0, 5, 1234, TimestampType.LOG_APPEND_TIME)


async def test_each_record_of_a_failed_batch_has_its_own_error() -> None:
    queue = PartitionQueue(TP)
    innocent, guilty = add(queue), add(queue)
    batch = queue.take()
    bad = BrokerRefused("x", ErrorCode.INVALID_TIMESTAMP, detail="too old")
    batch.fail(BrokerRefused("x", ErrorCode.INVALID_TIMESTAMP, detail="rejected"), {1: bad})
    with pytest.raises(BrokerRefused, match="rejected"):
        await innocent
    with pytest.raises(BrokerRefused, match="too old"):
        await guilty
    assert batch.is_observed


async def test_acks_0_has_no_offset() -> None:
    queue = PartitionQueue(TP)
    delivery = add(queue)
    queue.take().succeed(-1, -1)
    assert (await delivery).offset == -1


async def test_a_delivery_may_be_awaited_twice() -> None:
    queue = PartitionQueue(TP)
    delivery = add(queue)
    queue.take().fail(BrokerUnreachable("gone"))
    for _ in range(2):
        with pytest.raises(BrokerUnreachable):
            await delivery


async def test_a_delivery_does_not_show_the_records_of_its_batch() -> None:
    queue = PartitionQueue(TP)
    delivery = queue.append(Record(0, 7, None, b"secret"), 50, limit_bytes=LIMIT, now=0.0)
    assert "secret" not in repr(delivery) + repr(queue.take())
