"""Settings and sizes as brokers report them.

Requests only, one attempt each. Used by the admin client and by Spark's planner and jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from client.core.connection import Connection
from client.core.parts import check
from client.core.tls import is_loopback
from client.descriptions import ConfigEntry, ConfigSource, ResourceType
from client.errors import UnsupportedByBroker
from client.types import TopicPartition, format_address
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.describe_log_dirs import DescribeLogDirsRequest
from protocol.structs import TopicIndexes

METRICS_LISTENER: Final = "metrics.listener"
"""The broker's setting that names its metrics port."""

METRICS_SECURITY: Final = "metrics.listener.security"
"""The broker's setting that is `tls` where that port speaks https."""

_ANY_HOST: Final = ("", "0.0.0.0", "::")


async def describe_configs(
    connection: Connection, kind: ResourceType, name: str, keys: Sequence[str] | None = None
) -> dict[str, ConfigEntry]:
    """The settings of a topic, broker or group by name, all or those of `keys` that there are.

    A broker's settings come from itself.

    Raises:
        BrokerRefused: it does not exist.
    """
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_documentation=keys is None,
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


def metrics_address(listener: str | None, broker_host: str, is_here: Callable[[str], bool]) -> str:
    """Where the metrics port of a broker is reached, from its setting and its advertised host.

    `is_here` says whether a host is this machine.

    Raises:
        UnsupportedByBroker: it has none, or none that can be reached from other machines.
    """
    if not listener:
        raise UnsupportedByBroker(
            f"the broker at {broker_host} has no metrics port, which explains lookups "
            f"(it is no Tidelog, or its {METRICS_LISTENER} is empty)"
        )
    url = urlsplit(f"//{listener}")
    host = url.hostname or ""
    if host in _ANY_HOST:
        host = broker_host
    elif is_loopback(host) and not is_loopback(broker_host) and not is_here(broker_host):
        raise UnsupportedByBroker(
            f"the metrics port of {broker_host} listens on {listener}, for that machine only: "
            f"ask there, or set {METRICS_LISTENER} to an address that others reach, or say where "
            "it is reached from here: metrics_url=HOST:PORT, for commands --metrics HOST:PORT"
        )
    return format_address(host, url.port or 0)


async def find_metrics_url(
    connection: Connection, node_id: int, broker_host: str, is_here: Callable[[str], bool]
) -> str:
    """`http://HOST:PORT` (or https) of the metrics port of a broker, by its own settings.

    `is_here` as for `metrics_address`.

    Raises:
        BrokerRefused: the user must not see the settings.
        UnsupportedByBroker: as `metrics_address`.
    """
    found = await describe_configs(
        connection, ResourceType.BROKER, str(node_id), (METRICS_LISTENER, METRICS_SECURITY)
    )
    listener, security = found.get(METRICS_LISTENER), found.get(METRICS_SECURITY)
    address = metrics_address(listener.value if listener else None, broker_host, is_here)
    scheme = "https" if security is not None and security.value == "tls" else "http"
    return f"{scheme}://{address}"


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
            TopicIndexes(topic=name, partitions=list(numbers)) for name, numbers in topics.items()
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


def _source(entry: Any) -> ConfigSource:
    if entry.is_default:
        return ConfigSource.DEFAULT
    try:
        return ConfigSource(entry.config_source)
    except ValueError:
        return ConfigSource.UNKNOWN
