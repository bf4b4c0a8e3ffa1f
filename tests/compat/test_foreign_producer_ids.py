"""Producer ids of another user: what Apache Kafka lets a client do with them, Tidelog lets too.

Kafka remembers no owner of a producer id. So every client that may write to a partition may
continue, and may spoil, the sequence of any idempotent producer there. No other user ends a
transaction or adds to it: its id is a resource, and another producer id is refused for it. Tidelog
also refuses all records of its producer from users without WRITE on its id.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import Operation, ResourceType
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes
from tests.compat.test_delegation_tokens import Side, add_rules, kafka, prepare, tidelog
from tests.support.broker import RawClient, batch
from tests.support.requests import create_topic, produce_request
from tests.support.secured_kafka import make_keys

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

STRICTER = {
    "bob writes with ann's producer by his": ("INVALID_PRODUCER_ID_MAPPING", "NONE"),
    "bob writes with ann's producer by none": ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "NONE"),
}
"""Where Tidelog protects a transactional producer and Apache Kafka does not: both answers."""

TOPIC = "shared"
PRODUCE = 11


async def produced(
    client: RawClient, producer_id: int, epoch: int, sequence: int, transactional_id: str | None
) -> str:
    records = batch(
        "x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
        is_transactional=transactional_id is not None, timestamp=1_700_000_000_000,
    )  # fmt: skip
    request = produce_request(TOPIC, records)
    request.transactional_id = transactional_id
    answer = await client.request(request, PRODUCE)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code).name


async def new_producer(client: RawClient, transactional_id: str | None = None) -> Any:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000,
        producer_id=-1, producer_epoch=-1,
    )  # fmt: skip
    if transactional_id is not None:  # upon which Kafka makes the topic of its coordinator
        await client.request(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    while True:
        answer = await client.request(request, 4)
        if answer.error_code not in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):  # fmt: skip
            assert answer.error_code == 0, answer
            return answer
        await asyncio.sleep(0.2)


async def conversation(side: Side) -> dict[str, Any]:
    await prepare(side)
    rules = [
        (user, ResourceType.TOPIC, TOPIC, operation)
        for user in ("ann", "bob")
        for operation in (Operation.READ, Operation.WRITE)
    ]
    rules += [
        (user, ResourceType.TRANSACTIONAL_ID, f"{user}s", Operation.ALL) for user in ("ann", "bob")
    ]
    async with side.anonymous() as client:
        await create_topic(client, TOPIC)
        await add_rules(client, rules)
    await side.settle()
    rows: dict[str, Any] = {}
    async with side.user("ann") as ann, side.user("bob") as bob:
        await _idempotent(ann, bob, rows)
        await _transactional(ann, bob, rows)
    return rows


async def _idempotent(ann: RawClient, bob: RawClient, rows: dict[str, Any]) -> None:
    theirs = (await new_producer(ann)).producer_id
    rows["ann begins"] = await produced(ann, theirs, 0, 0, None)
    rows["bob goes on with ann's id"] = await produced(bob, theirs, 0, 1, None)
    rows["ann repeats what bob wrote"] = await produced(ann, theirs, 0, 1, None)
    rows["bob with an old epoch"] = await produced(bob, theirs, -1, 2, None)
    rows["bob with a newer epoch"] = await produced(bob, theirs, 5, 0, None)
    rows["ann after that"] = await produced(ann, theirs, 0, 2, None)
    rows["bob with an id that nobody has"] = await produced(bob, 1 << 40, 0, 0, None)


async def _transactional(ann: RawClient, bob: RawClient, rows: dict[str, Any]) -> None:
    theirs, own = await new_producer(ann, "anns"), await new_producer(bob, "bobs")

    async def add(client: RawClient, name: str, producer: Any, transactional_id: str) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[NamedIndexes(name=TOPIC, partitions=[0])],
        )
        answer = await client.request(request, 3)
        result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        rows[name] = ErrorCode(result.partition_error_code).name

    async def end(client: RawClient, name: str, producer: Any, transactional_id: str) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, committed=False,
        )  # fmt: skip
        rows[name] = ErrorCode((await client.request(request, 3)).error_code).name

    await add(bob, "bob adds to ann's transaction", theirs, "anns")
    await add(bob, "bob adds with ann's producer", theirs, "bobs")
    await add(ann, "ann adds", theirs, "anns")
    pair = theirs.producer_id, theirs.producer_epoch
    rows["ann writes"] = await produced(ann, *pair, 0, "anns")
    rows["bob writes by ann's transactional id"] = await produced(bob, *pair, 1, "anns")
    rows["bob writes with ann's producer by his"] = await produced(bob, *pair, 1, "bobs")
    rows["bob writes with ann's producer by none"] = await produced(bob, *pair, 1, None)
    await end(bob, "bob ends ann's transaction", theirs, "anns")
    await end(bob, "bob ends with ann's producer", theirs, "bobs")
    await end(bob, "bob ends his own, which has not begun", own, "bobs")
    await end(ann, "ann ends", theirs, "anns")


def test_both_brokers_let_a_client_do_the_same_with_the_ids_of_others(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    with tidelog(tmp_path, keys, is_on=True) as side:
        ours = asyncio.run(conversation(side))
    with kafka(tmp_path, keys, is_on=True) as side:
        theirs = asyncio.run(conversation(side))
    assert ours.keys() == theirs.keys()
    assert {row: (ours[row], theirs[row]) for row in ours if ours[row] != theirs[row]} == STRICTER
    # These stand for the two rules of the module's docstring.
    assert ours["bob goes on with ann's id"] == "NONE"
    assert ours["bob ends with ann's producer"] == "INVALID_PRODUCER_ID_MAPPING"
