"""One frame in, one answer out: header, version, handler, timing, and the request error boundary.

Owns the path from a frame to a handler and back to bytes. It knows no socket (the connection does)
and no semantics of any API (the handlers do).

    frame -> key, version, correlation id        too short: close
          -> version in range?                   no: close, except ApiVersions, which has a fallback
          -> header, body                        malformed: close, nothing else can line up
          -> handler                             raises: logged, answered or closed, never spread
          -> answer: at once | none | Exchange   an Exchange is an answer that comes later

A handler may be a generator of steps (`storage.disk.steps`): it runs in slices, and is answered at
once when one slice is enough (`broker.replies.turns`). For a request with many elements, or a
large one without records, the side thread decodes the request and encodes the answer: neither can
be sliced.

The boundary in `_call` and `_encode` (and in `broker.replies.turns.Work`, which passes on what
steps raised) is one of the two places in the broker that catch everything: a bug in a handler, or
in the encoding of its answer, must cost one request. `CancelledError` is not an `Exception` and
passes through.

Source: Kafka's `RequestContext.parseRequest`, `ApiVersionsRequest.getErrorResponse`, `KafkaApis`.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Iterator
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.errors import ConnectionMustClose
from broker.handlers import handler_of
from broker.replies.pending import Pending
from broker.replies.turns import Work
from broker.requests.context import Context, Handler, RequestContext
from broker.requests.features import served_apis
from broker.security.session import Session
from protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from protocol.api_keys import ApiKey, VersionRange
from protocol.declare.primitives import TooManyElements
from protocol.error_codes import ErrorCode
from protocol.errors import MalformedRequest, ProtocolError, UnsupportedVersion
from protocol.registry import ServerCodec, response_class
from storage.disk.steps import Steps, off_loop

if TYPE_CHECKING:
    from broker.metrics import ApiMetrics
    from protocol.declare.primitives import Buffer

logger = logging.getLogger("tidelog.broker.net.dispatch")

_HEADER_START = struct.Struct(">hhi")
"""api_key, api_version, correlation_id: the same in every header version."""

_MAY_BE_OVERTAKEN = frozenset({ApiKey.PRODUCE})
"""Requests that do not block later ones while they wait (answers stay in order)."""


ELEMENTS_AT_ONCE = 2_000
"""Array elements of a request that the loop thread decodes: about a millisecond."""

BYTES_AT_ONCE = 1024 * 1024
"""The same for the bytes of a request whose fields are copied; records are not."""


class _Encoded:
    """The encoded answer of a request that was served in the side thread."""

    __slots__ = ("parts",)

    def __init__(self, parts: "list[Buffer]") -> None:
        self.parts = parts


class Requester(Protocol):
    """The facts of a connection that the dispatcher needs."""

    peer_host: str
    id: int
    session: Session


OFTEN: Final = (
    *(ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS),
    *(ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT),
    *(ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_FETCH),
    *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.INIT_PRODUCER_ID),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT),
    *(ApiKey.END_TXN, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS),
)
"""The requests of producers and consumers, whose code is loaded before they come.

