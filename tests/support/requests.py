"""Short forms of the requests that most integration tests need, and the answers' one part."""

from collections.abc import Sequence
from typing import Any

from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from protocol.declare.primitives import Buffer
from protocol.records.record import Record
from protocol.records.scan import iter_records, scan_entries
from protocol.structs import ConfigText
from tests.support.broker import RawClient

LATEST_CREATE_TOPICS = 7
PRODUCE_VERSION = 11
FETCH_VERSION = 12


async def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic; its id.  Settings are written with underscores for dots."""
    response = await client.request(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        ConfigText(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ]
        ),
        LATEST_CREATE_TOPICS,
    )
    (topic,) = response.topics
    assert topic.error_code == 0, topic.error_message
    topic_id: bytes = topic.topic_id
    return topic_id


def produce_request(
    topic: str,
    records: Buffer | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    """A request with one partition."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
        ],
    )


async def produce(
    client: RawClient,
    topic: str,
    records: Buffer | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = PRODUCE_VERSION,
) -> PartitionProduceResponse:
    """Append to one partition; its answer."""
    request = produce_request(topic, records, partition=partition, acks=acks)
    response = await client.request(request, version)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


def fetch_request(
    topic: str,
    offsets: dict[int, int] | int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max_bytes: int = 1_048_576,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    topic_id: bytes = bytes(16),
    **partition_fields: Any,
) -> FetchRequest:
    """A request for partitions of one topic, given as partition -> offset."""
    if isinstance(offsets, int):
        offsets = {0: offsets}
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        **partition_fields,
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ]
        if offsets
        else [],
    )


async def fetch(
    client: RawClient,
    topic: str,
    offset: dict[int, int] | int = 0,
    *,
    version: int = FETCH_VERSION,
    **fields: Any,
) -> PartitionData:
    """Read one partition, number 0 unless `offset` names another; its part of the answer."""
    response: FetchResponse = await client.request(fetch_request(topic, offset, **fields), version)
    return response.responses[0].partitions[0]


def records_of(data: PartitionData | Buffer) -> list[Record]:
    """Every record in the answer, decompressed, batches that begin too early included."""
    buffer = data.records if isinstance(data, PartitionData) else data
    assert buffer is not None, "records are never null"
    return [
        record
        for entry in scan_entries(buffer)
        for record in iter_records(memoryview(buffer)[entry.position :][: entry.size])
    ]


def values_of(data: PartitionData | Buffer) -> list[bytes | None]:
    """The values of every record in the answer."""
    return [None if r.value is None else bytes(r.value) for r in records_of(data)]


async def list_offset(
    client: RawClient,
    topic: str,
    timestamp: int,
    *,
    partition: int = 0,
    version: int = 10,
    **fields: int,
) -> ListOffsetsPartitionResponse:
    """Look one timestamp up in one partition."""
    response = await client.request(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=fields.pop("isolation_level", 0),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition, timestamp=timestamp, **fields
                        )
                    ],
                )
            ],
        ),
        version,
    )
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


def metadata_request(names: Sequence[str] | None, *, create: bool = False) -> MetadataRequest:
    """Metadata of topics by name; None asks for all."""
    return MetadataRequest(
        topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )
