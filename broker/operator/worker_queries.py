"""Questions about topics, on the metrics port of any worker, answered from the parts of all.

    client ── GET /segments ──> worker 2 ── {"ask": …} ──> worker 1 ── {"part": …} ──> workers 2, 3

Worker 1 has a link to each other worker, so it asks for the parts and joins them; another worker
asks worker 1 for the whole. A question about one partition goes to its worker alone. The worker
that the client has asked checks the rights.

Bounds. A worker that does not answer within `PART_PATIENCE_S` is named in the answer, with the
reason. Parts that do not fit together after `ROUNDS_MAX` rounds are not joined: the question is
refused, and may be asked again. A document over `DOCUMENT_BYTES_MAX` is refused where it is made,
before it is sent.

Read next: `broker.operator.queries` (`TopicQuery`), `broker.workers.link`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from broker.operator import queries
from broker.operator.queries import Asked, Document, Refused, TopicQuery
from storage.directory.metadata import FIRST_WORKER
from values.dataclasses import dataclass

if TYPE_CHECKING:
    from broker.operator.port_access import Viewer
    from broker.topics.registry import TopicRegistry

PART_PATIENCE_S: Final = 15.0
"""How long worker 1 waits for a part."""

WHOLE_PATIENCE_S: Final = 25.0
"""How long another worker waits for worker 1; clients wait a little longer."""

DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest document that passes a link."""

ROUNDS_MAX: Final = 3
"""How often the parts are asked for until they fit together."""

SHOWN_MAX: Final = 100
"""How many partitions of a worker that did not answer are named."""

Message: TypeAlias = dict[str, Any]
"""A message of a link."""

Call: TypeAlias = Callable[[int, Message, Callable[[Any], object]], object]
"""Calls a worker over its link; the answer is None when it is not there."""

Outcome: TypeAlias = tuple[int, Document] | str
"""HTTP status and document, or why there is none."""


class Linked(Protocol):
    """The end of this worker's links."""

    number: int
    queries: "WorkerQueries | None"

    def call(self, worker: int, message: Message, answer: Callable[[Any], object]) -> None:
        """Call a worker; `answer` gets None when it is not there."""