That of the others, for tools above all, would be a tenth of an idle broker's memory. The
first request of each loads it, in a few milliseconds.
"""


class Route:
    """One API as the dispatcher sees it: its handler, versions and metrics.

    `handler` is None until the first request of the API; `codecs` holds the versions used so far.
    `observe` counts a request that was answered so many nanoseconds after its last byte arrived.
    """

    __slots__ = (
        "api_key",
        "codecs",
        "handler",
        "max_version",
        "metrics",
        "min_version",
        "observe",
    )

    def __init__(self, api_key: ApiKey, versions: VersionRange, metrics: "ApiMetrics") -> None:
        """Bind the parts."""
        self.api_key = api_key
        self.handler: Handler | None = None
        self.codecs: dict[int, ServerCodec] = {}
        self.min_version = versions.min
        self.max_version = versions.max
        self.metrics = metrics
        self.observe = metrics.latency_ns.observe

    def codec(self, version: int) -> ServerCodec:
        """The codec of a version; made when it is first used."""
        codec = self.codecs.get(version)
        if codec is None:
            codec = self.codecs[version] = ServerCodec(self.api_key, version)
        return codec


class Answered:
    """The slot of a request that was answered at once but has to wait for earlier ones."""

    __slots__ = ("parts",)

    def __init__(self, parts: "list[Buffer]") -> None:
        self.parts = parts

    def abandon(self) -> None:
        """There is nothing to stop."""


class Exchange:
    """A request whose answer is not ready yet.

    `parts` is None until then, and an empty list when there is nothing to send. The `when_done`
    callback runs when `parts` or `close_reason` is set, and once before that if `may_be_overtaken`
    becomes true. `needs_frame`: the request's bytes are still in use.
    """

    __slots__ = (
        "_codec",
        "_correlation_id",
        "_on_done",
        "_pending",
        "_route",
        "_started_ns",
        "close_reason",
        "may_be_overtaken",
        "needs_frame",
        "parts",
    )

    def __init__(
        self, route: Route, codec: ServerCodec, correlation_id: int, started_ns: int
    ) -> None:
        """Keep the values that the answer needs."""
        self.parts: list[Buffer] | None = None
        self.close_reason: str | None = None
        self.may_be_overtaken = False
        self.needs_frame = False
        self._route = route
        self._codec = codec
        self._correlation_id = correlation_id
        self._started_ns = started_ns
        self._on_done: Callable[[Exchange], object] | None = None
        self._pending: Pending[Any] | None = None

    def when_done(self, callback: Callable[["Exchange"], object]) -> None:
        """Call `callback(self)` when the answer is ready, at once if it already is."""
        if self.parts is not None or self.close_reason is not None:
            callback(self)
        else:
            self._on_done = callback

    def abandon(self) -> None:
        """The client has gone: stop the work on the answer."""
        self._on_done = None
        if self._pending is not None:
            self._pending.abandon()

    def follow(self, pending: Pending[Any]) -> None:
        """Answer with the value of `pending`, directly or through a further `Pending`."""
        self._pending = pending
        self.needs_frame = isinstance(pending, Work)
        self.may_be_overtaken = pending.is_begun and self._route.api_key in _MAY_BE_OVERTAKEN
        pending.subscribe(self._settled)

    def _settled(self, pending: Pending[Any]) -> None:
        self._pending = None
        if pending.error is not None:
            self._fail(pending.error)
            return
        reply = pending.result()
        if not isinstance(reply, Pending):
            self._finish(reply)
            return
        self.follow(reply)
        if self.may_be_overtaken and self._on_done is not None and self.parts is None:
            self._on_done(self)

    def _finish(self, message: Any) -> None:
        try:
            if isinstance(message, _Encoded):
                self.parts = message.parts
            else:
                self.parts = _encode(self._route, self._codec, self._correlation_id, message)
        except ConnectionMustClose as must_close:
            self._finish_closing(str(must_close))
            return
        self._route.observe(time.perf_counter_ns() - self._started_ns)
        self._done()

    def _fail(self, error: BaseException) -> None:
        try:
            message = _failure_response(self._route, self._codec.version, error)
        except ConnectionMustClose as must_close:
            self._finish_closing(str(must_close))
        else:
            self._finish(message)

    def _finish_closing(self, reason: str) -> None:
        self.close_reason = reason
        self._done()

    def _done(self) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)


class _TaskReply(Pending[Any]):
    """The result of a task; abandoning it cancels the task."""

    __slots__ = ()

    is_begun = False

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        super().__init__(task.cancel)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        if task.cancelled():
            self.fail(ConnectionMustClose("the request was cancelled"))
        elif (error := task.exception()) is not None:
            self.fail(error)
        else:
            self.resolve(task.result())


class _Framed(Pending[Any]):
    """Bare bytes as an answer: the size in front of them, and no header."""

    __slots__ = ("_bytes",)

    is_begun = False

    def __init__(self, token: Pending[Any]) -> None:
        super().__init__(token.abandon)
        self._bytes = token
        token.subscribe(self._arrived)

    def _arrived(self, token: Pending[Any]) -> None:
        if token.error is not None:
            self.fail(token.error)
            return
        answer = token.result()
        if isinstance(answer, Pending):
            self.on_abandon = answer.abandon
            answer.subscribe(self._arrived)
        else:
            self.resolve(_Encoded([len(answer).to_bytes(4, "big") + answer]))


def _settled(value: Any) -> Pending[Any]:
    pending: Pending[Any] = Pending()
    pending.resolve(value)
    return pending


class Dispatcher:
    """Routes frames to handlers. One per broker, loop thread only."""

    def __init__(self, context: Context) -> None:
        """Serve every supported API."""
        self.context = context
        self.before: Callable[[Handler], Handler] | None = None
        """What stands before each handler: faults that a test asks for."""
        self.sees_all = False
        """Whether usual requests come this way too, and not the lanes' way."""
        self._security = context.security
        self._turns = context.turns
        self._routes = {
            int(key): Route(key, versions, context.metrics.api(key))
            for key, versions in served_apis().items()
        }
        self._tasks: set[asyncio.Task[Any]] = set()

    def warm_up(self) -> Iterator[None]:
        """Load the handler and newest codec of an API of `OFTEN` per step; in any one thread."""
        for key in OFTEN:
            route = self._routes.get(key)
            if route is None:
                continue
            if route.handler is None:
                route.handler = self._handler(route.api_key)
            route.codec(route.max_version)
            yield

    def dispatch(
        self, frame: bytearray | memoryview, requester: Requester
    ) -> "list[Buffer] | Exchange | None":
        """The answer's bytes, an `Exchange` for a later answer, or None when there is none.

        This writes to `frame`. After the call `frame` is free again, unless there are views of it.

        Raises:
            ProtocolError: the frame cannot be answered; the connection has to close.
            ConnectionMustClose: likewise, for a reason in the handler.
        """
        started_ns = time.perf_counter_ns()
        try:
            api_key, version, correlation_id = _HEADER_START.unpack_from(frame)
        except struct.error:
            raise _too_short(frame) from None
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            if api_key == ApiKey.API_VERSIONS and route is not None:
                return _version_fallback(route, correlation_id)
            raise UnsupportedVersion(api_key, version)
        codec = route.codecs.get(version) or route.codec(version)
        if len(frame) > BYTES_AT_ONCE and api_key != ApiKey.PRODUCE:
            reply: Any = self._turns.begin(self._serve_aside(route, codec, frame, requester))
        else:
            try:
                client_id, message = codec.decode(frame, ELEMENTS_AT_ONCE)
            except TooManyElements:
                reply = self._turns.begin(self._serve_aside(route, codec, frame, requester))
            else:
                request = RequestContext(
                    api_key,
                    version,
                    correlation_id,
                    client_id,
                    requester.peer_host,
                    requester.id,
                    requester.session,
                )
                reply = self._call(route, request, message, frame, started_ns)
        if isinstance(reply, Pending):
            exchange = Exchange(route, codec, correlation_id, started_ns)
            exchange.follow(reply)
            return exchange
        parts = None if reply is None else _encode(route, codec, correlation_id, reply)
        now_ns = time.perf_counter_ns()
        route.observe(now_ns - started_ns)
        if self._security.throttle is not None:
            self._security.throttle.count_encoding(now_ns)
        return parts

    def answer_bare(self, api_key: ApiKey, reply: Any) -> "Exchange":
        """Answer with `reply`, bytes or a `Pending` of them, without a response header."""
        route = self._routes[api_key]
        exchange = Exchange(route, route.codec(0), 0, time.perf_counter_ns())
        if not isinstance(reply, Pending):
            reply = _settled(reply)
        exchange.follow(_Framed(reply))
        return exchange

    def answer_error(
        self,
        frame: bytearray | memoryview,
        code: ErrorCode,
        later: Callable[[Any], Pending[Any]],
    ) -> "Exchange":
        """Answer a request with an error without decoding it; `later` decides when.

        APIs without a field for an error of the whole request get an empty answer.

        Raises:
            ProtocolError: the API or its version is unknown.
        """
        try:
            api_key, version, correlation_id = _HEADER_START.unpack_from(frame)
        except struct.error:
            raise _too_short(frame) from None
        route = self._routes.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            if route is None or api_key != ApiKey.API_VERSIONS:
                raise UnsupportedVersion(api_key, version)
            version = 0  # which every client can read
        response = response_class(route.api_key)()
        if hasattr(response, "error_code"):
            response.error_code = code
        codec = route.codec(version)
        exchange = Exchange(route, codec, correlation_id, time.perf_counter_ns())
        exchange.follow(later(response))
        return exchange

    def _handler(self, key: ApiKey) -> Handler:
        """The handler of an API, behind its guard with an authorizer, and behind faults."""
        handler = handler_of(key)
        if self.context.security.access is not None:
            from broker.rights.table import guarded  # only with an authorizer

            handler = guarded(key, handler)
        return handler if self.before is None else self.before(handler)

    def _call(
        self,
        route: Route,
        request: RequestContext,
        message: Any,
        frame: bytearray | memoryview,
        started_ns: int,
    ) -> Any:
        handler = route.handler
        if handler is None:
            handler = route.handler = self._handler(route.api_key)
        throttle = self._security.throttle
        try:
            if throttle is None:
                reply = handler(self.context, request, message)
            else:
                reply = throttle.serve(
                    handler, self.context, request, message, len(frame), started_ns
                )
            if type(reply) is GeneratorType:
                reply = self._begin(route, request, reply)
            if isinstance(reply, CoroutineType):
                reply = self._spawn(reply)
        except Exception as error:  # noqa: BLE001 - see the module docstring
            return _failure_response(route, request.api_version, error)
        return reply

    def _begin(self, route: Route, request: RequestContext, steps: Steps[Any]) -> Any:
        """The reply of `steps` if one slice is enough (nearly always), else the `Work`."""
        try:
            call = next(steps)
            if call is None:
                end_ns = self._turns.slice_end_ns()
                while call is None and time.perf_counter_ns() < end_ns:
                    call = next(steps)
        except StopIteration as stop:
            if self.context.answers.leases:
                self.context.answers.release(stop.value)
            return stop.value
        return Work(self._turns, self._answer_in_steps(route, request, steps), call)

    def _serve_aside(
        self,
        route: Route,
        codec: ServerCodec,
        frame: bytearray | memoryview,
        requester: Requester,
    ) -> Steps[Any]:
        """The work of `dispatch` from header to answer, with the long parts in the side thread."""
        _, version, correlation_id = _HEADER_START.unpack_from(frame)
        # A separate view keeps the memory from being reused for the next frame.
        held = memoryview(frame)
        try:
            client_id, message = yield from off_loop(lambda: codec.decode(held))
        except ProtocolError as error:
            raise ConnectionMustClose(str(error)) from error
        request = RequestContext(
            route.api_key,
            version,
            correlation_id,
            client_id,
            requester.peer_host,
            requester.id,
            requester.session,
        )
        if route.handler is None:
            route.handler = self._handler(route.api_key)
        throttle = self._security.throttle
        if throttle is None:
            reply = route.handler(self.context, request, message)
        else:
            now_ns = time.perf_counter_ns()
            reply = throttle.serve(route.handler, self.context, request, message, len(held), now_ns)
        return (yield from self._answer_in_steps(route, request, reply))

    def _answer_in_steps(self, route: Route, request: RequestContext, reply: Any) -> Steps[Any]:
        """Run the remaining steps of a handler and encode its reply in the side thread."""
        if type(reply) is GeneratorType:
            reply = yield from reply
        if isinstance(reply, CoroutineType):
            return self._spawn(reply)
        if reply is None or isinstance(reply, Pending):
            return reply
        try:
            version, correlation_id = request.api_version, request.correlation_id
            codec = route.codec(version)
            parts = yield from off_loop(lambda: _encode(route, codec, correlation_id, reply))
            return _Encoded(parts)
        finally:
            self.context.answers.release(reply)

    def _spawn(self, coroutine: Any) -> "_TaskReply":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return _TaskReply(task)


