"""One connection: versions agreed, answers matched, failures reach every caller once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.aio.connection import LoopConnection
from client.core.options import ClusterOptions
from client.errors import BrokerRefused, BrokerUnreachable, UnsupportedByBroker
from protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from protocol.api.metadata import MetadataRequest, MetadataResponse
from protocol.api_keys import ApiKey, VersionRange
from protocol.error_codes import ErrorCode
from protocol.frames import FrameDecoder, encode_frame
from protocol.headers import RequestHeader, encode_response_header
from tests.support.codec import decode_request_header, encode_response

OFFER = [
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4),
    ApiVersion(api_key=ApiKey.METADATA, min_version=2, max_version=5),
]


class FakeTransport(asyncio.Transport):
    """Keeps the requests that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[RequestHeader] = []
        self.is_aborted = False
        self._frames = FrameDecoder(1 << 20)

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self._frames.feed(part)
        while (frame := self._frames.next_frame()) is not None:
            self.requests.append(decode_request_header(frame)[0])

    def abort(self) -> None:
        self.is_aborted = True


def opened(versions: dict[int, VersionRange] | None = None) -> tuple[LoopConnection, FakeTransport]:
    connection = LoopConnection("h", 1, ClusterOptions(bootstrap=(), request_timeout_ms=1000))
    transport = FakeTransport()
    connection.connection_made(transport)
    if versions is not None:
        connection.versions = versions
    return connection, transport


def answer(header: RequestHeader, response: Any, version: int | None = None) -> bytes:
    version = header.api_version if version is None else version
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return b"".join(encode_frame([head, *encode_response(response, version)]))


async def negotiated(
    reply: Callable[[RequestHeader], bytes],
) -> tuple[LoopConnection, FakeTransport]:
    """Run the negotiation with a broker that answers by `reply`."""
    connection, transport = opened()
    task = asyncio.create_task(connection.greet())
    seen = 0
    while not task.done():
        await asyncio.sleep(0)
        if len(transport.requests) > seen:
            seen += 1
            connection.data_received(reply(transport.requests[-1]))
    await task
    return connection, transport


METADATA: dict[int, VersionRange] = {ApiKey.METADATA: VersionRange(2, 5)}


async def test_the_brokers_versions_are_asked_first() -> None:
    connection, _ = await negotiated(lambda h: answer(h, ApiVersionsResponse(api_keys=OFFER)))
    assert connection.versions[ApiKey.METADATA] == VersionRange(2, 5)


async def test_a_broker_too_old_for_our_question_names_the_version_it_knows() -> None:
    def reply(header: RequestHeader) -> bytes:
        if header.api_version > 2:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            refusal.api_keys = [ApiVersion(api_key=18, min_version=0, max_version=2)]
            return answer(header, refusal, version=0)
        return answer(header, ApiVersionsResponse(api_keys=OFFER))

    _, transport = await negotiated(reply)
    assert [header.api_version for header in transport.requests] == [4, 2]


async def test_a_refusal_that_names_nothing_falls_back_to_0() -> None:
    def reply(header: RequestHeader) -> bytes:
        if header.api_version > 0:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            return answer(header, refusal, version=0)
        return answer(header, ApiVersionsResponse(api_keys=OFFER))

    _, transport = await negotiated(reply)
    assert [header.api_version for header in transport.requests] == [4, 0]


async def test_another_refusal_is_reported() -> None:
    with pytest.raises(BrokerRefused, match="CLUSTER_AUTHORIZATION_FAILED"):
        await negotiated(
            lambda h: answer(
                h, ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            )
        )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"max_version": 12}, 5), ({"max_version": 4}, 4), ({"max_version": 4, "min_version": 3}, 4)],
)
async def test_the_highest_common_version_is_used(limits: dict[str, int], expected: int) -> None:
    connection, _ = opened(METADATA)
    assert connection.version_of(ApiKey.METADATA, **limits) == expected