@dataclass(eq=False)
class WorkerQueries:
    """The questions of one worker's clients, and those of the other workers. Loop thread only.

    `queries` answer for what is kept at `worker`, one of `count`.
    """

    worker: int
    count: int
    topics: "TopicRegistry"
    queries: Mapping[str, TopicQuery]
    call: Call
    answering: set[asyncio.Task[None]] = field(default_factory=set)

    async def answer(self, path: str, query: str, viewer: "Viewer") -> tuple[int, bytes]:
        """HTTP status and JSON for a client's question."""

        async def make(asked: Asked) -> Document:
            if self.worker == FIRST_WORKER:
                return await self._whole(path, asked)
            return await self._from_first(path, asked)

        return await queries.answer(query, self.queries[path].parameters, viewer, make)

    def answer_call(self, message: Message, reply: Callable[[Any], object]) -> None:
        """Answer another worker's question."""
        if "part" in message:
            path, asked = message["part"]
            making = self.queries[path].part(asked)
        else:
            path, asked = message["ask"]
            making = self._whole(path, asked)
        task = asyncio.get_running_loop().create_task(self._reply(making, reply))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    def close(self) -> None:
        """Answer no further questions."""
        for task in self.answering:
            task.cancel()

    async def _reply(self, making: Awaitable[Document], reply: Callable[[Any], object]) -> None:
        status, document = await queries.attempt(making)
        text = json.dumps(document)
        if len(text) > DOCUMENT_BYTES_MAX:
            bound = DOCUMENT_BYTES_MAX // 1024**2
            reason = f"the answer is larger than {bound} MiB; ask for one partition, or use limit="
            status, text = 413, json.dumps({"error": reason})
        reply([status, text])

    # --- worker 1 -------------------------------------------------------------------------------

    async def _whole(self, path: str, asked: Asked) -> Document:
        """The answer from the parts of all workers that have to do with it.

        Raises:
            Refused: as `_parts`, or the parts of no round fit together.
        """
        topic_query = self.queries[path]
        workers = sorted(self._workers(topic_query, asked))
        for _ in range(ROUNDS_MAX):
            parts, unanswered = await self._parts(path, asked, workers)
            changed = topic_query.again(asked, parts)
            if changed is None:
                return topic_query.whole(asked, parts, unanswered)
            asked = changed
        raise Refused(
            f"the parts of worker {', '.join(map(str, workers))} did not fit together in "
            f"{ROUNDS_MAX} rounds, because the topic changed meanwhile; ask again",
            503,
        )

    async def _parts(
        self, path: str, asked: Asked, workers: Sequence[int]
    ) -> tuple[list[Document], list[Document]]:
        """The parts of these workers, and who did not answer.

        Raises:
            Refused: a worker refused the question, or none answered.
        """
        outcomes = await asyncio.gather(*(self._part(path, asked, one) for one in workers))
        parts: list[Document] = []
        unanswered: list[Document] = []
        for worker, outcome in zip(workers, outcomes, strict=True):
            if isinstance(outcome, str):
                unanswered.append(self._unanswered(asked, worker, outcome))
                continue
            status, document = outcome
            if status != 200:
                raise Refused(document["error"], status)
            parts.append(document)
        if not parts:
            raise Refused("; ".join(one["why"] for one in unanswered), 503)
        return parts, unanswered

    async def _part(self, path: str, asked: Asked, worker: int) -> Outcome:
        if worker == self.worker:
            return await queries.attempt(self.queries[path].part(asked))
        return await self._ask(worker, {"part": [path, asked]}, PART_PATIENCE_S)

    def _workers(self, topic_query: TopicQuery, asked: Asked) -> Iterable[int]:
        """The workers to ask. Raises BadQuery, BrokerError."""
        partition = queries.number(asked, "partition", queries.PARTITION_MAX)
        keeping = self.topics.workers_of(asked["topic"], partition)
        return range(FIRST_WORKER, self.count + 1) if topic_query.is_of_disk else keeping

    # --- the others -----------------------------------------------------------------------------

    async def _from_first(self, path: str, asked: Asked) -> Document:
        """The whole from worker 1; what is kept here when that does not answer."""
        topic_query = self.queries[path]
        workers = set(self._workers(topic_query, asked))
        if workers == {self.worker}:
            return topic_query.whole(asked, [await topic_query.part(asked)], [])
        outcome = await self._ask(FIRST_WORKER, {"ask": [path, asked]}, WHOLE_PATIENCE_S)
        if not isinstance(outcome, str):
            status, document = outcome
            if status != 200:
                raise Refused(document["error"], status)
            return document
        if self.worker not in workers:
            raise Refused(outcome, 503)
        unanswered = [
            self._unanswered(asked, one, outcome if one == FIRST_WORKER else _NOT_ASKED)
            for one in sorted(workers - {self.worker})
        ]
        return topic_query.whole(asked, [await topic_query.part(asked)], unanswered)

    # --- both -----------------------------------------------------------------------------------

    async def _ask(self, worker: int, message: Message, patience_s: float) -> Outcome:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(value: Any) -> None:
            if not answered.done():
                answered.set_result(value)

        self.call(worker, message, done)
        try:
            async with asyncio.timeout(patience_s):
                value = await answered
        except TimeoutError:
            return f"worker {worker} did not answer within {patience_s:g} s"
        if value is None:
            return f"worker {worker} is not there; it starts again by itself"
        status, text = value
        return status, json.loads(text)

    def _unanswered(self, asked: Asked, worker: int, why: str) -> Document:
        topic = self.topics.find(asked["topic"])
        workers = () if topic is None else topic.workers or (FIRST_WORKER,) * len(topic.partitions)
        kept = [number for number, keeper in enumerate(workers) if keeper == worker]
        return {
            "worker": worker,
            "node_id": self.topics.node_id_of(worker),
            "partitions": kept[:SHOWN_MAX],
            "why": why,
        }


_NOT_ASKED: Final = "only worker 1 can ask it, and that did not answer"
