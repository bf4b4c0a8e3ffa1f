"""The faults that requests are to meet, and the handlers that obey them.

The dispatcher wraps each handler by `RequestFaults.before`, so that all ways to a handler lead past
the faults. While there are some, connections use no lane (`broker.net.lane_connection`), which
would serve usual requests without a handler.

| action | what happens to a request that meets the fault                                        |
|--------|---------------------------------------------------------------------------------------|
| fail   | it is answered with an error; what the fault is about is not served                   |
| delay  | it is served so much later, by the real time also where the clock is frozen           |
| drop   | the connection ends, before the request is served or instead of its answer            |

A request meets the first fault that is about it, in the order in which they were added, and no
other. Faults are forgotten when the broker stops.

Read next: `broker.faults.answers`.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any, Final, Literal, NoReturn

from broker.errors import ConnectionMustClose
from broker.faults.answers import failed, groups_of, topics_of
from broker.net.connection import Connection
from broker.net.dispatch import Dispatcher
from broker.net.lane_connection import LaneConnection
from broker.replies.forms import then
from broker.requests.context import Context, Handler, Reply, RequestContext
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps
from values.dataclasses import dataclass

Action = Literal["fail", "delay", "drop"]

_MS_PER_S: Final = 1000


@dataclass(slots=True, kw_only=True, eq=False)
class RequestFault:
    """A fault, and which requests are to meet it.

    Attributes:
        api_key: the API of the requests.
        action: what happens to them; see the module docstring.
        error: the error of `fail`.
        delay_ms: the time of `delay`.
        is_served: of `drop`, whether the request takes effect and only its answer is lost.
        topic: only requests that name this topic; of several topics `fail` concerns this one alone.
        group: only requests of this group.
        client_id: only requests of clients with this id.
        left: how many requests are still to meet it; None for all until it is healed.
        met: how many have met it.
    """

    api_key: ApiKey
    action: Action
    error: ErrorCode = ErrorCode.NONE
    delay_ms: int = 0
    is_served: bool = False
    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    left: int | None = 1
    met: int = 0

    def is_about(self, context: Context, request: RequestContext, message: Any) -> bool:
        """Whether a request is to meet it."""
        if self.api_key != request.api_key or self.client_id not in (None, request.client_id):
            return False
        if self.group is not None and self.group not in groups_of(message):
            return False
        if self.topic is None:
            return True
        names = topics_of(context, request, message)
        return names is None or self.topic in names


class RequestFaults:
    """The faults of one broker. Loop thread only.

    Attributes:
        faults: those that requests may still meet, in their order.
    """

    def __init__(self, connections: Iterable[Connection]) -> None:
        """Begin without faults; `connections` are those of the broker."""
        self.faults: list[RequestFault] = []
        self._connections = connections
        self._dispatchers: list[Dispatcher] = []

    def watch(self, dispatcher: Dispatcher) -> None:
        """Stand before the handlers of `dispatcher`, which has used none yet."""
        dispatcher.before = self.before
        self._dispatchers.append(dispatcher)

    def add(self, fault: RequestFault) -> None:
        """Let requests meet `fault`, after the faults that are there."""
        self.faults.append(fault)
        self._choose_lanes()

    def heal(self) -> None:
        """Forget all faults; a request that has met one is not helped."""
        self.faults.clear()
        self._choose_lanes()

    def _choose_lanes(self) -> None:
        """Lead usual requests past the faults while there are some."""
        for dispatcher in self._dispatchers:
            dispatcher.sees_all = bool(self.faults)
        for connection in self._connections:
            if isinstance(connection, LaneConnection):
                connection.choose_lane()

    def before(self, handler: Handler) -> Handler:
        """`handler`, for requests that may meet a fault."""

        def handle(context: Context, request: RequestContext, message: Any) -> Reply:
            fault = self._take(context, request, message) if self.faults else None
            if fault is None:
                return handler(context, request, message)
            return _met(fault, handler, context, request, message)

        return handle

    def _take(self, context: Context, request: RequestContext, message: Any) -> RequestFault | None:
        """The first fault that is about the request, counted as met."""
        found = (it for it in self.faults if it.is_about(context, request, message))
        fault = next(found, None)
        if fault is None:
            return None
        fault.met += 1
        if fault.left is not None:
            fault.left -= 1
            if not fault.left:
                self.faults.remove(fault)
                if not self.faults:
                    # Later, since the connection of the request is in the middle of a read.
                    asyncio.get_running_loop().call_soon(self._choose_lanes)
        return fault


def _met(
    fault: RequestFault, handler: Handler, context: Context, request: RequestContext, message: Any
) -> Reply:
    """What becomes of a request that has met `fault`.

    Raises:
        ConnectionMustClose: the connection ends.
    """
    if fault.action == "fail":
        return failed(handler, context, request, message, code=fault.error, topic=fault.topic)
    serve = partial(handler, context, request, message)
    if fault.action == "delay":
        return _served_later(fault.delay_ms, context, serve)
    if not fault.is_served:
        raise _lost(request)

    def lose(answer: Any) -> NoReturn:
        context.answers.release(answer)
        raise _lost(request)

    return _losing(serve(), lose)


async def _served_later(delay_ms: int, context: Context, serve: Callable[[], Reply]) -> Reply:
    """What `serve` answers, called so much later; never if the client has gone by then."""
    await asyncio.sleep(delay_ms / _MS_PER_S)
    reply = serve()
    if isinstance(reply, CoroutineType):
        return await reply
    if isinstance(reply, GeneratorType):
        return context.turns.begin(_released(context, reply))
    return reply


def _released(context: Context, steps: Steps[Any]) -> Steps[Any]:
    """The result of `steps`, which belongs to the connection from now on."""
    answer = yield from steps
    context.answers.release(answer)
    return answer


def _losing(reply: Reply, lose: Callable[[Any], NoReturn]) -> Reply:
    """`reply` with `lose` in place of the answer, also where a request has none."""
    if isinstance(reply, GeneratorType):
        return _losing_steps(reply, lose)
    if reply is None:
        lose(None)
    return then(reply, lose)


def _losing_steps(steps: Steps[Any], lose: Callable[[Any], NoReturn]) -> Steps[Any]:
    return _losing((yield from steps), lose)


def _lost(request: RequestContext) -> ConnectionMustClose:
    name = ApiKey(request.api_key).name
    return ConnectionMustClose(f"a test lets {name} v{request.api_version} lose its connection")
