"""Worker 1 as the others see it: the metadata, and the coordinator of their transactions.

Owns one link to each other worker that runs. A worker passes through these states:

    linked --addresses--> listed --opened--> serving
       the whole metadata     its logs are open     it accepts clients

Every change of the metadata goes to all of them, in order, once it is durable. A worker that serves
applies a change before the change is answered (`topic_settled`); one that does not serve yet
applies it before it does. So no client finds a new topic unknown. Loop thread only.

Read next: `broker.workers.further`, the other end.
"""

import asyncio
import base64
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.groups.offsets.lag import Position
from broker.topics.peers import UNKNOWN_EPOCH, Measured
from broker.transactions.state import TopicPartition
from broker.workers import share_states
from broker.workers.link import Link, Message
from protocol.error_codes import ErrorCode
from storage.directory.data_dir import DataDir
from storage.directory.metadata import FIRST_WORKER, KIND_PRODUCER_IDS, KIND_TOPIC, Json
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.groups.share_states import ShareStates
    from broker.operator.worker_queries import WorkerQueries
    from broker.transactions.coordinator import TransactionCoordinator

logger = logging.getLogger("tidelog.broker.workers.first")

ADDRESSES_PATIENCE_S: Final = 30.0
"""How long the start waits for the addresses of workers that were started with it."""

_FLUSH_S: Final = 5.0
"""How long the start tries to hand the metadata over before it opens its own logs."""

_FIRST_EPOCH: Final = 0

AcceptClient = Callable[[Message, int], object]
"""Serves a client that another worker forwards: facts about it, and its end of a socket pair."""


@dataclass(kw_only=True, eq=False)
class Linked:
    """Another worker that runs.

    Attributes:
        addresses: host and port of its listeners, by name; empty until it has bound them.
        accepts_clients: whether it may; true at once for one that runs while we restart.
        epochs: leader epochs above the first, by topic id and partition.
        applied: the last change that it has applied; -1 until its logs are open.
        failures: why a change could not be applied, by its number.
    """

    number: int
    link: Link
    addresses: dict[str, tuple[str, int]] = field(default_factory=dict)
    accepts_clients: bool = False
    epochs: dict[tuple[bytes, int], int] = field(default_factory=dict)
    applied: int = -1
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def is_serving(self) -> bool:
        """Whether its logs are open, with the metadata that we have sent."""
        return self.applied >= 0


