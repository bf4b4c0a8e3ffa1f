"""Whose transaction the records of a Produce belong to."""

from broker.transactions.coordinator import transactional_producer
from tests.support.broker import batch

_RECORDS = batch("a", producer_id=7, producer_epoch=2, base_sequence=0, is_transactional=True)


def test_the_first_batch_says_whose_it_is() -> None:
    assert transactional_producer(_RECORDS) == (7, 2)
    assert transactional_producer(_RECORDS + batch("b")) == (7, 2)


def test_records_that_are_no_batch_of_a_transaction_are_left_to_the_log() -> None:
    assert transactional_producer(None) is None
    assert transactional_producer(batch("a")) is None
    for end in range(len(_RECORDS)):
        assert transactional_producer(_RECORDS[:end]) is None
