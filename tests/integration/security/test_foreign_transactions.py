"""Replay and ordering attacks on a transaction by another user, who knows all that is on the wire.

Alice writes in transactions. Bob may write and read her topic and commit for her group, has a
transactional id of his own, and knows her transactional id, her producer id, epoch and sequences.
He sends a thousand generated requests into every stage of her transactions. None may have an
effect: not on her transaction, not on the log, not on the committed offsets.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.acl import CLUSTER_NAME, Operation, ResourceType
from protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.api.end_txn import EndTxnRequest
from protocol.api.init_producer_id import InitProducerIdRequest
from protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.error_codes import ErrorCode
from protocol.structs import NamedIndexes
from tests.integration.security.test_metrics_port import allow
from tests.integration.security.test_sasl import SETTINGS, add_users, log_in
from tests.support.broker import RawClient, RunningBroker, batch, running_broker
from tests.support.requests import create_topic, produce_request

CASES = 1_000
SEED = 20261123
TOPIC, GROUP = "t", "g"
HERS, HIS = "hers", "his"
AUTHORIZER: dict[str, Any] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
}
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OF_ANOTHER = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@dataclass
class Producer:
    """Who writes by a transactional id, and how far."""

    client: RawClient
    transactional_id: str
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin_session(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000
        )
        answer = await self.client.request(request, 4)
        assert answer.error_code == 0, answer
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def named(self, transactional_id: str | None = None) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id or self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }


@dataclass
class Attack:
    """One request of Bob's: what he writes into its fields, and where the answer has its codes."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    sequence: int
    source: random.Random

    def init_producer_id(self) -> tuple[Any, int]:
        request = InitProducerIdRequest(
            transactional_id=HERS, transaction_timeout_ms=60_000,
            producer_id=self.producer_id, producer_epoch=self.epoch,
        )  # fmt: skip
        return request, self.source.randint(0, 5)

    def add_partitions(self) -> tuple[Any, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[NamedIndexes(name=TOPIC, partitions=[self.source.randrange(2)])],
        )
        return request, self.source.randint(0, 3)

    def add_offsets(self) -> tuple[Any, int]:
        return AddOffsetsToTxnRequest(**self._named(), group_id=GROUP), self.source.randint(0, 4)

    def commit_offsets(self) -> tuple[Any, int]:
        return offsets(66, **self._named()), self.source.randint(0, 5)

    def end(self) -> tuple[Any, int]:
        committed = self.source.random() < 0.5
        return EndTxnRequest(**self._named(), committed=committed), self.source.randint(0, 5)

    def produce(self) -> tuple[Any, int]:
        return self._produce(self._batch(is_transactional=True)), self.source.randint(3, 12)

    def produce_plain(self) -> tuple[Any, int]:
        """As if her producer had no transactional id, which would spoil its epoch."""
        return self._produce(self._batch(is_transactional=False)), self.source.randint(3, 12)

    def produce_hidden(self) -> tuple[Any, int]:
        """The same two, after a batch that needs no right but that on the topic."""
        is_transactional = self.source.random() < 0.5
        two = batch("bob's") + self._batch(is_transactional=is_transactional)
        return self._produce(two), self.source.randint(0, 12)

    def _batch(self, *, is_transactional: bool) -> bytes:
        return batch(
            "bob's", producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=self.sequence, is_transactional=is_transactional,
        )  # fmt: skip

    def _produce(self, records: bytes) -> Any:
        request = produce_request(TOPIC, records)
        request.transactional_id = self.transactional_id
        return request

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id or "",
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def offsets(offset: int, **named: Any) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topics = [TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return TxnOffsetCommitRequest(**named, group_id=GROUP, topics=topics)


def codes_of(answer: Any) -> list[int]:
    """Every error code of an answer, of partitions where it has some."""
    if isinstance(answer, list):
        return [code for item in answer for code in codes_of(item)]
    lists = ("responses", "partition_responses", "topics", "partitions",
             "results_by_topic_v3_and_below", "results_by_partition")  # fmt: skip
    below = [code for name in lists for code in codes_of(getattr(answer, name, []))]
    own = [getattr(answer, name, None) for name in ("error_code", "partition_error_code")]
    return below or [code for code in own if code is not None]


class Stage:
    """Both users, and what Bob must not change."""

    def __init__(self, running: RunningBroker, alice: Producer, bob: Producer) -> None:
        self.running, self.alice, self.bob = running, alice, bob
        self.answers: Counter[tuple[str, str]] = Counter()

    def state(self) -> object:
        broker = self.running.broker
        logs = [broker.topics.led_log(TOPIC, index) for index in range(2)]
        offsets = broker.groups.offsets.table
        return (
            broker.transactions.find(HERS), broker.transactions.find(HIS),
            [(log.log_end_offset, log.last_stable_offset) for log in logs],
            [repr(log.producers.state.find(self.alice.id)) for log in logs],
            dict(offsets.of_group(GROUP)), offsets.has_pending(GROUP),
        )  # fmt: skip

    async def attack(self, source: random.Random) -> None:
        """Send one request that names something of Alice's, and see that it has no effect."""
        alice, bob = self.alice, self.bob
        what = Attack(
            transactional_id=source.choice([HERS, HERS, HIS, "unknown", None]),
            producer_id=alice.id,
            epoch=alice.epoch + source.choice([0, 0, 0, 1, -1]),
            sequence=alice.sequence + source.choice([0, 0, 1, -1]),
            source=source,
        )
        if what.transactional_id == HERS and source.random() < 0.3:
            what.producer_id, what.epoch = bob.id, bob.epoch
        kinds: list[Callable[[], tuple[Any, int]]] = [
            *(what.init_producer_id, what.add_partitions, what.add_offsets, what.commit_offsets),
            *(what.end, what.produce, what.produce_hidden),
        ]
        if what.producer_id == alice.id:
            kinds.append(what.produce_plain)
        kind = source.choice(kinds)
        message, version = kind()
        before = self.state()
        answer = await bob.client.request(message, version)
        codes = {ErrorCode(code) for code in codes_of(answer)}
        case = (kind.__name__, what, version, codes)
        assert codes, case
        assert self.state() == before, case
        if kind == what.produce_hidden:
            assert codes == {ErrorCode.INVALID_RECORD}, case
        elif what.transactional_id != HIS or kind in (what.init_producer_id, what.produce_plain):
            assert codes == {DENIED}, case
        else:
            assert codes == {OF_ANOTHER}, case
        for code in codes:
            self.answers[kind.__name__, code.name] += 1

    async def transact(self, source: random.Random, attacks: int) -> None:
        """One transaction of Alice's with Bob's requests between her own."""
        alice = self.alice

        async def bothered() -> None:
            for _ in range(attacks):
                await self.attack(source)

        async def ask(message: Any, version: int) -> None:
            codes = codes_of(await alice.client.request(message, version))
            assert codes, message
            assert not any(codes), (message, codes)

        async def write() -> None:
            records = batch(
                "alice's", producer_id=alice.id, producer_epoch=alice.epoch,
                base_sequence=alice.sequence, is_transactional=True,
            )  # fmt: skip
            request = produce_request(TOPIC, records)
            request.transactional_id = HERS
            await ask(request, 11)
            alice.sequence += 1

        await bothered()
        partitions = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=HERS,
            v3_and_below_producer_id=alice.id,
            v3_and_below_producer_epoch=alice.epoch,
            v3_and_below_topics=[NamedIndexes(name=TOPIC, partitions=[0])],
        )
        await ask(partitions, 3)
        await bothered()
        await write()
        await bothered()
        await ask(AddOffsetsToTxnRequest(**alice.named(), group_id=GROUP), 3)
        await ask(offsets(7, **alice.named()), 3)
        await bothered()
        await write()
        await ask(EndTxnRequest(**alice.named(), committed=True), 3)
        await bothered()