class FirstWorker:
    """Worker 1's end of all links; the `Peers` of its topics."""

    number = FIRST_WORKER

    def __init__(self, count: int, links: Mapping[int, socket.socket]) -> None:
        """Know `count` workers, and the sockets to those that run."""
        self.count = count
        self._linked: dict[int, Linked] = {}
        self._addresses: dict[int, dict[str, tuple[str, int]]] = {}
        self._epochs: dict[int, dict[tuple[bytes, int], int]] = {}
        self._data_dir: DataDir | None = None
        self._seq = 0
        self._topic_seq: dict[str, int] = {}
        self._moved = asyncio.Event()
        self._transactions: TransactionCoordinator | None = None
        self._share_states: ShareStates | None = None
        self._accept_client: AcceptClient | None = None
        self.queries: WorkerQueries | None = None
        self._waiting_clients: list[tuple[Message, int]] = []
        self._is_open = False
        for number, connected in links.items():
            self.add_link(number, connected)

    # --- links ----------------------------------------------------------------------------------

    def add_link(self, number: int, connected: socket.socket) -> None:
        """Use a new link to a worker that has started, in place of an earlier one."""
        former = self._linked.pop(number, None)
        if former is not None:
            former.link.close()
        worker: Linked
        link = Link(
            connected,
            lambda message, descriptor: self._received(worker, message, descriptor),
            lambda: self._lost(worker),
        )
        worker = self._linked[number] = Linked(number=number, link=link)
        if self._data_dir is not None:
            self._send_metadata(worker)
        if self._is_open:
            link.open()

    def begin(self, data_dir: DataDir) -> Callable[[str, Mapping[str, Json]], None]:
        """Hand over the metadata, before the logs are opened; returns what to call with changes."""
        self._data_dir = data_dir
        for worker in self._linked.values():
            self._send_metadata(worker)
            worker.link.flush(_FLUSH_S)
        return self._changed

    async def open(self) -> None:
        """Receive from the others, and wait for the addresses of those that started with us."""
        self._is_open = True
        for worker in self._linked.values():
            worker.link.open()
        try:
            async with asyncio.timeout(ADDRESSES_PATIENCE_S):
                while not all(worker.addresses for worker in self._linked.values()):
                    await self._wait()
        except TimeoutError:
            logger.warning(
                "a worker has sent no addresses; its partitions have no leader until it does"
            )

    def serve(
        self,
        transactions: "TransactionCoordinator",
        states: "ShareStates",
        accept_client: AcceptClient,
    ) -> None:
        """Answer the calls of the others, and serve the clients that they forward."""
        self._transactions = transactions
        self._share_states = states
        self._accept_client = accept_client
        clients, self._waiting_clients = self._waiting_clients, []
        for facts, descriptor in clients:
            accept_client(facts, descriptor)

    def close(self) -> None:
        """Close all links; answer no further questions."""
        if self.queries is not None:
            self.queries.close()
        for worker in list(self._linked.values()):
            worker.link.close()
        self._linked.clear()
        self._notify()

    def _lost(self, worker: Linked) -> None:
        logger.info("the link to worker %d is lost", worker.number)
        if self._linked.get(worker.number) is worker:
            del self._linked[worker.number]
        self._notify()

    def _send_metadata(self, worker: Linked) -> None:
        assert self._data_dir is not None
        data_dir = self._data_dir
        documents = [
            [kind, key, value] for (kind, key), value in data_dir.metadata.everything().items()
        ]
        worker.link.send(
            {
                "metadata": documents,
                "seq": self._seq,
                "cluster_id": data_dir.cluster_id,
                "node_id": data_dir.node_id,
            }
        )

    def _changed(self, kind: str, documents: Mapping[str, Json]) -> None:
        if kind == KIND_PRODUCER_IDS:
            return
        self._seq += 1
        if kind == KIND_TOPIC:
            self._topic_seq.update(dict.fromkeys(documents, self._seq))
        for worker in self._linked.values():
            worker.link.send({"change": [kind, dict(documents)], "seq": self._seq})

    # --- the peers of the topics ----------------------------------------------------------------

    def address(self, worker: int, listener: str) -> tuple[str, int] | None:
        """As in `Peers`; a worker that restarts keeps its addresses."""
        return self._addresses.get(worker, {}).get(listener)

    def leader_epoch(self, topic_id: bytes, partition: int) -> int:
        """As in `Peers`."""
        for epochs in self._epochs.values():
            epoch = epochs.get((topic_id, partition))
            if epoch is not None:
                return epoch
        return UNKNOWN_EPOCH if len(self._epochs) < self.count - 1 else _FIRST_EPOCH

    async def topic_settled(self, name: str) -> str | None:
        """As in `Peers`."""
        seq = self._topic_seq.get(name, 0)
        while any(one.accepts_clients and one.applied < seq for one in self._linked.values()):
            await self._wait()
        for worker in self._linked.values():
            failure = worker.failures.pop(seq, None)
            if failure is not None:
                return f"worker {worker.number}: {failure}"
        return None

    def write_marker(
        self,
        worker: int,
        topic: str,
        partition: int,
        marker: bytes,
        when_done: Callable[[ErrorCode], object],
    ) -> None:
        """As in `Peers`."""

        def answered(code: int | None) -> None:
            when_done(ErrorCode.COORDINATOR_NOT_AVAILABLE if code is None else ErrorCode(code))

        batch = base64.b64encode(marker).decode()
        call = {"topic": topic, "partition": partition, "batch": batch}
        self.call(worker, {"marker": call}, answered)

    def measure(
        self,
        worker: int,
        positions: list[Position],
        found: Callable[[dict[Position, Measured]], object],
    ) -> None:
        """As in `Peers`."""

        def answered(values: list[list[int] | None] | None) -> None:
            pairs = zip(positions, values or (), strict=values is not None)
            found({position: Measured(*value) for position, value in pairs if value is not None})

        self.call(worker, {"measure": [list(position) for position in positions]}, answered)

    def drop_share_group(self, group_id: str) -> None:
        """As in `Peers`."""
        for worker in self._linked.values():
            worker.link.send({share_states.DROP: group_id})

    def call(self, worker: int, message: Message, answer: Callable[[Any], object]) -> None:
        """Call a worker; `answer` gets None when it is not there."""
        linked = self._linked.get(worker)
        if linked is None or not linked.is_serving:
            answer(None)
        else:
            linked.link.call(message, answer)

    # --- messages -------------------------------------------------------------------------------

    def _received(self, worker: Linked, message: Message, descriptor: int | None) -> None:
        if descriptor is not None:
            self._receive_client(message["client"], descriptor)
        elif "admit" in message:
            self._admit(message["admit"], partial(worker.link.reply, message))
        elif share_states.READ in message or share_states.WRITE in message:
            reply = partial(worker.link.reply, message)
            share_states.answer_call(self._share_states, message, reply)
        elif "ask" in message:
            if self.queries is None:
                worker.link.reply(message, None)
            else:
                self.queries.answer_call(message, partial(worker.link.reply, message))
        elif "addresses" in message:
            worker.addresses = {
                name: (host, port) for name, (host, port) in message["addresses"].items()
            }
            self._addresses[worker.number] = worker.addresses
            worker.accepts_clients = message["serving"]
            self._notify()
        elif "opened" in message:
            self._epochs[worker.number] = {
                (bytes.fromhex(topic_id), partition): epoch
                for topic_id, partition, epoch in message["epochs"]
            }
            self._applied(worker, message["opened"])
            worker.accepts_clients = True
            worker.link.send({"serve": True})
        elif "applied" in message:
            if message["failure"] is not None:
                worker.failures[message["applied"]] = message["failure"]
            self._applied(worker, message["applied"])

    def _applied(self, worker: Linked, seq: int) -> None:
        worker.applied = max(worker.applied, seq)
        assert self._data_dir is not None
        for topic in self._data_dir.metadata.deleted_topics():
            needed = self._topic_seq.get(topic.name, 0)
            others = (self._linked.get(number) for number in set(topic.workers) - {FIRST_WORKER})
            if all(other is not None and other.applied >= needed for other in others):
                self._data_dir.forget_deleted(topic)
        self._notify()

    def _receive_client(self, facts: Message, descriptor: int) -> None:
        if self._accept_client is None:
            self._waiting_clients.append((facts, descriptor))
        else:
            self._accept_client(facts, descriptor)

    def _admit(self, asked: Message, reply: Callable[[Any], object]) -> None:
        """Answer with an error code for each partition that a producer wants to write to."""
        partitions: list[TopicPartition] = [(name, index) for name, index in asked["partitions"]]
        transactional_id = asked["transactional_id"]
        producer_id, epoch = asked["producer"]
        producer = (producer_id, epoch)
        transactions = self._transactions
        if transactions is None:
            reply([int(ErrorCode.NOT_ENOUGH_REPLICAS)] * len(partitions))
        elif asked["joins"]:
            transactions.admit(
                transactional_id,
                producer,
                partitions,
                lambda error: reply([int(error)] * len(partitions)),
            )
        else:
            errors = [
                transactions.append_error(transactional_id, producer, partition)
                for partition in partitions
            ]
            reply([int(error) for error in errors])

    async def _wait(self) -> None:
        await self._moved.wait()

    def _notify(self) -> None:
        """Wake those who wait for a worker's progress."""
        self._moved.set()
        self._moved = asyncio.Event()
