"""What the five requests about the stored states of share groups have in common.

Between Kafka's brokers they carry the states of share partitions from the partition's leader to the
coordinator, and back. Here workers use their links for that (`broker.workers.share_states`), so
these requests come from tools. A state that a request changes belongs to the group all the same:
its members go on from there, when they load it the next time.

The first such request of a broker creates the topic of the states, as in Kafka, where the sender
asks for the coordinator first. A request without a group, without topics, or with a topic that has
no partitions is answered with nothing. A partition that is named twice is served twice and answered
once.

Source: KIP-932; Kafka `ShareCoordinatorService`, `ShareCoordinatorShard`.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.groups.internal_topic import WhenDone
from broker.groups.share.stored_state import UNKNOWN_EPOCH, ShareKey, StoredState
from broker.groups.share_states import ShareStates
from broker.replies.pending import Pending
from broker.requests.context import Context, Handler, Reply, RequestContext
from protocol.declare.primitives import field_specs
from protocol.error_codes import ErrorCode
from storage.disk.steps import Slice, Steps

_STEP: Final = 64
"""Partitions of one step: each may append a record."""


class StateRefused(Exception):
    """A partition of a request is refused, and nothing of it changes."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        self.error = error
        super().__init__(message)


class AskedState(NamedTuple):
    """One partition of a request: what is asked, and the outcome to be filled in."""

    states: ShareStates
    key: ShareKey
    asked: Any
    outcome: Any
    has_partition: bool
    """Whether the topic is there and has the partition."""

    def existing(self) -> StoredState:
        """The stored state. Raises StateRefused: it is not initialized."""
        state = self.states.find(self.key)
        if state is None:
            raise StateRefused(
                ErrorCode.INVALID_REQUEST,
                f"Group {self.key.group_id!r} has no state of partition {self.key.partition} of "
                "this topic; initialize it first.",
            )
        return state

    def check_partition(self) -> None:
        """Raise StateRefused unless the partition exists."""
        if not self.has_partition:
            raise StateRefused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"No topic has the id {self.key.topic_id.hex()} and partition "
                f"{self.key.partition}.",
            )

    def check_leader_epoch(self, state: StoredState) -> None:
        """Raise StateRefused for an epoch below one that was stored; -1 is not checked."""
        _check_epoch("leader_epoch", self.asked, state.fences, ErrorCode.FENCED_LEADER_EPOCH)

    def check_state_epoch(self, state: StoredState) -> None:
        """The same for the epoch of the state."""
        _check_epoch("state_epoch", self.asked, state.fences, ErrorCode.FENCED_STATE_EPOCH)


def _check_epoch(name: str, asked: Any, fences: Any, error: ErrorCode) -> None:
    epoch, fence = getattr(asked, name), getattr(fences, name)
    if epoch != UNKNOWN_EPOCH and epoch < fence:
        raise StateRefused(error, f"{name} {epoch} is below {fence}, which was stored before.")


def check_range(name: str, value: int, least: int) -> None:
    """Raise StateRefused for a value that no state can have."""
    if value < least:
        text = f"{name} is {value}; it has to be {least} or more."
        raise StateRefused(ErrorCode.INVALID_REQUEST, text)


Serve = Callable[[AskedState, WhenDone], object]
"""Serves a partition: raises StateRefused, or calls back once, when all of it is durable."""


def answering_states(response: type[Any], serve: Serve, changes: str | None = None) -> Handler:
    """A handler that lets `serve` answer each partition; it answers when all are done.

    `response` is declared like those of Kafka: results, which have a topic id and partitions.
    `changes` says in the audit log what became of the partitions that were served.
    """

    def handle(context: Context, request: RequestContext, message: Any) -> Reply:
        if not message.group_id or not all(topic.partitions for topic in message.topics):
            return response()
        answering = _Answering(context, request, message, response, changes)
        if context.groups.shares.states.is_open:
            return answering.serve(serve)
        return answering.open_first(serve)

    return handle


class _Answering:
    """One request under way: counts the partitions that are missing."""

    def __init__(
        self,
        context: Context,
        request: RequestContext,
        message: Any,
        response: type[Any],
        changes: str | None,
    ) -> None:
        self.pending: Pending[Any] = Pending()
        self._context = context
        self._request = request
        self._group_id: str = message.group_id
        self._topics: Iterable[Any] = message.topics
        self._response = response
        self._result, self._outcome = result_classes(response)
        self._changes = changes
        self._found: dict[bytes, dict[int, Any]] = {}
        self._missing = 1
        self._changed = 0

    async def open_first(self, serve: Serve) -> Any:
        """The first request about states of this broker: their topic is created."""
        await self._context.groups.shares.open_states()
        for _ in self.serve(serve):
            await asyncio.sleep(0)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending.subscribe(lambda done: answered.set_result(done.result()))
        return await answered

    def serve(self, serve: Serve) -> Steps[Pending[Any]]:
        """Serve each partition; the answer comes when all are done."""
        spent = Slice(_STEP)
        for topic in self._topics:
            for asked in topic.partitions:
                self._begin(topic.topic_id, asked, serve)
                if spent.add(1):
                    yield None
        self._settle(None, ErrorCode.NONE)
        return self.pending

    def _begin(self, topic_id: bytes, asked: Any, serve: Serve) -> None:
        states, index = self._context.groups.shares.states, asked.partition
        topic = self._context.topics.find_by_id(topic_id)
        outcome = self._outcome(partition=index)
        self._found.setdefault(topic_id, {})[index] = outcome
        about = AskedState(
            states=states,
            key=ShareKey(self._group_id, topic_id, index),
            asked=asked,
            outcome=outcome,
            has_partition=topic is not None and 0 <= index < len(topic.partitions),
        )
        self._missing += 1
        try:
            if not states.is_open:
                text = "The topic of the states cannot be opened; the broker's log says why."
                raise StateRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
            check_range("partition", index, 0)
            serve(about, partial(self._settle, outcome))
        except StateRefused as refusal:
            outcome.error_message = str(refusal)
            self._settle(outcome, refusal.error)

    def _settle(self, outcome: Any, error: ErrorCode) -> None:
        """One partition less is missing, or the request has no further ones (None)."""
        if outcome is not None:
            outcome.error_code = error
            self._changed += error is ErrorCode.NONE
            if error is not ErrorCode.NONE and outcome.error_message is None:
                outcome.error_message = "The change could not be stored."
        self._missing -= 1
        if self._missing:
            return
        if self._changes is not None and self._changed:
            what = f"{self._changes} of share group {self._group_id!r}"
            self._context.security.audit.changed(
                self._request, f"{what}, in {self._changed} partitions"
            )
        response = self._response()
        response.results = [
            self._result(topic_id=topic_id, partitions=list(by_index.values()))
            for topic_id, by_index in self._found.items()
        ]
        self.pending.resolve(response)


def result_classes(response: type[Any]) -> tuple[Any, Any]:
    """The classes of the outcomes in such an answer: of a topic, and of a partition."""
    ((_, results),) = field_specs(response)
    result: Any = results.element
    _, (_, partitions) = field_specs(result)
    return result, partitions.element
