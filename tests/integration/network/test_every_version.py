"""Every advertised version of every API is answered, and the answer decodes to its last byte."""

import pkgutil

import pytest

from broker import handlers
from broker.handlers import handler_of
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.registry import request_class
from tests.support.broker import RawClient, RunningBroker

_WAITS = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}


def test_what_is_advertised_is_what_is_handled() -> None:
    modules = {module.name for module in pkgutil.iter_modules(handlers.__path__)}
    assert modules == {key.name.lower() for key in SUPPORTED}
    assert all(callable(handler_of(key)) for key in SUPPORTED)


@pytest.mark.parametrize("api_key", list(SUPPORTED), ids=lambda key: key.name.lower())
async def test_every_version_answers_a_default_request(
    broker: RunningBroker, api_key: ApiKey
) -> None:
    """A request with nothing but defaults is odd but legal: it gets an answer or an error code."""
    client = await broker.client()
    for version in range(SUPPORTED[api_key].min, SUPPORTED[api_key].max + 1):
        message = request_class(api_key)()
        if api_key is ApiKey.API_VERSIONS:
            message.client_software_name = message.client_software_version = "x"
        if api_key is ApiKey.PRODUCE:
            message.acks = 1
        response = await client.request(message, version)
        assert response is not None, f"{api_key.name} v{version}"


async def test_unknown_key_closes_the_connection(client: RawClient) -> None:
    client.send_raw(bytes.fromhex("0000000a 7fff 0000 00000001 ffff".replace(" ", "")))
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize(
    "api_key", [key for key in SUPPORTED if key is not ApiKey.API_VERSIONS], ids=lambda k: k.name
)
async def test_version_above_ours_closes_the_connection(client: RawClient, api_key: ApiKey) -> None:
    version = SUPPORTED[api_key].max + 1
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    client.send_raw((10).to_bytes(4, "big") + head + bytes.fromhex("00000001ffff"))
    assert await client.is_closed_by_broker()
