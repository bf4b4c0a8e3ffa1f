"""What ends a client when a broker gets it wrong, each once found by trying.

| wrong answer                                      | who fails             | tested in         |
|---------------------------------------------------|-----------------------|-------------------|
| an empty partition missing in a full Fetch answer | Java, kafka-python    | test_fetch        |
| `records` null                                    | librdkafka            | test_fetch, here  |
| a controller that is not listed                   | all who create topics | test_metadata     |
| topics without ids while Produce 13 is offered    | Java                  | here              |
| Produce from a version above 0 on                 | librdkafka up to 2.11 | test_api_keys     |
| ListOffsets from a version above 0 on             | librdkafka up to 1.0  | test_api_keys     |
| silence about an unknown ApiVersions version      | all that are newer    | test_api_versions |
| a found offset without a timestamp                | Java                  | here              |
"""

import pytest

from broker.topics.registry import NO_TOPIC_ID
from protocol.api.metadata import MetadataRequest
from protocol.api_keys import SUPPORTED, ApiKey
from protocol.error_codes import ErrorCode
from tests.support.broker import RawClient, batch
from tests.support.requests import create_topic, fetch_request, list_offset, produce

NO_TIMESTAMP = -1


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.FETCH].max + 1))
async def test_records_are_never_null_also_beside_an_error(client: RawClient, version: int) -> None:
    topic_id = await create_topic(client, "t")
    await produce(client, "t", batch("a"))
    request = fetch_request("t", {0: 99, 7: 0}, topic_id=topic_id)
    response = await client.request(request, version)
    partitions = response.responses[0].partitions
    assert [each.error_code for each in partitions] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [bytes(each.records) for each in partitions] == [b"", b""]


@pytest.mark.parametrize("version", range(10, SUPPORTED[ApiKey.METADATA].max + 1))
async def test_every_topic_has_an_id_of_its_own(client: RawClient, version: int) -> None:
    """All or none: a client that sees Produce 13 and Fetch 13 names topics by their ids."""
    for name in ("a", "b", "c"):
        await create_topic(client, name)
    topics = (await client.request(MetadataRequest(topics=None), version)).topics
    ids = {bytes(topic.topic_id) for topic in topics}
    assert {"a", "b", "c", "__consumer_offsets"} <= {topic.name for topic in topics}
    assert len(ids) == len(topics)
    assert NO_TOPIC_ID not in ids


@pytest.mark.parametrize("timestamp", [0, 1, 2**62])
async def test_records_without_timestamps_are_never_found_by_one(
    client: RawClient, timestamp: int
) -> None:
    await create_topic(client, "t")
    await produce(client, "t", batch("a", timestamp=NO_TIMESTAMP))
    found = await list_offset(client, "t", timestamp, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, -1, -1)
    await produce(client, "t", batch("b", timestamp=500))
    found = await list_offset(client, "t", 0, version=7)
    assert (found.offset, found.timestamp) == (1, 500)
