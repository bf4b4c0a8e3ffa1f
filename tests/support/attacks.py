"""What hostile clients send: whole frames, made once and sent by tests and by `benchmarks.siege`.

Each attack is small for its sender and was expensive for the broker. `ATTACKS` has them by
name. Frames are made by our own codec where the codec can write such a thing, by hand elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.api.join_group import JoinGroupRequest
from protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.declare.primitives import message_spec
from protocol.declare.varint import encode_unsigned
from protocol.headers import RequestHeader, encode_request_header
from protocol.records.builder import build_batch
from protocol.records.checksums import crc32c
from protocol.records.compression import compress
from protocol.records.layout import ATTRIBUTES_AT, RECORDS_AT, Codec
from protocol.records.record import Record
from protocol.registry import encode_request
from protocol.structs import ProtocolMetadata

TOPIC: Final = "besieged"
TOPICS: Final = 709
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is sent on each of `connections` connections at once.

    Attributes:
        title: what a reader of the table sees.
        data: the bytes, made when they are asked for.
        connections: how many send them.
        reads: whether the answers are read.
    """

    title: str
    data: Callable[[], bytes]
    connections: int = 1
    reads: bool = True


def framed(message: Any, version: int) -> bytes:
    """The request with header and size."""
    header = RequestHeader(
        api_key=message_spec(type(message)).api_key,
        api_version=version,
        correlation_id=7,
        client_id="attacker",
    )
    return sized(encode_request_header(header) + encode_request(message, version))


def sized(data: bytes) -> bytes:
    """With its true size in front."""
    return len(data).to_bytes(4, "big") + data


def plain_batch(value: bytes, codec: Codec = Codec.NONE) -> bytes:
    """A sound batch of one record."""
    record = Record(offset=0, timestamp=1_000, key=None, value=value, headers=())
    return bytes(build_batch([record], codec=codec))


def sealed(payload: bytes, codec: Codec) -> bytes:
    """A batch of one record around compressed bytes of any kind, with the right checksum."""
    data = bytearray(plain_batch(b"a")[:RECORDS_AT]) + payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = int(codec).to_bytes(2, "big")
    data[17:21] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(data)


def produce(batches: Sequence[bytes], *, topic: str = TOPIC) -> bytes:
    """One Produce with an entry for partition 0 per batch."""
    entries = [PartitionProduceData(index=0, records=batch) for batch in batches]
    data = [TopicProduceData(name=topic, partition_data=entries)]
    return framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), 11)


def bombs(count: int = 200, size_bytes: int = 63 * MIB) -> bytes:
    """Two kilobytes each that become 63 MiB; the first record is sound."""
    return produce([plain_batch(bytes(size_bytes), Codec.ZSTD)] * count)