async def prepare(running: RunningBroker) -> tuple[RawClient, RawClient]:
    """Both users with their rights; their connections."""
    add_users(running)
    allow(running, "alice", (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL))
    for name, own in (("alice", HERS), ("bob", HIS)):
        allow(
            running, name,
            (ResourceType.TOPIC, TOPIC, Operation.ALL),
            (ResourceType.GROUP, GROUP, Operation.READ),
            (ResourceType.TRANSACTIONAL_ID, own, Operation.ALL),
        )  # fmt: skip
    return await logged_in(running, "alice"), await logged_in(running, "bob")


async def logged_in(running: RunningBroker, name: str) -> RawClient:
    client = await running.client()
    assert (await log_in(client, name)).error_code == 0
    return client


@pytest.mark.timeout(180)
async def test_a_thousand_requests_of_another_user_change_nothing(tmp_path: Path) -> None:
    source = random.Random(SEED)
    async with running_broker(tmp_path / "data", **SETTINGS, **AUTHORIZER) as running:
        clients = await prepare(running)
        await create_topic(clients[0], TOPIC, partitions=2)
        alice, bob = Producer(clients[0], HERS), Producer(clients[1], HIS)
        await alice.begin_session()
        await bob.begin_session()
        stage = Stage(running, alice, bob)
        transactions, per_place = 20, CASES // (20 * 5)
        for _ in range(transactions):
            await stage.transact(source, per_place)
        assert stage.answers.total() >= CASES
        log = running.broker.topics.led_log(TOPIC, 0)
        # Two records and a marker of each transaction of hers, nothing of Bob's.
        assert log.log_end_offset == log.last_stable_offset == 3 * transactions
    print(sorted(stage.answers.items()))


