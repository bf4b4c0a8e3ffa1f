"""ApiVersions: the list, the fallback every client understands, and names out of the alphabet."""

import pytest

from broker.requests.features import FINALIZED
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.error_codes import ErrorCode
from protocol.headers import RequestHeader, encode_request_header
from protocol.registry import decode_response
from tests.support.broker import RawClient

KAFKA_CLIENT = ApiVersionsRequest(client_software_name="apache-kafka", client_software_version="1")


@pytest.mark.parametrize("version", range(5))
async def test_list_is_what_is_supported(client: RawClient, version: int) -> None:
    response = await client.request(KAFKA_CLIENT, version)
    listed = {(a.api_key, a.min_version, a.max_version) for a in response.api_keys}
    assert listed == {(key, range_.min, range_.max) for key, range_ in SUPPORTED.items()}
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 6, 99, 32767, -1])
async def test_unknown_version_is_answered_in_version_0(client: RawClient, version: int) -> None:
    header = RequestHeader(
        api_key=ApiKey.API_VERSIONS, api_version=version, correlation_id=7, client_id=None
    )
    frame = encode_request_header(header) + b"a body of no known version"
    client.send_raw(len(frame).to_bytes(4, "big") + frame)
    answer = await client.receive_frame()
    assert answer[:4] == (7).to_bytes(4, "big"), "response header version 0"
    response = decode_response(ApiKey.API_VERSIONS, 0, memoryview(answer), 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(18, 0, 4)]


async def test_connection_continues_after_the_fallback(client: RawClient) -> None:
    await test_unknown_version_is_answered_in_version_0(client, 5)
    assert (await client.request(KAFKA_CLIENT, 4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x\n"])
async def test_software_name_out_of_the_alphabet_is_refused(client: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert (await client.request(request, 3)).error_code == ErrorCode.INVALID_REQUEST
    assert (await client.request(request, 2)).error_code == ErrorCode.NONE


async def test_finalized_features_have_an_epoch(client: RawClient) -> None:
    response = await client.request(KAFKA_CLIENT, 4)
    assert response.finalized_features_epoch >= 0
    assert {feature.name for feature in response.finalized_features} == set(FINALIZED)