def gzip_crumbs(size_bytes: int = 1_000_000) -> bytes:
    """A batch of fifty thousand gzip members that hold nothing."""
    member = compress(Codec.GZIP, b"")
    return produce([sealed(member * (size_bytes // len(member)), Codec.GZIP)])


def zstd_crumbs(size_bytes: int = 1_000_000) -> bytes:
    """Batches whose frame has a third of a million blocks that hold nothing."""
    frame = bytes.fromhex("28b52ffd 00 58") + b"\0\0\0" * (size_bytes // 3) + b"\1\0\0"
    return produce([sealed(frame, Codec.ZSTD)] * 20)


def snappy_crumbs(size_bytes: int = 1_000_000) -> bytes:
    """Batches of two hundred thousand snappy blocks of nothing."""
    header = compress(Codec.SNAPPY, b"a")[:16]
    block = b"\0\0\0\1\0"
    return produce([sealed(header + block * (size_bytes // len(block)), Codec.SNAPPY)] * 5)


def greedy_fetches(count: int = 20, topic: str = TOPIC) -> bytes:
    """Everything there is, again and again."""
    most = 2**31 - 1
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=most)
    topics = [FetchTopic(topic=topic, partitions=[asked])]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=most, session_epoch=-1, topics=topics
    )
    return framed(request, 12) * count


def tags(count: int = 10_000_000) -> bytes:
    """Metadata with tagged fields that are empty and unknown."""
    head = bytes.fromhex("0003 000c 00000007 ffff 00 01 00 00")
    return sized(head + encode_unsigned(count) + b"\x63\0" * count)


def header_tags(count: int = 10_000_000) -> bytes:
    """The same in the header of the request."""
    return sized(
        bytes.fromhex("0003 000c 00000007 ffff") + encode_unsigned(count) + b"\x63\0" * count
    )


def pipelined(count: int = 100_000) -> bytes:
    """ApiVersions without end."""
    return framed(ApiVersionsRequest(), 0) * count


def known_names(count: int = 100_000) -> bytes:
    """Metadata of topics that exist, each asked for many times."""
    names = [MetadataRequestTopic(name=f"{TOPIC}-{n % TOPICS}") for n in range(count)]
    return framed(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)


def unknown_names(count: int = 100_000) -> bytes:
    """Metadata of as many topics that do not exist."""
    names = [MetadataRequestTopic(name=f"n{n}") for n in range(count)]
    return framed(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)


def joins(count: int = 20_000) -> bytes:
    """Members that never come back with the id that they are given."""
    protocols = [ProtocolMetadata(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="besieging",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return framed(request, 5) * count


def groups(count: int = 90_000) -> bytes:
    """DescribeGroups in 260 KiB, of groups that do not exist."""
    return framed(DescribeGroupsRequest(groups=["g"] * count), 5)


def lookups(count: int = 90_000) -> bytes:
    """ListOffsets at a time, of one partition all the time."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=7)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked] * count)]
    )
    return framed(request, 7)


def fetched_partitions(count: int = 90_000) -> bytes:
    """A Fetch that names one partition again and again."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1000,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[asked] * count)],
    )
    return framed(request, 12)


def configs(count: int = 20_000) -> bytes:
    """The settings of one topic, described as often as fits."""
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
    return framed(DescribeConfigsRequest(resources=[resource] * count), 4)


def described_topics() -> bytes:
    """All settings of all topics, with their levels and texts."""
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=f"{TOPIC}-{number}")
        for number in range(TOPICS)
    ]
    everything = {"include_synonyms": True, "include_documentation": True}
    return framed(DescribeConfigsRequest(resources=resources, **everything), 4)


def described_groups(count: int = 20_000) -> bytes:
    """All settings of groups that do not exist."""
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=f"{number}")
        for number in range(count)
    ]
    return framed(DescribeConfigsRequest(resources=resources, include_synonyms=True), 4)


def produced_partitions(count: int = 45_000) -> bytes:
    """A Produce with entries for partitions that do not exist."""
    entries = [PartitionProduceData(index=5, records=b"") for _ in range(count)]
    data = [TopicProduceData(name=TOPIC, partition_data=entries)]
    return framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), 11)


ATTACKS: Final[dict[str, Attack]] = {
    "bombs": Attack(title="Produce, 200 x 2 KB that become 63 MiB", data=bombs),
    "gzip": Attack(title="Produce, 50,000 gzip members", data=gzip_crumbs),
    "zstd": Attack(title="Produce, 20 x 333,000 zstd blocks", data=zstd_crumbs),
    "snappy": Attack(title="Produce, 5 x 200,000 snappy blocks", data=snappy_crumbs),
    "unread": Attack(
        title="60 x 20 Fetches of 2 GB, unread", data=greedy_fetches, connections=60, reads=False
    ),
    "tags": Attack(title="Metadata, 10 M tagged fields", data=tags),
    "header-tags": Attack(title="header with 10 M tagged fields", data=header_tags),
    "pipelined": Attack(title="100,000 ApiVersions at once", data=pipelined),
    "known": Attack(title=f"Metadata, 100,000 names of {TOPICS} topics", data=known_names),
    "unknown": Attack(title="Metadata, 100,000 unknown names", data=unknown_names),
    "joins": Attack(title="20,000 JoinGroups at once", data=joins),
    "groups": Attack(title="DescribeGroups, 90,000 names", data=groups),
    "lookups": Attack(title="ListOffsets, 90,000 lookups", data=lookups),
    "fetched": Attack(title="Fetch, 90,000 partitions", data=fetched_partitions),
    "configs": Attack(title="DescribeConfigs, 20,000 topics", data=configs),
    "topics": Attack(
        title=f"DescribeConfigs, {TOPICS} topics with synonyms", data=described_topics
    ),
    "timings": Attack(title="DescribeConfigs, 20,000 groups", data=described_groups),
    "produced": Attack(title="Produce, 45,000 entries", data=produced_partitions),
}
