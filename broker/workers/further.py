"""A worker above 1: it follows the metadata, leads its partitions, and asks worker 1 the rest.

Owns the link to worker 1, which is replaced when worker 1 restarts; meanwhile this worker serves
its partitions with the metadata that it has. Loop thread only.

Transactions. Worker 1 coordinates them all. Before a batch of a transaction is written here, worker
1 is asked once whether the partition is part of it. The answer counts until the marker that ends
the transaction arrives, on the same link, so that no batch is written after its end. As in Kafka, a
producer that has been confirmed may write until then.

Read next: `broker.workers.first`, the other end; `broker.workers.forward`.
"""

import asyncio
import base64
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, DataDirUnusable, UnknownTopicOrPartition
from broker.groups.coordinator import GroupCoordinator
from broker.groups.internal_topic import CoordinatorServices, WhenDone
from broker.groups.offsets.lag import measure
from broker.groups.share_partitions import SharePartitions
from broker.requests.error_mapping import error_code
from broker.security.service import Security
from broker.topics.registry import TopicRegistry
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.state import ProducerIdAndEpoch, TopicPartition
from broker.workers.link import Link, Message
from broker.workers.share_states import DROP, LinkedShareStates
from config import BrokerConfig
from protocol.error_codes import ErrorCode
from protocol.records.batch import RecordBatch
from protocol.records.layout import ControlType
from protocol.records.record import control_type, decode_batch
from storage.directory.data_dir import Topic
from storage.directory.following import FollowedMetadata, FollowingDataDir
from storage.directory.metadata import (
    FIRST_WORKER,
    KIND_BROKER_OVERRIDES,
    KIND_GROUP_OVERRIDES,
    KIND_TOPIC,
)
from storage.disk.files import Files
from storage.errors import DataDirError, StorageError, StorageFailed

if TYPE_CHECKING:
    from broker.operator.worker_queries import WorkerQueries

logger = logging.getLogger("tidelog.broker.workers.further")