def _too_short(frame: bytearray | memoryview) -> MalformedRequest:
    return MalformedRequest("RequestHeader", "", 0, f"{len(frame)} bytes are too few")


def _encode(route: Route, codec: ServerCodec, correlation_id: int, message: Any) -> "list[Buffer]":
    """The answer's bytes, size and header included; empty when there is no message.

    Raises:
        ConnectionMustClose: the message cannot be encoded, which is a bug in its handler.
    """
    if message is None:
        return []
    try:
        return codec.encode(correlation_id, message)
    except Exception as error:
        name = f"{route.api_key.name} v{codec.version}"
        route.metrics.failures += 1
        logger.exception("encoding %s failed", name)
        raise ConnectionMustClose(f"{name} failed inside the broker") from error


def _version_fallback(route: Route, correlation_id: int) -> "list[Buffer]":
    """The oldest answer to an unknown version of ApiVersions, with the versions we serve.

    Every client can read version 0, and finds there the version to send next.
    """
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(
                api_key=route.api_key,
                min_version=route.min_version,
                max_version=route.max_version,
            )
        ],
    )
    return _encode(route, route.codec(0), correlation_id, response)


def _failure_response(route: Route, version: int, error: BaseException) -> Any:
    """The answer to a request whose handler raised an unexpected error.

    Raises:
        ConnectionMustClose: the API has no field for an error of the whole request.
    """
    if isinstance(error, ConnectionMustClose):
        raise error
    route.metrics.failures += 1
    logger.error("%s v%d failed", route.api_key.name, version, exc_info=error)
    response = response_class(route.api_key)()
    if not hasattr(response, "error_code"):
        raise ConnectionMustClose(f"{route.api_key.name} v{version} failed inside the broker")
    response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return response
