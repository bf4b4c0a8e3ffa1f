"""Are headers flexible exactly when they must be?"""

from __future__ import annotations

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from protocol import headers
from protocol.api_keys import ApiKey
from protocol.declare.primitives import NEVER
from protocol.declare.varint import encode_unsigned
from protocol.errors import MalformedRequest
from protocol.headers import RequestHeader
from tests.support.codec import decode_request_header
from tests.unit.protocol.samples import DECLARED

V1 = bytes.fromhex("0003 0008 0000002a 0004 74657374")
V2 = bytes.fromhex("0003 0009 0000002a 0004 74657374 00")


def header(
    version: int, client_id: str | None = "test", key: int = ApiKey.METADATA
) -> RequestHeader:
    return RequestHeader(api_key=key, api_version=version, correlation_id=42, client_id=client_id)


@pytest.mark.parametrize(("golden", "version"), [(V1, 8), (V2, 9)])
def test_request_header_bytes(golden: bytes, version: int) -> None:
    assert headers.encode_request_header(header(version)) == golden
    assert decode_request_header(golden + b"body") == (header(version), len(golden))


@pytest.mark.parametrize("client_id", [None, "", "é"])
@pytest.mark.parametrize("version", [8, 9])
def test_client_id_may_be_null_empty_or_unicode(client_id: str | None, version: int) -> None:
    data = headers.encode_request_header(header(version, client_id))
    assert decode_request_header(data) == (header(version, client_id), len(data))


def test_tags_of_a_request_header_are_skipped() -> None:
    data = V2[:-1] + bytes.fromhex("01 05 03 aabbcc")
    assert decode_request_header(memoryview(data)) == (header(9), len(data))


@pytest.mark.parametrize("golden", [V1, V2])
def test_request_header_cut_short(golden: bytes) -> None:
    for end in range(len(golden)):
        with pytest.raises(MalformedRequest):
            decode_request_header(golden[:end])


def test_client_id_that_claims_too_much_is_named() -> None:
    with pytest.raises(MalformedRequest, match=r"RequestHeader.client_id at byte 10: claims 32767"):
        decode_request_header(V1[:8] + b"\x7f\xff" + b"test")


def test_client_id_that_is_not_text_is_named() -> None:
    with pytest.raises(MalformedRequest, match=r"RequestHeader.client_id .*not UTF-8"):
        decode_request_header(V1[:-1] + b"\xff")


def test_broken_tag_section_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="broken tag section"):
        decode_request_header(V2[:-1] + b"\xff\xff\xff\xff\xff\xff")


@pytest.mark.parametrize("key", [999, -1, ApiKey.VOTE, ApiKey.SHARE_FETCH])
def test_header_of_an_unknown_api_is_still_readable(key: int) -> None:
    wanted = header(0, key=key)
    data = headers.encode_request_header(wanted)
    assert decode_request_header(data) == (wanted, len(data))


def test_strangers_leave_no_trace() -> None:
    before = dict(headers._flexible_since)
    assert headers.flexible_since(12345) == NEVER
    assert headers._flexible_since == before


def test_api_that_never_became_flexible() -> None:
    assert headers.flexible_since(ApiKey.SASL_HANDSHAKE) == NEVER
    assert headers.encode_response_header(ApiKey.OFFSET_DELETE, 0, 1) == b"\0\0\0\x01"


@pytest.mark.parametrize("version", range(6))
def test_api_versions_answer_never_has_tags(version: int) -> None:
    data = headers.encode_response_header(ApiKey.API_VERSIONS, version, -7)
    assert data == b"\xff\xff\xff\xf9"
    assert headers.decode_response_header(data, ApiKey.API_VERSIONS, version) == (-7, 4)


@pytest.mark.parametrize(("version", "golden"), [(8, "0000002a"), (9, "0000002a00")])
def test_response_header_bytes(version: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert headers.encode_response_header(ApiKey.METADATA, version, 42) == data
    assert headers.decode_response_header(data, ApiKey.METADATA, version) == (42, len(data))


@pytest.mark.parametrize(("data", "version"), [("000000", 0), ("0000002a", 9), ("0000002a01", 9)])
def test_response_header_cut_short(data: str, version: int) -> None:
    with pytest.raises(MalformedRequest):
        headers.decode_response_header(bytes.fromhex(data), ApiKey.METADATA, version)


@pytest.mark.parametrize("key", DECLARED, ids=lambda key: key.name)
def test_kio_reads_our_headers(key: ApiKey) -> None:
    for version in schema_name_map[api_key_map[key]]:
        request = headers.encode_request_header(header(version, key=key))
        theirs, size = entity_reader(load_request_schema(key, version).__header_schema__)(
            request, 0
        )
        assert (size, theirs.correlation_id, theirs.client_id) == (len(request), 42, "test")
        response = headers.encode_response_header(key, version, 42)
        answer, size = entity_reader(load_response_schema(key, version).__header_schema__)(
            response, 0
        )
        assert (size, answer.correlation_id) == (len(response), 42)


def test_tags_of_a_header_are_bounded() -> None:
    def sent(count: int) -> bytes:
        tags = encode_unsigned(count) + b"\x63\0" * count
        return bytes.fromhex("0003 000c 00000007 ffff") + tags

    assert decode_request_header(sent(headers.TAGS_MAX))[1] == len(sent(headers.TAGS_MAX))
    with pytest.raises(MalformedRequest, match="at most 1000 are accepted"):
        decode_request_header(sent(headers.TAGS_MAX + 1))
