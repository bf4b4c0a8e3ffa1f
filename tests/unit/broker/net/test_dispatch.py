"""The dispatcher: what is answered now, later or never, and what a bug costs."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.errors import ConnectionMustClose
from broker.metrics import Metrics
from broker.net.dispatch import ELEMENTS_AT_ONCE, OFTEN, Dispatcher, Exchange
from broker.replies.pending import Pending
from broker.replies.turns import Turns
from broker.requests.answers import AnswerMemory
from broker.requests.context import Context, RequestContext
from broker.security.session import Session
from broker.threads import Pool
from protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.api_keys import ApiKey
from protocol.declare.primitives import message_spec
from protocol.errors import MalformedRequest, UnsupportedVersion
from protocol.headers import RequestHeader, decode_response_header, encode_request_header
from protocol.registry import decode_response, encode_request

REQUESTER = SimpleNamespace(peer_host="127.0.0.1", id=1, session=Session())


def frame(message: Any, version: int, correlation_id: int = 7) -> bytearray:
    header = RequestHeader(
        api_key=message_spec(type(message)).api_key,
        api_version=version,
        correlation_id=correlation_id,
        client_id="me",
    )
    return bytearray(encode_request_header(header) + encode_request(message, version))


class Bench:
    """A dispatcher whose handlers are the test's."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        answers = AnswerMemory(1 << 20, list)
        turns = Turns(Pool("side", 1))
        security = SimpleNamespace(access=None, throttle=None)
        context = SimpleNamespace(
            config=SimpleNamespace(workers=1),
            metrics=self.metrics,
            turns=turns,
            answers=answers,
            security=security,
        )
        self.dispatcher = Dispatcher(cast(Context, context))

    def handle(self, key: ApiKey, handler: Any) -> None:
        self.dispatcher._routes[key].handler = handler

    def dispatch(self, data: bytearray) -> Any:
        return self.dispatcher.dispatch(data, cast(Any, REQUESTER))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_answer_has_size_and_correlation_id(bench: Bench) -> None:
    bench.handle(ApiKey.METADATA, lambda *_: MetadataResponse())
    answer = b"".join(bench.dispatch(frame(MetadataRequest(), 1, correlation_id=-5)))
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert answer[4:8] == (-5).to_bytes(4, "big", signed=True)


def test_handler_sees_the_request(bench: Bench) -> None:
    seen: list[RequestContext] = []

    def handler(_: Context, request: RequestContext, message: Any) -> MetadataResponse:
        seen.append(request)
        return MetadataResponse()

    bench.handle(ApiKey.METADATA, handler)
    bench.dispatch(frame(MetadataRequest(), 4))
    assert seen == [RequestContext(3, 4, 7, "me", "127.0.0.1", 1, REQUESTER.session)]


def test_no_answer_is_no_answer(bench: Bench) -> None:
    bench.handle(ApiKey.METADATA, lambda *_: None)
    assert bench.dispatch(frame(MetadataRequest(), 1)) is None


def test_pending_answer_comes_later(bench: Bench) -> None:
    pending: Pending[Any] = Pending()
    bench.handle(ApiKey.METADATA, lambda *_: pending)
    exchange = bench.dispatch(frame(MetadataRequest(), 1))
    assert isinstance(exchange, Exchange)
    done: list[Exchange] = []
    exchange.when_done(done.append)
    assert (exchange.parts, done) == (None, [])
    pending.resolve(MetadataResponse())
    assert exchange.parts is not None
    assert done == [exchange]


async def test_coroutine_runs_as_a_task(bench: Bench) -> None:
    async def handler(*_: Any) -> MetadataResponse:
        return MetadataResponse()

    bench.handle(ApiKey.METADATA, handler)
    exchange = bench.dispatch(frame(MetadataRequest(), 1))
    (task,) = bench.dispatcher._tasks
    await task
    assert exchange.parts
    assert not bench.dispatcher._tasks


