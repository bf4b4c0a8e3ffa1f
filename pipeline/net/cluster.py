"""The cluster as the planner and the tasks see it: which partitions, their offsets, one fetch.

A blocking face of `client.core` with Spark's words: options that name topics, partitions as pairs,
errors that name options. Routing, retries, versions and authentication are the core's. It does not
decide which offsets to read; `plan.offsets` does.

Invariant: an answer comes from a broker that considered itself the leader. A partition without an
answer after all retries is an error that names it, never a silent gap.
"""

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from client.blocking import open_cluster, run
from client.core.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Isolation,
    commit_offsets,
    fetch_committed,
    list_offsets,
)
from client.core.options import ClusterOptions
from client.core.records import FETCH_VERSIONS, fetch_request
from client.errors import BadFile, BrokerRefused, ClientError, UnsupportedByBroker
from client.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicInfo
from client.types import TopicPartition as Named
from pipeline.errors import BadOptions
from pipeline.options.options import TopicChoice, TopicPartition
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "Cluster", "Fetched", "describe_partitions"]

NO_MATCH: Final = OffsetAndTimestamp(-1, -1, -1)
"""The answer of `list_offsets` where no record matched."""

_OPTION_OF: Final = {"ca_file": "truststore", "certificate_file": "keystore"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One partition's share of a fetch answer. `records` is borrowed from the frame."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: memoryview


class Cluster:
    """Connections to the brokers of one cluster. Belongs to one thread; close it after use."""

    def __init__(self, options: ClusterOptions) -> None:
        """Prepare without connecting.

        Raises:
            BadOptions: a file of the options is missing or holds no PEM.
        """
        try:
            self.core = open_cluster(options)
        except BadFile as error:
            name = f"kafka.ssl.{_OPTION_OF.get(error.field, error.field)}.location"
            raise BadOptions(
                f"option {name}={error.path!r}: {error.problem}; give a PEM file that is at "
                "this path on the driver and on every executor, or the name of one that "
                "--files brings to both"
            ) from error

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self.close()

    def close(self) -> None:
        """Close all connections; the next request opens others."""
        run(self.core.close())

    @property
    def cluster_id(self) -> str:
        """The cluster's id, asked for once; empty where the brokers have none."""
        if self.core.cluster_id is None:
            self.topics(())
        return self.core.cluster_id or ""

    def call(self, request: Any) -> Any:
        """The answer to a request that any broker can answer; sent once."""

        async def ask() -> Any:
            return await (await self.core.any_connection()).call(request)

        return run(ask())

    # --- topics ------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """The current metadata of `names`, or of all topics for None; without unknown topics.

        Raises:
            BrokerUnreachable: no bootstrap address answered.
            BrokerRefused: a topic in `names` is denied.
        """
        if names is None:
            return dict(run(self.core.topics()))
        wanted = list(names)
        return run(self.core.retrying(lambda: self.core.find_topics(wanted)))

    def partitions(self, choice: TopicChoice) -> list[TopicPartition]:
        """The partitions that `choice` names and that exist, sorted.

        Raises:
            BrokerRefused: a topic or partition named outright does not exist.
        """
        if choice.pattern:
            known = self.topics(None)
            pattern = re.compile(choice.pattern)
            chosen = [
                info for info in known.values()
                if pattern.search(info.name) and not info.is_internal
            ]  # fmt: skip
            return sorted((info.name, index) for info in chosen for index in info.partitions)
        names = choice.names or sorted({topic for topic, _ in choice.assigned})
        known = self.topics(names)
        if missing := [name for name in names if name not in known]:
            raise self._missing(
                f"topic {', '.join(missing)}",
                "create it, or correct the option subscribe or assign",
            )
        everything = sorted({(name, index) for name in names for index in known[name].partitions})
        if not choice.assigned:
            return everything
        if absent := sorted(choice.assigned - set(everything)):
            raise self._missing(describe_partitions(absent), "correct the option assign")
        return sorted(choice.assigned)

    def count_partitions(self, topic: str) -> int:
        """How many partitions a topic has, by the metadata last seen.

        Raises:
            BrokerRefused: the topic does not exist.
        """
        info = self._info(topic)
        if info is None:
            raise self._missing(f"topic {topic}", "create it before writing to it")
        return len(info.partitions)

    def check_partition(self, topic: str, partition: int) -> None:
        """Whether a row's partition is one of its topic's.

        Raises:
            BadOptions: it is not.
            BrokerRefused: the topic does not exist.
        """
        if not 0 <= partition < self.count_partitions(topic):
            # It may have been made since.
            self.topics([topic])
            count = self.count_partitions(topic)
            if not 0 <= partition < count:
                raise BadOptions(
                    f"column partition={partition}: topic {topic} has {count} partitions, so 0 "
                    f"to {count - 1} are allowed: add partitions to the topic, or change the "
                    "column; where it is null or left out the key decides"
                )

    def topic_id(self, topic: str) -> str:
        """The id of a topic by the metadata last seen, as hexadecimal text."""
        info = self._info(topic)
        return info.topic_id.hex() if info else ""

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The leader epoch of a partition by the metadata last seen; -1 where there is none."""
        info = self._info(partition[0])
        known = info.partitions.get(partition[1]) if info else None
        return known.leader_epoch if known else -1

    def settings(self, topic: str) -> dict[str, str]:
        """The topic's settings as the broker describes them; raises BrokerRefused."""
        # Only planning needs it; executors should not pay for the import.
        from client.core.configs import describe_configs
        from client.descriptions import ResourceType

        async def attempt() -> dict[str, str]:
            connection = await self.core.any_connection()
            entries = await describe_configs(connection, ResourceType.TOPIC, topic)
            return {name: entry.value or "" for name, entry in entries.items()}

        return run(self.core.retrying(attempt))

    def metrics_url(self) -> str:
        """The address of the metrics port of the broker, which must be alone in its cluster.

        Raises:
            BrokerRefused: the user must not see the broker's settings.
            UnsupportedByBroker: there is none, none that is reached from here, or several brokers.
        """
        # As in `settings`.
        from client.core.configs import find_metrics_url
        from client.this_machine import is_here

        if len(self.core.brokers) != 1:
            raise UnsupportedByBroker(f"the cluster has {len(self.core.brokers)} brokers")
        ((node_id, broker),) = self.core.brokers.items()

        async def attempt() -> str:
            connection = await self.core.connection(node_id)
            return await find_metrics_url(connection, node_id, broker.host, is_here)

        return run(attempt())

    def _info(self, topic: str) -> TopicInfo | None:
        return self.core.find_topic(topic) or self.topics([topic]).get(topic)

    def _missing(self, what: str, cure: str) -> BrokerRefused:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        where = self.core.options.where
        return BrokerRefused(f"{what} does not exist at {where}: {cure}", code, is_final=True)

    # --- offsets -----------------------------------------------------------------------------

    def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the offset at a time (ms) or place (LATEST, EARLIEST, ...).

        Raises:
            BrokerRefused: a partition answers with an error that does not pass.
            BrokerUnreachable: no answer after all retries.
            UnsupportedByBroker: the broker is older than MAX_TIMESTAMP.
        """
        named = {Named(*tp): when for tp, when in questions.items()}
        found = run(list_offsets(self.core, named, Isolation(int(read_committed))))
        return {tp: hit or NO_MATCH for tp, hit in found.items()}

    def committed(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The commits of `group`, for `partitions` or for all; partitions without one are left out.

        The call waits for open transactions, so a restart would get the same answer.

        Raises:
            BrokerRefused: the coordinator denies it.
        """
        named = None if partitions is None else [Named(*tp) for tp in sorted(partitions)]
        return dict(run(fetch_committed(self.core, group, named, require_stable=True)).items())

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit `offsets` for `group`, which must have no members.

        Raises:
            BrokerRefused: the group has members, or the coordinator denies it.
        """
        positions = {
            Named(*tp): OffsetAndMetadata(offset, metadata)
            for tp, offset in sorted(offsets.items())
        }
        run(commit_offsets(self.core, GroupMetadata(group_id=group), positions))

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes of `partitions` as far as brokers report them; empty where they refuse."""
        # As in `settings`.
        from client.core.configs import describe_sizes

        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(set(partitions)):
            by_topic[topic].append(index)

        async def of_broker(node_id: int) -> dict[Named, int]:
            return await describe_sizes(await self.core.connection(node_id), by_topic)

        found: dict[TopicPartition, int] = {}
        for node_id in list(self.core.brokers):
            try:
                sizes = run(of_broker(node_id))
            except ClientError:
                continue
            for partition, size in sizes.items():
                found[partition] = max(found.get(partition, 0), size)
        return found

    # --- records -----------------------------------------------------------------------------

    def send_fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
        read_committed: bool,
    ) -> Awaitable[Any]:
        """Send the leader a fetch from `offset` on; `receive_fetch` reads the answer."""
        named = Named(*partition)

        async def send() -> Awaitable[Any]:
            connection = await self.core.connection(await self.core.leader(named))
            request = fetch_request(
                {named: offset},
                isolation=Isolation(int(read_committed)),
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
            )
            version = connection.version_of(ApiKey.FETCH, **FETCH_VERSIONS)
            return connection.send(request, ApiKey.FETCH, version)

        return run(send())

    @staticmethod
    def receive_fetch(answer: Awaitable[Any]) -> Fetched | None:
        """The answer to a fetch that was sent; None if it must be sent again.

        A broker with quotas answers without any partition and gives a throttle time; this method
        waits that long.

        Raises:
            BrokerRefused, BrokerUnreachable: no records; the first one names the error.
        """
        response = run(_value_of(answer))
        if response.error_code:
            raise BrokerRefused("the fetch", response.error_code)
        if not response.responses or not response.responses[0].partitions:
            time.sleep(max(response.throttle_time_ms, 1) / 1000)
            return None
        part = response.responses[0].partitions[0]
        aborted = tuple(
            (entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ()
        )
        return Fetched(
            error_code=part.error_code,
            high_watermark=part.high_watermark,
            last_stable_offset=part.last_stable_offset,
            log_start_offset=part.log_start_offset,
            aborted=aborted,
            records=memoryview(part.records or b""),
        )

    def fetch(
        self, partition: TopicPartition, offset: int, *, max_bytes: int, read_committed: bool
    ) -> Fetched:
        """What is at `offset` now, without waiting for more.

        Raises:
            BrokerRefused: the partition answers with an error that does not pass.
            BrokerUnreachable: no answer after all retries.
        """

        async def attempt() -> Fetched:
            while True:
                sent = self.send_fetch(
                    partition, offset, max_bytes=max_bytes, max_wait_ms=0,
                    read_committed=read_committed,
                )  # fmt: skip
                fetched = self.receive_fetch(sent)
                if fetched is not None:
                    check_code(fetched.error_code, partition)
                    return fetched

        return run(self.core.retrying_at_leaders((Named(*partition),), attempt))

    def fetch_each(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int, read_committed: bool
    ) -> dict[TopicPartition, Fetched]:
        """What is at each of a few offsets now, asked for together; some may be left out.

        `fetch` has the answer, or the error, where this has none.
        """
        found: dict[TopicPartition, Fetched] = {}
        with contextlib.suppress(ClientError):
            sent = {
                tp: self.send_fetch(
                    tp, offset, max_bytes=max_bytes, max_wait_ms=0, read_committed=read_committed
                )
                for tp, offset in offsets.items()
            }
            for tp, answer in sent.items():
                fetched = self.receive_fetch(answer)
                if fetched is not None and not fetched.error_code:
                    found[tp] = fetched
        return found

    def drop_metadata(self, topic: str) -> None:
        """Look up the leaders of `topic` again."""
        self.core.forget_topic(topic)


async def _value_of(answer: Awaitable[Any]) -> Any:
    return await answer


def check_code(error_code: int, partition: TopicPartition) -> None:
    """Accept a partition's answer without an error; raises BrokerRefused."""
    if error_code:
        raise BrokerRefused(f"{partition[0]}-{partition[1]}", error_code)


def describe_partitions(partitions: Iterable[Any]) -> str:
    """`a-0, a-1` for the first ten of `partitions`, and how many more there are."""
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
