"""The admin client: topics, settings, offsets, groups, the cluster itself.

Each call is one question or one change, answered when the broker has done it. The calls about
groups are inherited from `client.core.groups`, those about share groups from
`client.core.sharing.admin`, those about users, access rules and quotas from `client.core.security`,
those about delegation tokens from `client.core.tokens`; requests about offsets are
`client.core.offsets`.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("flights", partitions=4)
        print(await admin.offsets_for_time("flights", "2013-07-04T12:00-04:00"))
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from client.aio.connection import open_cluster
from client.aio.explain import GroupLag, MetricsPort, count_by_time
from client.aio.fetching import FetchOptions
from client.aio.positions import to_timestamp
from client.aio.reading import ReadRecords, read_records
from client.aio.record_times import first_records
from client.checks import (
    INT16_MAX,
    check_number,
    check_text,
    numbers_of,
    partition_of,
    partitions_of,
    settings_of,
)
from client.core.configs import describe_configs, describe_sizes, find_metrics_url
from client.core.groups import GroupAdmin
from client.core.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Isolation,
    list_offsets,
)
from client.core.options import NOT_SECURED, ClusterOptions, Security, parse_bootstrap
from client.core.parts import by_topic, check
from client.core.security import SecurityAdmin
from client.core.sharing.admin import ShareGroupAdmin
from client.core.tokens import TokenAdmin
from client.descriptions import (
    ClusterInfo,
    ConfigEntry,
    NewTopic,
    ResourceType,
)
from client.errors import BrokerRefused, InvalidType
from client.this_machine import is_here
from client.types import (
    Broker,
    OffsetAndTimestamp,
    RecordsBefore,
    TopicInfo,
    TopicPartition,
)
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.records.layout import INT64_MAX, INT64_MIN
from protocol.structs import ConfigText
from protocol.time_windows import topic_of

_SET = 0
_DELETE = 1


class Admin(GroupAdmin, ShareGroupAdmin, SecurityAdmin, TokenAdmin):
    """Opened by ``async with``, closed by it or by `close`. Belongs to one event loop."""

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        request_timeout_ms: int = 30_000,
        timeout_ms: int = 60_000,
        client_id: str = "tidelog-admin",
        security: Security = NOT_SECURED,
    ) -> None:
        """Set up without connecting; `timeout_ms` is how long a call retries in all.

        `security` is TLS and the user of the connections; by default neither.

        Raises:
            InvalidUse: an address, a number or a file that cannot be meant.
        """
        self._timeout_ms = request_timeout_ms
        self._cluster = open_cluster(
            ClusterOptions(
                bootstrap=parse_bootstrap(bootstrap),
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                timeout_ms=timeout_ms,
                security=security,
            )
        )

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        try:
            await self._cluster.refresh(())
        except BaseException:
            await self._cluster.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self.close()

    async def close(self) -> None:
        """Disconnect; calls under way fail."""
        await self._cluster.close()

    # The cluster.

    async def cluster(self) -> ClusterInfo:
        """The cluster's id and controller."""
        await self._cluster.refresh(())
        return ClusterInfo(
            cluster_id=self._cluster.cluster_id, controller_id=self._cluster.controller_id
        )

    async def brokers(self) -> list[Broker]:
        """All brokers, by node id."""
        await self._cluster.refresh(())
        return sorted(self._cluster.brokers.values(), key=lambda broker: broker.node_id)

    # Topics.

    async def topics(self, *, internal: bool = False) -> dict[str, TopicInfo]:
        """All topics by name, in order; internal topics only on request."""
        topics = await self._cluster.topics()
        return {
            name: info for name, info in sorted(topics.items()) if internal or not info.is_internal
        }

    async def describe_topic(self, name: str) -> TopicInfo:
        """One topic, from a fresh request.

        Raises:
            BrokerRefused: UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
        """
        check_text("topic", name)
        self._cluster.forget_topic(name)
        return await self._cluster.topic(name)

    async def served_windows(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the names under which the brokers serve a time window of a topic.

        Windows are in no list of topics, so each name that may be one is asked for.
        """
        found = {}
        for name in names:
            if topic_of(name) != name:
                with suppress(BrokerRefused):
                    found[name] = await self.describe_topic(name)
        return found

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create one topic; -1 leaves a number to the broker. `validate_only` changes nothing.

        Raises:
            BrokerRefused: it exists, or its name, numbers or settings are not allowed.
        """
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        await self.create_topics([topic], validate_only=validate_only)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> None:
        """Create several topics.

        Raises:
            BrokerRefused: the first refusal; the other topics are created.
            InvalidUse: a name, a number or a setting that no request can hold.
        """
        topics = _new_topics(topics)
        for topic in topics:
            check_text("topic", topic.name)
            check_number("partitions", topic.partitions, -1)
            check_number("replication_factor", topic.replication_factor, -1, INT16_MAX)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        ConfigText(name=name, value=value)
                        for name, value in settings_of("configs", topic.configs or {}).items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        response, address = await self._cluster.call_controller(
            request, min_version=1 if validate_only else 0
        )
        for result in response.topics:
            check(f"creating topic {result.name}", result, address)

    async def delete_topic(self, *names: str) -> None:
        """Delete topics with all their records.

        Raises:
            BrokerRefused: the first refusal; the other topics are deleted.
        """
        for name in names:
            check_text("topic", name)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        response, address = await self._cluster.call_controller(request)
        for result in response.responses:
            check(f"deleting topic {result.name}", result, address)
        for name in names:
            self._cluster.forget_topic(name)

    async def create_partitions(self, topic: str, total: int) -> None:
        """Set a topic's number of partitions to `total`; keys may move to other partitions.

        Raises:
            BrokerRefused: the topic does not exist or has as many already.
        """
        check_text("topic", topic)
        check_number("total", total, 1)
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=self._timeout_ms,
        )
        response, address = await self._cluster.call_controller(request)
        for result in response.results:
            check(f"adding partitions to {topic}", result, address)
        self._cluster.forget_topic(topic)

    # Settings.

    async def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Every setting of a topic by name.

        Raises:
            BrokerRefused: the topic does not exist.
        """
        return await self._configs(ResourceType.TOPIC, topic)

    async def broker_configs(self, node_id: int) -> dict[str, ConfigEntry]:
        """Every setting of a broker by name; raises InvalidUse for a number that none can have."""
        check_number("node_id", node_id, 0)
        return await self._configs(ResourceType.BROKER, str(node_id))

    async def alter_topic_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a topic; None takes one back to its default. All or none.

        `validate_only` changes nothing.

        Raises:
            BrokerRefused: an unknown setting or a value out of bounds.
        """
        await self._alter_configs(ResourceType.TOPIC, topic, changes, validate_only=validate_only)

    async def alter_broker_configs(self, node_id: int, changes: Mapping[str, str | None]) -> None:
        """Change settings of a broker while it runs; None takes one back. All or none.

        Raises:
            BrokerRefused: an unknown setting, or one that needs a restart.
            InvalidUse: `node_id` is no number of a broker, or `changes` no settings.
        """
        check_number("node_id", node_id, 0)
        await self._alter_configs(ResourceType.BROKER, str(node_id), changes)

    async def group_configs(self, group_id: str) -> dict[str, ConfigEntry]:
        """Every setting that a group may have of its own, by name; it need not exist."""
        return await self._configs(ResourceType.GROUP, group_id)

    async def alter_group_configs(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a group, which need not exist; None takes one back. All or none.

        Raises:
            BrokerRefused: an unknown setting or a value out of the broker's bounds.
        """
        await self._alter_configs(ResourceType.GROUP, group_id, changes)

    async def _configs(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        check_text(kind.name.lower(), name)
        return await describe_configs(await self._connection_for(kind, name), kind, name)

    async def _alter_configs(
        self,
        kind: ResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        check_text(kind.name.lower(), name)
        request = IncrementalAlterConfigsRequest(
            validate_only=validate_only,
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key,
                            config_operation=_DELETE if value is None else _SET,
                            value=value,
                        )
                        for key, value in settings_of("changes", changes).items()
                    ],
                )
            ],
        )
        connection = await self._connection_for(kind, name)
        response = await connection.call(request)
        for result in response.responses:
            check(f"changing the settings of {name}", result, connection.address)

    async def _connection_for(self, kind: ResourceType, name: str) -> Any:
        """A broker's settings come from that broker, a topic's from any."""
        if kind is ResourceType.BROKER:
            return await self._cluster.connection(int(name))
        return await self._cluster.any_connection()

    # Offsets.

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time in ms, or the ends (see `client.core.offsets`).

        Raises:
            BrokerRefused: an unknown partition.
            InvalidUse: `timestamps` gives no numbers for partitions.
        """
        return await list_offsets(self._cluster, numbers_of("timestamps", timestamps), isolation)

    async def explain_lookup(
        self, partition: TopicPartition, timestamp_ms: int, *, metrics_url: str | None = None
    ) -> dict[str, Any]:
        """The steps of the leader's lookup of a time: segments, index entries, bytes, neighbours.

        The leader's metrics port answers; the broker's settings name it unless `metrics_url`
        (``host:port`` or ``https://host:port``) gives another address. This client's user and TLS
        settings count there too, the user in clear on loopback only. Keys as of the broker's
        /explain: times are ms, `found`, `before` and `after` are None or have `timestamp`, `offset`
        and `leader_epoch`.

        Raises:
            BrokerRefused: the partition does not exist.
            BrokerUnreachable: no answer from the metrics port.
            InvalidUse: an argument is of another type or out of its range, or the port refused the
                request; the message gives the reason.
            UnsupportedByBroker: the broker has no metrics port, or none that can be reached from
                here, or what answered is none.
        """
        topic, number = partition_of(partition)
        check_number("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)
        asked = {"topic": topic, "partition": number, "at": timestamp_ms}
        return await self.ask_metrics_port("/explain", asked, metrics_url=metrics_url)

    async def forecast_retention(
        self,
        topic: str,
        settings: Mapping[str, str] | None = None,
        *,
        partition: int | None = None,
        metrics_url: str | None = None,
    ) -> dict[str, Any]:
        """When retention deletes each segment of a topic, what keeps it, when the disk is full.

        `settings` (``retention.ms`` and the like) replace the topic's for the answer only. Keys as
        of the broker's /retention; raises as `explain_lookup`.
        """
        _check_place(topic, partition)
        changes = settings_of("settings", settings or {})
        asked = {"topic": topic, "partition": partition, **changes}
        return await self.ask_metrics_port("/retention", asked, metrics_url=metrics_url)

    async def audit_times(
        self,
        topic: str,
        *,
        partition: int | None = None,
        size_bytes: int = 8 * 1024 * 1024,
        metrics_url: str | None = None,
    ) -> dict[str, Any]:
        """How disordered the times of a topic's newest records are, and which producers are off.

        The broker reads about `size_bytes`. Keys as of its /skew; raises as `explain_lookup`.
        """
        _check_place(topic, partition)
        check_number("size_bytes", size_bytes, 1, INT64_MAX)
        asked = {"topic": topic, "bytes": size_bytes, "partition": partition}
        return await self.ask_metrics_port("/skew", asked, metrics_url=metrics_url)

    async def count_by_time(
        self,
        topic: str,
        *,
        partition: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        buckets: int = 240,
        metrics_url: str | None = None,
    ) -> dict[str, Any]:
        """How many records a topic has in each span of time: at most `buckets` bars.

        Exact, however late records came. Keys as of the broker's /histogram, of all pages of its
        answer; the bars are as wide as the widest of them. Raises as `explain_lookup`.
        """
        _check_place(topic, partition)
        check_number("buckets", buckets, 1)
        for name, time_ms in (("from_ms", from_ms), ("to_ms", to_ms)):
            if time_ms is not None:
                check_number(name, time_ms, INT64_MIN, INT64_MAX)
        asked = {"topic": topic, "partition": partition, "buckets": buckets}
        return await count_by_time(
            lambda one: self.ask_metrics_port("/histogram", one, metrics_url=metrics_url),
            {**asked, "from": from_ms, "to": to_ms},
        )

    async def group_lags(
        self, group_id: str, *, metrics_url: str | None = None
    ) -> dict[TopicPartition, GroupLag]:
        """How far a group is behind in time, and how fast that changes; raises as `clock`."""
        found = await (await self._metrics_port(metrics_url, {})).group_lags(group_id)
        return {TopicPartition(*place): lag for place, lag in found.items()}

    async def clock(
        self, changes: Mapping[str, float] | None = None, *, metrics_url: str | None = None
    ) -> dict[str, Any]:
        """Read the settable clock of a broker for tests, or apply `changes` to it.

        `changes` are ``set_ms``, ``advance_ms``, ``jump_ms`` and ``rate``. The answer has
        ``wall_ms``, ``elapsed_ms``, ``rate``, and after a change its effects.

        Raises:
            InvalidUse: a change that the broker refuses.
            UnsupportedByBroker: the broker's clock cannot be set.
        """
        return await (await self._metrics_port(metrics_url, {})).clock(changes or {})

    async def standby(self, *, metrics_url: str | None = None) -> dict[str, Any]:
        """What a standby follows: ``owner``, ``epoch``, ``entry``, ``read_ms_ago``, ``promoted``.

        Raises:
            UnsupportedByBroker: it is no standby.
        """
        return await (await self._metrics_port(metrics_url, {})).standby()

    async def promote(self, *, metrics_url: str | None = None) -> dict[str, Any]:
        """Let a standby take its bucket over, under the ``epoch`` of the answer; it then restarts.

        Raises:
            InvalidUse: it could not; the message gives the reason, and a retry may succeed.
            UnsupportedByBroker: it is no standby.
        """
        return await (await self._metrics_port(metrics_url, {})).standby(promotes=True)

    async def metrics(
        self, names: Sequence[str], *, metrics_url: str | None = None
    ) -> dict[str, float]:
        """Metrics of the first broker that have no labels, by name; missing ones are left out.

        Raises as `explain_lookup`.
        """
        return await (await self._metrics_port(metrics_url, {})).metrics(names)

    async def ask_metrics_port(
        self, path: str, asked: Mapping[str, object], *, metrics_url: str | None = None
    ) -> dict[str, Any]:
        """The JSON document of any path of the metrics port, such as ``/segments``.

        What is asked with None is left out. The port is that of the leader of `asked`'s ``topic``
        and ``partition``, of the first broker without a topic. Raises as `explain_lookup`.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        return await (await self._metrics_port(metrics_url, given)).document(path, given)

    async def _metrics_port(self, given: str | None, asked: Mapping[str, object]) -> MetricsPort:
        """At the address `given`, else the one which can answer, by its broker's settings."""
        security = self._cluster.options.security
        if given is not None:
            return MetricsPort(given, security)
        if "topic" in asked:
            partition = TopicPartition(str(asked["topic"]), int(str(asked.get("partition", 0))))
            node_id = await self._cluster.leader(partition)
        else:
            node_id = (await self.brokers())[0].node_id
        connection = await self._connection_for(ResourceType.BROKER, str(node_id))
        host = self._cluster.brokers[node_id].host
        return MetricsPort(await find_metrics_url(connection, node_id, host, is_here), security)

    async def first_records(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `list_offsets`, and a time never means a marker; raises as `record_times` does."""
        return await first_records(self._cluster, numbers_of("timestamps", timestamps), isolation)

    async def read_records(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_bytes: int = 1024 * 1024,
        partition_max_bytes: int = 256 * 1024,
        max_wait_ms: int = 0,
    ) -> dict[TopicPartition, ReadRecords]:
        """The records from each offset on, one answer of at most about `max_bytes`.

        Raises:
            BadRecords: a batch is damaged.
            BrokerRefused: an offset is out of range, or a partition is unknown.
            InvalidUse: `offsets` gives no offsets for partitions.
        """
        offsets = numbers_of("offsets", offsets, 0)
        options = FetchOptions(
            max_wait_ms=max_wait_ms, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes
        )
        return await read_records(self._cluster, offsets, options)

    async def offsets_for_time(
        self, topic: str, when: int | str | datetime
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time in every partition; None where there is none.

        `when` is milliseconds, an aware `datetime`, or text as `client.times` reads it.

        Raises:
            InvalidTime: `when` is not a time, or in the wrong unit.
            BrokerRefused: the topic does not exist.
        """
        return await self._offsets_everywhere(topic, to_timestamp(when))

    async def earliest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """The earliest offset of every partition."""
        found = await self._offsets_everywhere(topic, EARLIEST)
        return {partition: hit.offset for partition, hit in found.items() if hit is not None}

    async def latest_offsets(self, topic: str) -> dict[TopicPartition, int]:
        """One past the last offset of every partition."""
        found = await self._offsets_everywhere(topic, LATEST)
        return {partition: hit.offset for partition, hit in found.items() if hit is not None}

    async def newest_records(self, topic: str) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The record with the largest timestamp of every partition, None where it is empty."""
        return await self._offsets_everywhere(topic, MAX_TIMESTAMP)

    async def _offsets_everywhere(
        self, topic: str, timestamp: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        info = await self._cluster.topic(topic)
        wanted = {TopicPartition(topic, number): timestamp for number in info.partitions}
        return await first_records(self._cluster, wanted)

    async def records_before(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, RecordsBefore]:
        """What `delete_records` may delete so that every deleted record is older than a time.

        Older records that were appended after a newer one are not among them. Raises as
        `first_records` does.
        """
        wanted = partitions_of("partitions", partitions)
        check_number("time_ms", time_ms, INT64_MIN, INT64_MAX)
        starts = await self.list_offsets(dict.fromkeys(wanted, EARLIEST))
        ends = await self.list_offsets(dict.fromkeys(wanted, LATEST))
        found = await self.first_records(dict.fromkeys(wanted, time_ms))
        before = {}
        for tp in wanted:
            first, last, hit = starts[tp], ends[tp], found[tp]
            start, end = first.offset if first else 0, last.offset if last else 0
            # The end was asked for before the record: nothing appended meanwhile is deleted.
            stop = end if hit is None else min(hit.offset, end)
            next_ms = None if hit is None or stop < hit.offset else hit.timestamp_ms
            before[tp] = RecordsBefore(start, max(start, stop), end, next_ms)
        return before

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete records before an offset (-1: all); returns the new earliest offsets.

        Raises:
            BrokerRefused: an offset out of range, or a topic whose policy forbids it.
            InvalidUse: `before` gives no offsets for partitions.
        """
        before = numbers_of("before", before, -1)
        earliest: dict[TopicPartition, int] = {}
        for node_id, partitions in (await self._cluster.by_leader(before)).items():
            topics = by_topic(
                partitions,
                lambda tp: DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp]),
            )
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name=name, partitions=items)
                    for name, items in topics.items()
                ],
                timeout_ms=self._timeout_ms,
            )
            connection = await self._cluster.connection(node_id)
            response = await connection.call(request)
            for topic in response.topics:
                for item in topic.partitions:
                    partition = TopicPartition(topic.name, item.partition_index)
                    check(f"deleting records of {partition}", item, connection.address)
                    earliest[partition] = item.low_watermark
        return earliest

    async def sizes(self) -> dict[TopicPartition, int]:
        """Bytes on disk of every partition, over all brokers."""
        sizes: dict[TopicPartition, int] = {}
        await self._cluster.refresh(())
        for node_id in list(self._cluster.brokers):
            sizes |= await describe_sizes(await self._cluster.connection(node_id))
        return sizes


def _new_topics(topics: object) -> list[NewTopic]:
    """The topics to create; raises InvalidType for anything else."""
    found = []
    for topic in topics if isinstance(topics, Iterable) else [topics]:
        if not isinstance(topic, NewTopic):
            raise InvalidType(
                f"{topic!r} is not a NewTopic: write create_topics([NewTopic(name=...)]), or "
                "create_topic(name)"
            )
        found.append(topic)
    return found


def _check_place(topic: object, partition: object) -> None:
    """Refuse what names no topic, and no partition of one; None stands for all partitions."""
    check_text("topic", topic)
    if partition is not None:
        check_number("partition", partition, 0)