async def test_coroutine_may_return_a_pending(bench: Bench) -> None:
    pending: Pending[Any] = Pending()

    async def handler(*_: Any) -> Pending[Any]:
        return pending

    bench.handle(ApiKey.METADATA, handler)
    exchange = bench.dispatch(frame(MetadataRequest(), 1))
    await next(iter(bench.dispatcher._tasks))
    assert exchange.parts is None
    pending.resolve(MetadataResponse())
    assert exchange.parts


async def test_abandoned_task_is_cancelled(bench: Bench) -> None:
    import asyncio

    async def handler(*_: Any) -> None:
        await asyncio.sleep(60)

    bench.handle(ApiKey.METADATA, handler)
    exchange = bench.dispatch(frame(MetadataRequest(), 1))
    task = next(iter(bench.dispatcher._tasks))
    exchange.abandon()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_produce_may_be_overtaken_and_fetch_may_not(bench: Bench) -> None:
    from protocol.api.fetch import FetchRequest
    from protocol.api.produce import ProduceRequest

    for key in (ApiKey.PRODUCE, ApiKey.FETCH):
        bench.handle(key, lambda *_: Pending())
    assert bench.dispatch(frame(ProduceRequest(), 9)).may_be_overtaken
    assert not bench.dispatch(frame(FetchRequest(), 11)).may_be_overtaken


def fail(*_: Any) -> None:
    raise ZeroDivisionError("a bug")


