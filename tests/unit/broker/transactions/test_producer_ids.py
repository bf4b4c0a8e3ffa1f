from __future__ import annotations

from typing import Any, cast

from broker.transactions.producer_ids import BLOCK_SIZE, ProducerIds
from tests.unit.broker.groups.fakes import FakeTopics


def test_is_one_block_reserved_for_many_ids() -> None:
    topics = FakeTopics()
    ids = ProducerIds(cast(Any, topics))
    assert [ids.allocate() for _ in range(BLOCK_SIZE)] == list(range(BLOCK_SIZE))
    assert topics.next_producer_id == BLOCK_SIZE
    assert ids.allocate() == BLOCK_SIZE


def test_are_ids_never_repeated_after_a_restart() -> None:
    topics = FakeTopics()
    ProducerIds(cast(Any, topics)).allocate()
    assert ProducerIds(cast(Any, topics)).allocate() == BLOCK_SIZE
