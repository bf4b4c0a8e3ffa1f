"""compression.*.level: Kafka's bounds, and every level between them stores what was sent."""

import random

import pytest

from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.error_codes import ErrorCode
from protocol.records.layout import Codec
from protocol.records.scan import scan_entries
from protocol.structs import ConfigText
from tests.support.broker import RawClient, RunningBroker, batch
from tests.support.requests import LATEST_CREATE_TOPICS, create_topic, fetch, produce, values_of

LEVELS = {
    "gzip": (-1, *range(1, 10)),
    "lz4": tuple(range(1, 18)),
    "zstd": (-131072, -131071, -1000, -7, -1, 0, *range(1, 23)),
}
OUTSIDE = {"gzip": (-2, 0, 10), "lz4": (-1, 0, 18), "zstd": (-131073, 23)}

EVERY_LEVEL = [(codec, level) for codec, levels in LEVELS.items() for level in levels]
EVERY_BOUND = [
    (codec, level) for codec, levels in LEVELS.items() for level in (levels[0], levels[-1])
]


@pytest.mark.parametrize(("codec", "level"), EVERY_LEVEL)
async def test_level_within_the_bounds_works(client: RawClient, codec: str, level: int) -> None:
    configs = {"compression_type": codec, f"compression_{codec}_level": str(level)}
    await create_topic(client, "t", 1, **configs)
    values = [f"{index} {'tide ' * index}" for index in range(50)]
    for offset, sent in ((0, batch(*values)), (50, batch(*values, codec=Codec.SNAPPY))):
        answer = await produce(client, "t", sent)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
        data = await fetch(client, "t", offset)
        assert values_of(data) == [value.encode() for value in values]
        assert data.records is not None
        assert [entry.codec for entry in scan_entries(data.records)] == [Codec[codec.upper()]]


@pytest.mark.parametrize(("codec", "level"), EVERY_BOUND)
async def test_level_at_a_bound_works_with_large_batches(
    client: RawClient, codec: str, level: int
) -> None:
    await create_topic(
        client,
        "t",
        1,
        compression_type=codec,
        max_message_bytes="30000000",
        **{f"compression_{codec}_level": str(level)},
    )
    words = random.Random(1).randbytes(1_000_000)
    value = words * 10
    answer = await produce(client, "t", batch(value))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    assert values_of(await fetch(client, "t", partition_max_bytes=30_000_000)) == [value]


@pytest.mark.parametrize(
    ("codec", "level"), [(codec, level) for codec, levels in OUTSIDE.items() for level in levels]
)
async def test_level_outside_is_refused(client: RawClient, codec: str, level: int) -> None:
    config = ConfigText(name=f"compression.{codec}.level", value=str(level))
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
    request = CreateTopicsRequest(topics=[topic])
    (answer,) = (await client.request(request, LATEST_CREATE_TOPICS)).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert f"compression.{codec}.level = '{level}'" in answer.error_message


@pytest.mark.parametrize(("codec", "level"), EVERY_BOUND)
async def test_level_of_the_broker_works(broker: RunningBroker, codec: str, level: int) -> None:
    client = await broker.client()
    overrides = {"compression.type": codec, f"compression.{codec}.level": str(level)}
    broker.broker.topics.set_broker_overrides(overrides)
    await create_topic(client, "t")
    assert (await produce(client, "t", batch("a"))).error_code == ErrorCode.NONE
    assert values_of(await fetch(client, "t")) == [b"a"]