def test_bug_is_answered_where_the_api_has_an_error_code(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.handle(ApiKey.LIST_GROUPS, fail)
    answer = bench.dispatch(frame(ListGroupsRequest(), 1))
    assert b"".join(answer)[-6:-4] == b"\xff\xff"
    assert bench.metrics.api(ApiKey.LIST_GROUPS).failures == 1
    assert "a bug" in caplog.text


def test_bug_closes_where_the_api_has_none(bench: Bench) -> None:
    from protocol.api.describe_groups import DescribeGroupsRequest

    bench.handle(ApiKey.DESCRIBE_GROUPS, fail)
    with pytest.raises(ConnectionMustClose):
        bench.dispatch(frame(DescribeGroupsRequest(), 1))


def test_late_bug_is_answered_too(bench: Bench) -> None:
    pending: Pending[Any] = Pending()
    bench.handle(ApiKey.LIST_GROUPS, lambda *_: pending)
    exchange = bench.dispatch(frame(ListGroupsRequest(), 1))
    pending.fail(ZeroDivisionError())
    assert exchange.parts


def test_unencodable_answer_closes_its_own_connection_only(bench: Bench) -> None:
    """An acks callback that raised here would lose the acks after it in the same sync."""
    pending: Pending[Any] = Pending()
    bench.handle(ApiKey.LIST_GROUPS, lambda *_: pending)
    exchange = bench.dispatch(frame(ListGroupsRequest(), 1))
    done: list[Exchange] = []
    exchange.when_done(done.append)
    pending.resolve(ListGroupsResponse(error_code=10**9))
    assert done == [exchange]
    assert exchange.parts is None
    assert exchange.close_reason


@pytest.mark.parametrize("data", [b"", b"\0", bytes(7)])
def test_frame_without_a_header_is_malformed(bench: Bench, data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        bench.dispatch(bytearray(data))


@pytest.mark.parametrize("start", ["7fff0000", "00040000", "0003000e", "0003ffff", "00ff0001"])
def test_unknown_key_or_version_cannot_be_answered(bench: Bench, start: str) -> None:
    with pytest.raises(UnsupportedVersion):
        bench.dispatch(bytearray(bytes.fromhex(start + "00000001ffff")))


def test_unknown_version_of_api_versions_is_answered(bench: Bench) -> None:
    bench.handle(ApiKey.API_VERSIONS, lambda *_: ApiVersionsResponse())
    answer = b"".join(bench.dispatch(bytearray(bytes.fromhex("0012000900000001ffff"))))
    assert answer == bytes.fromhex(
        "00000010 00000001 0023 00000001 0012 0000 0004".replace(" ", "")
    )
    known = bench.dispatch(frame(ApiVersionsRequest(), 0))
    assert b"".join(known)[8:10] == b"\0\0"


def test_warm_up_loads_what_producers_and_consumers_use_and_nothing_else(bench: Bench) -> None:
    for _ in bench.dispatcher.warm_up():
        pass
    routes = bench.dispatcher._routes
    assert {key for key, route in routes.items() if route.handler is not None} == set(OFTEN)
    assert {key for key, route in routes.items() if route.codecs} == set(OFTEN)


async def test_handler_in_steps_is_answered_at_once_if_it_is_quick(bench: Bench) -> None:
    def handler(*_: Any) -> Any:
        yield None
        return MetadataResponse()

    bench.handle(ApiKey.METADATA, handler)
    assert isinstance(bench.dispatch(frame(MetadataRequest(), 1)), list)


async def test_handler_in_long_steps_is_answered_later(bench: Bench) -> None:
    def handler(*_: Any) -> Any:
        for _step in range(3):
            time.sleep(0.003)
            yield None
        return MetadataResponse()

    bench.handle(ApiKey.METADATA, handler)
    exchange = bench.dispatch(frame(MetadataRequest(), 1))
    assert isinstance(exchange, Exchange)
    assert not exchange.may_be_overtaken
    assert b"".join(await answer_of(exchange))[4:8] == (7).to_bytes(4, "big")


@pytest.mark.parametrize("step", [0, 1])
async def test_steps_that_fail_cost_one_request(bench: Bench, step: int) -> None:
    def handler(*_: Any) -> Any:
        if step:
            time.sleep(0.003)
            yield None
        raise ZeroDivisionError("a bug")

    bench.handle(ApiKey.LIST_GROUPS, handler)
    outcome = bench.dispatch(frame(ListGroupsRequest(), 4))
    parts = await answer_of(outcome) if isinstance(outcome, Exchange) else outcome
    assert b"\xff\xff" in b"".join(parts)
    assert bench.metrics.api(ApiKey.LIST_GROUPS).failures == 1


async def test_request_of_many_elements_is_served_aside(bench: Bench) -> None:
    threads: list[int] = []

    def handler(_: Context, request: RequestContext, message: MetadataRequest) -> Any:
        threads.append(threading.get_ident())
        assert message.topics is not None
        return MetadataResponse(controller_id=len(message.topics))

    bench.handle(ApiKey.METADATA, handler)
    names = [MetadataRequestTopic(name="t")] * (ELEMENTS_AT_ONCE + 1)
    exchange = bench.dispatch(frame(MetadataRequest(topics=names), 9))
    assert isinstance(exchange, Exchange)
    assert exchange.needs_frame
    answer = b"".join(await answer_of(exchange))
    _, position = decode_response_header(answer[4:], ApiKey.METADATA, 9)
    response = decode_response(ApiKey.METADATA, 9, memoryview(answer[4:]), position)
    assert response.controller_id == len(names)
    assert threads == [threading.get_ident()], "handlers run in the loop thread"


async def test_malformed_request_of_many_elements_closes(bench: Bench) -> None:
    names = [MetadataRequestTopic(name="t")] * (ELEMENTS_AT_ONCE + 1)
    exchange = bench.dispatch(frame(MetadataRequest(topics=names), 9)[:-900])
    while exchange.close_reason is None:
        await asyncio.sleep(0.001)
    assert "MetadataRequest" in exchange.close_reason


async def answer_of(exchange: Exchange) -> list[Any]:
    for _ in range(5000):
        if exchange.parts is not None:
            return list(exchange.parts)
        await asyncio.sleep(0.001)
    raise AssertionError("no answer")