class FurtherWorker:
    """The end of the link to worker 1."""

    def __init__(self, number: int, connected: socket.socket | None) -> None:
        """Be worker `number`; a link may come later."""
        self.number = number
        self.metadata = FollowedMetadata()
        self._link: Link | None = None
        self._linked = asyncio.Event()
        self._may_serve = asyncio.Event()
        self._changes: asyncio.Queue[tuple[Link, Message]] = asyncio.Queue()
        self._addresses: dict[str, tuple[str, int]] = {}
        self._topics: TopicRegistry
        self._security: Security
        self._transactions: FollowingTransactions
        self._opened_with: tuple[Link, int]
        self._applying: asyncio.Task[None] | None = None
        self._first = connected
        self.queries: WorkerQueries | None = None
        self.share_states = LinkedShareStates(partial(self.call, FIRST_WORKER))
        self._share_partitions: SharePartitions | None = None

    # --- the link -------------------------------------------------------------------------------

    def use_link(self, connected: socket.socket) -> None:
        """Use a new link, in place of the one to an earlier worker 1."""
        if self._link is not None:
            self._link.close()
        while not self._changes.empty():  # the metadata comes whole over the new one
            self._changes.get_nowait()
        link: Link
        link = self._link = Link(
            connected, lambda message, _: self._received(link, message), self._lost
        )
        link.send({"addresses": self._addresses, "serving": self._may_serve.is_set()})
        link.open()
        self._linked.set()

    def _lost(self) -> None:
        logger.warning("worker 1 has gone; until it is back only requests for our partitions work")
        self._linked.clear()

    def _received(self, link: Link, message: Message) -> None:
        if "marker" in message:
            self._write_marker(link, message)
        elif "measure" in message:
            link.reply(message, [self._measured(*position) for position in message["measure"]])
        elif DROP in message:
            self.share_states.drop_group(message[DROP])
            if self._share_partitions is not None:
                self._share_partitions.drop_group(message[DROP])
        elif "part" in message:
            if self.queries is None:
                link.reply(message, None)
            else:
                self.queries.answer_call(message, partial(link.reply, message))
        else:
            self._changes.put_nowait((link, message))

    # --- the start ------------------------------------------------------------------------------

    async def open_data_dir(
        self,
        config: BrokerConfig,
        addresses: Mapping[str, tuple[str, int]],
        *,
        files: Files,
        now_ms: int,
    ) -> FollowingDataDir:
        """Wait for the metadata, then open our directory.

        Raises:
            DataDirUnusable: this process must not or cannot use it.
        """
        self._addresses = dict(addresses)
        if self._first is not None:
            self.use_link(self._first)
        link, message = await self._changes.get()
        self.metadata.take_all((kind, key, value) for kind, key, value in message["metadata"])
        self._opened_with = link, message["seq"]
        config = replace(
            config,
            node_id=message["node_id"] + self.number - FIRST_WORKER,
            cluster_id=message["cluster_id"],
        )
        try:
            return FollowingDataDir.follow(
                config.data_dir,
                self.metadata,
                worker=self.number,
                files=files,
                broker_config=config,
                now_ms=now_ms,
            )
        except DataDirError as error:
            raise DataDirUnusable(str(error), "") from error

    async def begin(
        self,
        topics: TopicRegistry,
        security: Security,
        transactions: "FollowingTransactions",
        share_partitions: SharePartitions,
    ) -> None:
        """Follow the changes since the start; return when worker 1 lets us accept clients."""
        self._topics, self._security, self._transactions = topics, security, transactions
        self._share_partitions = share_partitions
        topics.when_deleted(transactions.topic_deleted)
        topics.when_deleted(lambda topic: share_partitions.drop_topic(topic.topic_id))
        self._report_opened(*self._opened_with)
        self._applying = asyncio.create_task(self._apply_changes())
        self._applying.add_done_callback(_applying_ended)
        await self._may_serve.wait()

    async def close(self) -> None:
        """Follow no further changes, and answer no further questions."""
        if self.queries is not None:
            self.queries.close()
        if self._share_partitions is not None:
            self._share_partitions.stop()
        if self._applying is not None:
            self._applying.cancel()
            await asyncio.gather(self._applying, return_exceptions=True)
        if self._link is not None:
            self._link.close()

    # --- changes --------------------------------------------------------------------------------

    async def _apply_changes(self) -> None:
        while True:
            link, message = await self._changes.get()
            if "serve" in message:  # in its turn: the changes before it were answered without us
                self._may_serve.set()
                continue
            seq = message["seq"]
            if "metadata" in message:
                documents = ((kind, key, value) for kind, key, value in message["metadata"])
                for kind, keys in self.metadata.take_all(documents).items():
                    failure = await self._apply(kind, keys)
                    self._check_followed(failure)
                self._report_opened(link, seq)
                continue
            kind, changed = message["change"]
            self.metadata.take(kind, changed)
            failure = await self._apply(kind, changed)
            if not self._may_serve.is_set():
                self._check_followed(failure)
            link.send({"applied": seq, "failure": failure})

    def _check_followed(self, failure: str | None) -> None:
        """Refuse to serve without a change that worker 1 did not wait for, and takes for done.

        Raises:
            StorageFailed: there was a failure.
        """
        if failure is not None:
            raise StorageFailed("follow", self.metadata.path, failure)

    async def _apply(self, kind: str, keys: Iterable[str]) -> str | None:
        """Do what a change asks for; why it failed, or None."""
        try:
            if kind in (KIND_TOPIC, KIND_BROKER_OVERRIDES, KIND_GROUP_OVERRIDES):
                await self._topics.follow(kind, list(keys))
                if kind == KIND_BROKER_OVERRIDES:
                    await self._security.tls.follow(self._topics.broker_config)
            else:
                self._security.follow(kind, keys)
        except (StorageError, ValueError) as error:
            logger.error("a change of worker 1 could not be applied: %s", error)
            return str(error)
        return None

    def _report_opened(self, link: Link, seq: int) -> None:
        epochs = [
            (topic.topic_id.hex(), log.partition, log.leader_epoch)
            for topic in self._topics
            for log in topic.logs
            if log.leader_epoch
        ]
        link.send({"opened": seq, "epochs": epochs})

    def _measured(self, topic: str, partition: int, offset: int) -> list[int | None] | None:
        """How far a group is behind, None if the partition is not here any more."""
        try:
            return list(measure(self._topics, topic, partition, offset))
        except BrokerError:
            return None

    # --- requests to worker 1 -------------------------------------------------------------------

    async def open_upstream(self, facts: Message) -> socket.socket:
        """A connection to worker 1 for a client; waits until there is a worker 1."""
        await self._linked.wait()
        assert self._link is not None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._link.send({"client": {**facts, "worker": self.number}}, theirs.detach())
        return ours

    def call(self, worker: int, message: Message, answer: Callable[[Any], object]) -> None:
        """Ask worker 1, the only one with a link; `answer` gets None when it is not there."""
        assert worker == FIRST_WORKER, worker
        if self._link is None:
            answer(None)
        else:
            self._link.call(message, answer)

    def _write_marker(self, link: Link, message: Message) -> None:
        marker = message["marker"]
        batch = base64.b64decode(marker["batch"])
        topic, partition = marker["topic"], marker["partition"]

        def done(error: ErrorCode) -> None:
            link.reply(message, int(error))

        try:
            log = self._topics.led_log(topic, partition)
        except UnknownTopicOrPartition:
            done(ErrorCode.NONE)  # deleted in the meantime
            return
        except BrokerError as error:
            done(error_code(error))
            return
        ended = RecordBatch(memoryview(batch))
        self._transactions.forget(ended.producer_id, (topic, partition))
        is_commit = control_type(decode_batch(ended)[0]) is ControlType.COMMIT
        self._transactions.append_marker(
            log, batch, done, producer_id=ended.producer_id, is_commit=is_commit
        )