async def test_after_a_restart_a_producer_still_belongs_to_its_transactional_id(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path / "data", **SETTINGS, **AUTHORIZER) as running:
        client, _ = await prepare(running)
        await create_topic(client, TOPIC)
        alice = Producer(client, HERS)
        for _ in range(3):
            await alice.begin_session()
    async with running_broker(tmp_path / "data", **SETTINGS, **AUTHORIZER) as running:
        attack = Attack(None, alice.id, alice.epoch + 1, 0, random.Random(SEED))
        for name, code in (("bob", DENIED), ("alice", ErrorCode.NONE)):
            message, version = attack.produce_plain()
            answer = await (await logged_in(running, name)).request(message, version)
            assert codes_of(answer) == [code], name


@pytest.mark.parametrize("version", [3, 9, 12])
async def test_usual_records_of_another_producer_are_refused_between_its_transactions(
    tmp_path: Path, version: int
) -> None:
    """The lane of Produce serves what Bob may write, and leaves her producer to the guard."""
    async with running_broker(tmp_path / "data", **SETTINGS, **AUTHORIZER) as running:
        clients = await prepare(running)
        await create_topic(clients[0], TOPIC)
        alice, bob = Producer(clients[0], HERS), Producer(clients[1], HIS)
        await alice.begin_session()
        await bob.begin_session()

        async def write(producer: Producer) -> list[int]:
            attack = Attack(
                None, producer.id, producer.epoch, producer.sequence, random.Random(SEED)
            )
            message, _ = attack.produce_plain()
            by = bob if producer is alice and producer.sequence else producer
            return codes_of(await by.client.request(message, version))

        for producer in (alice, bob):  # now the log knows both, and the rights are decided
            assert await write(producer) == [ErrorCode.NONE]
            producer.sequence += 1
        assert await write(bob) == [ErrorCode.NONE]
        assert await write(alice) == [DENIED]
        assert running.broker.topics.led_log(TOPIC, 0).log_end_offset == 3
