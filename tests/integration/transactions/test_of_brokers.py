"""AddPartitionsToTxn of brokers (versions 4 and 5, KIP-890): several transactions, verification.

What the answers should be was asked of Apache Kafka 4.3.1 (`tests/requests_differential`).
"""

from __future__ import annotations

import pytest

from protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes
from tests.integration.transactions.test_wire import Session
from tests.support.broker import RunningBroker

NONE = ErrorCode.NONE
VERSIONS = (4, 5)


def of(
    session: Session,
    *topics: tuple[str, tuple[int, ...]],
    verify_only: bool = False,
    name: str = "x",
    epoch: int | None = None,
) -> AddPartitionsToTxnTransaction:
    """What a broker says of one transaction."""
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=session.producer_id,
        producer_epoch=session.epoch if epoch is None else epoch,
        verify_only=verify_only,
        topics=[NamedIndexes(name=topic, partitions=list(indexes)) for topic, indexes in topics],
    )


async def ask(
    session: Session, version: int, *transactions: AddPartitionsToTxnTransaction
) -> list[tuple[str, list[tuple[str, int, ErrorCode]]]]:
    """The outcome of each partition, by transaction."""
    request = AddPartitionsToTxnRequest(transactions=list(transactions))
    answer = await session.client.request(request, version)
    assert answer.error_code == NONE
    return [
        (
            each.transactional_id,
            [
                (topic.name, part.partition_index, ErrorCode(part.partition_error_code))
                for topic in each.topic_results
                for part in topic.results_by_partition
            ],
        )
        for each in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_several_transactions_are_added_to(broker: RunningBroker, version: int) -> None:
    one = await Session.open(broker)
    await one.init("x")
    two = await Session.open(broker, creating=False)
    two.name = "y"
    await two.init("y")
    asked = (
        of(one, ("t", (0, 1))),
        of(two, ("t", (1, 7)), name="y"),
        of(two, ("t", (0,)), ("__consumer_offsets", (0,)), name="y"),
        of(two, ("t", (0,)), name="z"),
        of(one, ("t", (0,)), name=""),
    )
    assert await ask(one, version, *asked) == [
        ("x", [("t", 0, NONE), ("t", 1, NONE)]),
        (
            "y",
            [
                ("t", 1, ErrorCode.OPERATION_NOT_ATTEMPTED),
                ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        ),
        ("y", [("t", 0, NONE), ("__consumer_offsets", 0, NONE)]),
        ("z", [("t", 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]),
        ("", [("t", 0, ErrorCode.INVALID_REQUEST)]),
    ]
    assert await one.produce("a", partition=1, is_transactional=True) == (NONE, 0)
    assert await one.end() == NONE
    assert await one.read(1) == ["a"]
    assert await two.end(is_commit=False) == NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_partitions_are_verified_and_not_added(broker: RunningBroker, version: int) -> None:
    session = await Session.open(broker)
    await session.init("x")
    assert await session.add(0) == [NONE]

    async def verified(
        *indexes: int, epoch: int | None = None, name: str = "x"
    ) -> list[tuple[str, int, ErrorCode]]:
        asked = of(session, ("t", indexes), verify_only=True, epoch=epoch, name=name)
        ((_, found),) = await ask(session, version, asked)
        return found

    for _ in range(2):
        assert await verified(0, 1, 0) == [
            ("t", 0, NONE),
            ("t", 1, ErrorCode.TRANSACTION_ABORTABLE),
        ]
    fenced = session.epoch + 1
    assert await verified(0, epoch=fenced) == [("t", 0, ErrorCode.PRODUCER_FENCED)]
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await verified(0, name="y") == [("t", 0, unknown)]
    assert await session.end() == NONE
    assert await verified(0) == [("t", 0, ErrorCode.TRANSACTION_ABORTABLE)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_transactions_are_answered(broker: RunningBroker, version: int) -> None:
    assert await ask(await Session.open(broker), version) == []
