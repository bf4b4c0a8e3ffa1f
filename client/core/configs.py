"""Settings and sizes as brokers report them.

Requests only, one attempt each. Used by the admin client and by Spark's jobs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from client.core.connection import Connection
from client.descriptions import ConfigEntry, ConfigSource, ResourceType
from client.errors import BrokerRefused
from client.types import TopicPartition
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.error_codes import ErrorCode


async def describe_configs(
    connection: Connection, kind: ResourceType, name: str
) -> dict[str, ConfigEntry]:
    """Every setting of a topic or a broker by name; a broker's settings come from itself.

    Raises:
        BrokerRefused: it does not exist.
    """
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        ],
        include_documentation=True,
    )
    response = await connection.call(request)
    for result in response.results:
        check(f"reading the settings of {name}", result, connection.address)
    return {
        entry.name: ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=_source(entry),
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
            documentation=entry.documentation,
        )
        for result in response.results
        for entry in result.configs
    }


async def describe_sizes(
    connection: Connection, topics: Mapping[str, Sequence[int]] | None = None
) -> dict[TopicPartition, int]:
    """Bytes on one broker's disks of these partitions, or of all.

    Raises:
        BrokerRefused: a directory is not readable.
    """
    wanted = None
    if topics is not None:
        wanted = [
            DescribableLogDirTopic(topic=name, partitions=list(numbers))
            for name, numbers in topics.items()
        ]
    response = await connection.call(DescribeLogDirsRequest(topics=wanted))
    sizes: dict[TopicPartition, int] = {}
    for directory in response.results:
        check(f"reading sizes in {directory.log_dir}", directory, connection.address)
        for topic in directory.topics:
            for item in topic.partitions:
                partition = TopicPartition(topic.name, item.partition_index)
                # Twice while it moves from one directory to another.
                sizes[partition] = max(sizes.get(partition, 0), item.partition_size)
    return sizes


def check(what: str, result: Any, address: str) -> None:
    """Accept a part of an answer without an error code; raises BrokerRefused."""
    if result.error_code != ErrorCode.NONE:
        detail = getattr(result, "error_message", None)
        raise BrokerRefused(what, result.error_code, broker=address, detail=detail)


def _source(entry: Any) -> ConfigSource:
    if entry.is_default:
        return ConfigSource.DEFAULT
    try:
        return ConfigSource(entry.config_source)
    except ValueError:
        return ConfigSource.UNKNOWN