@pytest.mark.parametrize("limits", [{"max_version": 1}, {"max_version": 12, "min_version": 6}])
async def test_no_common_version_is_reported_with_both_ranges(limits: dict[str, int]) -> None:
    connection, _ = opened(METADATA)
    with pytest.raises(UnsupportedByBroker, match="h:1 offers METADATA 2-5, and this call needs"):
        connection.version_of(ApiKey.METADATA, **limits)


async def test_a_missing_api_is_reported() -> None:
    connection, _ = opened(METADATA)
    with pytest.raises(UnsupportedByBroker, match="does not offer FETCH"):
        connection.version_of(ApiKey.FETCH, max_version=4)


async def test_pipelined_answers_go_to_those_who_asked() -> None:
    connection, transport = opened(METADATA)
    calls = [asyncio.create_task(connection.call(MetadataRequest())) for _ in range(2)]
    await asyncio.sleep(0)
    answers = [
        answer(header, MetadataResponse(cluster_id=f"c{n}"))
        for n, header in enumerate(transport.requests)
    ]
    connection.data_received(b"".join(answers))
    assert [(await call).cluster_id for call in calls] == ["c0", "c1"]


async def test_silence_ends_the_connection_for_all_who_wait() -> None:
    connection, transport = opened(METADATA)
    calls = [
        asyncio.create_task(connection.call(MetadataRequest(), timeout_ms=t)) for t in (1, 9000)
    ]
    for call in calls:
        with pytest.raises(BrokerUnreachable, match="no answer to METADATA within 1 ms"):
            await call
    assert transport.is_aborted
    assert not connection.is_open


async def test_an_answer_out_of_step_ends_the_connection() -> None:
    connection, transport = opened(METADATA)
    call = asyncio.create_task(connection.call(MetadataRequest()))
    await asyncio.sleep(0)
    header = transport.requests[0]
    header.correlation_id += 1
    connection.data_received(answer(header, MetadataResponse()))
    with pytest.raises(BrokerUnreachable, match="came where"):
        await call


async def test_an_answer_without_a_request_ends_the_connection() -> None:
    connection, transport = opened(METADATA)
    connection.data_received(b"\x00\x00\x00\x04\x00\x00\x00\x01")
    assert transport.is_aborted


async def test_an_unreadable_answer_ends_the_connection() -> None:
    connection, transport = opened(METADATA)
    call = asyncio.create_task(connection.call(MetadataRequest()))
    await asyncio.sleep(0)
    correlation_id = transport.requests[0].correlation_id.to_bytes(4, "big")
    connection.data_received(b"\x00\x00\x00\x05" + correlation_id + b"\xff")
    with pytest.raises(BrokerUnreachable, match="cannot be read"):
        await call
    assert transport.is_aborted


async def test_a_lost_connection_fails_what_waits_and_what_comes_later() -> None:
    connection, _ = opened(METADATA)
    call = asyncio.create_task(connection.call(MetadataRequest()))
    await asyncio.sleep(0)
    connection.connection_lost(None)
    with pytest.raises(BrokerUnreachable, match="the broker closed the connection"):
        await call
    with pytest.raises(BrokerUnreachable):
        await connection.call(MetadataRequest())


@pytest.mark.parametrize("has_served", [False, True])
async def test_a_broker_that_closes_at_the_first_request_may_want_a_user(has_served: bool) -> None:
    connection, transport = opened(METADATA)
    if has_served:
        first = asyncio.create_task(connection.call(MetadataRequest()))
        await asyncio.sleep(0)
        connection.data_received(answer(transport.requests[0], MetadataResponse()))
        await first
    call = asyncio.create_task(connection.call(MetadataRequest()))
    await asyncio.sleep(0)
    connection.connection_lost(None)
    with pytest.raises(BrokerUnreachable) as failed:
        await call
    assert ("want a user" in str(failed.value)) is not has_served


async def test_a_full_socket_makes_calls_wait() -> None:
    connection, transport = opened(METADATA)
    connection.pause_writing()
    call = asyncio.create_task(connection.call(MetadataRequest()))
    await asyncio.sleep(0)
    assert transport.requests == []
    connection.resume_writing()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(transport.requests) == 1
    connection.close()
    with pytest.raises(BrokerUnreachable, match="closed by this client"):
        await call