def _applying_ended(applying: "asyncio.Task[None]") -> None:
    """Stop this process: the parent starts it again, with the metadata whole."""
    if not applying.cancelled():
        logger.error("changes of worker 1 are not followed any more", exc_info=applying.exception())
        signal.raise_signal(signal.SIGTERM)


class FollowingTransactions(TransactionCoordinator):
    """The transactions of worker 1, as far as they write here. It is never started."""

    def __init__(
        self, services: CoordinatorServices, groups: GroupCoordinator, worker: FurtherWorker
    ) -> None:
        """Ask worker 1 over the link of `worker`."""
        super().__init__(services, groups)
        self._worker = worker
        self._confirmed: dict[tuple[int, TopicPartition], tuple[str, int]] = {}

    def must_wait(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        *,
        joins: bool,
    ) -> bool:
        """Whether worker 1 has to confirm a partition first."""
        producer_id, epoch = producer
        wanted = (transactional_id, epoch)
        return any(self._confirmed.get((producer_id, tp)) != wanted for tp in partitions)

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        answer: WhenDone,
        *,
        joins: bool = True,
    ) -> None:
        """Ask worker 1; answered with its error if it is the same for all partitions.

        Otherwise with NONE, and `append_error` refuses some.
        """
        asked = list(partitions)
        producer_id, epoch = producer

        def answered(codes: list[int] | None) -> None:
            if codes is None:  # worker 1 has gone: the client tries again
                answer(ErrorCode.NOT_ENOUGH_REPLICAS)
                return
            for tp, code in zip(asked, codes, strict=True):
                if code == ErrorCode.NONE:
                    self._confirmed[producer_id, tp] = (transactional_id, epoch)
            answer(ErrorCode(codes[0]) if len(set(codes)) == 1 else ErrorCode.NONE)

        message = {
            "transactional_id": transactional_id,
            "producer": list(producer),
            "partitions": [list(tp) for tp in asked],
            "joins": joins,
        }
        self._worker.call(FIRST_WORKER, {"admit": message}, answered)

    def append_error(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> ErrorCode:
        """NONE when worker 1 has confirmed the partition, and the transaction has not ended."""
        producer_id, epoch = producer
        if self._confirmed.get((producer_id, partition)) == (transactional_id, epoch):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    def forget(self, producer_id: int, partition: TopicPartition) -> None:
        """The transaction ends in this partition."""
        self._confirmed.pop((producer_id, partition), None)

    def topic_deleted(self, topic: Topic) -> None:
        """No marker comes for a deleted topic."""
        for key in [key for key in self._confirmed if key[1][0] == topic.name]:
            del self._confirmed[key]
