"""The consumer: records out, from an offset or a time, alone or as a member of a group.

Owns the user's side of consuming: partitions, positions and commits. Fetching is
`client.aio.fetching`, membership `client.aio.membership`, the requests about offsets
`client.core.offsets`.

    async with Consumer("flights", start="-15m") as consumer:
        async for record in consumer: ...
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, cast

from client.aio.connection import open_cluster
from client.aio.converting import Conversion
from client.aio.fetching import Fetcher, FetchOptions, PartitionReader
from client.aio.listeners import Listener, Reporter, check_listeners
from client.aio.membership.options import group_options
from client.aio.membership.own_group import OwnGroup
from client.aio.membership.rebalance import Listeners, PartitionsListener
from client.aio.positions import Positions, consumed_positions, start_timestamp, to_timestamp
from client.aio.record_times import first_records
from client.aio.topics import Subscribed, TopicWatch
from client.checks import (
    check_flags,
    check_numbers,
    check_offset,
    check_sharing,
    pairs_of,
    partition_of,
    positions_of,
)
from client.core.membership.options import CLASSIC
from client.core.offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    fetch_committed,
    list_offsets,
)
from client.core.options import NOT_SECURED, ClusterOptions, Security, parse_bootstrap
from client.errors import ClientError, InvalidTime, InvalidUse
from client.statistics import ConsumerStatistics
from client.times import format_time
from client.types import (
    ConsumerRecord,
    GroupMetadata,
    KeyT,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    ValueT,
)
from protocol.records.layout import INT64_MAX, TimestampType

_WINDOW_POLL_MS = 500
"""How often a window looks whether its span is over."""


class Consumer(Generic[KeyT, ValueT]):
    """Reads topics in offset order per partition.

    Keys and values are bytes, or what the deserializers make of them. With a `group_id` the topics
    are shared with the other members; without, this consumer reads all partitions of its topics, or
    exactly what `assign` names. Opened by ``async with`` (or `start`), closed by it (or `close`).
    Belongs to one event loop and one reading task.

    Auto-commit stores, at intervals and when partitions go, the positions of records handed out
    before the latest poll. After a crash some records may come again; none is skipped.
    """

    _fetcher: Fetcher | None = None
    _current: PartitionReader | None = None
    _records_count = 0

    def __init__(
        self,
        *topics: str,
        pattern: str | None = None,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        start: str | int | datetime = "latest",
        isolation: str = "read_uncommitted",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        wait_for_topics: bool = False,
        group_protocol: str = CLASSIC,
        group_remote_assignor: str | None = None,
        assignors: Iterable[str] | None = None,
        session_timeout_ms: int | None = None,
        heartbeat_interval_ms: int | None = None,
        max_poll_interval_ms: int = 300_000,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 16 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        prefetch_bytes: int = 8 * 1024 * 1024,
        check_crcs: bool = True,
        key_deserializer: Callable[[bytes], KeyT] | None = None,
        value_deserializer: Callable[[bytes], ValueT] | None = None,
        request_timeout_ms: int = 30_000,
        timeout_ms: int = 60_000,
        metadata_max_age_ms: int = 60_000,
        on_assigned: PartitionsListener | None = None,
        on_revoked: PartitionsListener | None = None,
        on_lost: PartitionsListener | None = None,
        on_statistics: Listener[ConsumerStatistics] | None = None,
        statistics_interval_ms: int | None = None,
        client_id: str = "tidelog-consumer",
        security: Security = NOT_SECURED,
    ) -> None:
        """Set up without connecting.

        Args:
            topics: the topics to read; none if `assign` will name partitions.
            pattern: instead of topics: read every topic whose whole name matches this regular
                expression (RE2), also those that are made later.
            bootstrap: ``host:port`` of one or more brokers.
            group_id: the group to be a member of; None reads alone, without commits.
            group_instance_id: a lasting name, so that a restart causes no rebalance.
            start: where to read without a committed offset in the log: ``earliest``, ``latest``,
                ``none`` (an error), or a time as `seek_to_time` takes it.
            isolation: ``read_committed`` hides aborted and unfinished transactions.
            auto_commit: commit every `auto_commit_interval_ms`, if there is a group.
            wait_for_topics: accept topics of a group that do not exist yet; else `start` fails.
            group_protocol: ``classic``, or ``consumer`` (KIP-848), where the broker shares the
                partitions, matches the pattern, and moves only what has to move.
            group_remote_assignor: how the broker should share, ``uniform`` or ``range``; None
                leaves it to the broker. Only with ``consumer``.
            assignors: how the group may share, in order of preference; ``range`` and
                ``cooperative-sticky`` if None. This and the next two only with ``classic``.
            session_timeout_ms: silence after which the group continues without this member; 45 s
                if None.
            heartbeat_interval_ms: how often this member sends a heartbeat; 3 s if None.
            max_poll_interval_ms: without a poll for so long this member leaves the group.
            fetch_max_wait_ms: how long the broker may wait for `fetch_min_bytes`.
            fetch_min_bytes: the least that the broker answers without waiting.
            fetch_max_bytes: the most in one answer.
            partition_max_bytes: the most from one partition in one answer.
            prefetch_bytes: how many fetched bytes may wait here to be handed out.
            check_crcs: verify every batch's check sum.
            key_deserializer: makes a key of bytes; not called for None.
            value_deserializer: makes a value of bytes; not called for None.
            request_timeout_ms: how long one request may take.
            timeout_ms: how long a call retries in all.
            metadata_max_age_ms: after this, topics and leaders are asked for again; new topics of a
                pattern are found as late.
            on_assigned: gets this member's whole share after each rebalance.
            on_revoked: gets the partitions before they are revoked; time to finish and commit.
            on_lost: gets partitions that the group took away from this member, too late to commit;
                `on_revoked` gets them if None.
            on_statistics: gets a `ConsumerStatistics` every `statistics_interval_ms`, and at the
                end; a function or a coroutine function.
            statistics_interval_ms: how often.
            client_id: how the broker's logs and metrics name this client.
            security: TLS and the user of the connections; by default neither.

        Raises:
            InvalidUse: values that do not exist, are out of range or do not fit together.
        """
        check_flags(auto_commit=auto_commit, wait_for_topics=wait_for_topics)
        check_numbers(1, auto_commit_interval_ms=auto_commit_interval_ms)
        check_numbers(1, metadata_max_age_ms=metadata_max_age_ms)
        check_listeners(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        check_sharing(group_id, group_instance_id, wait_for_topics=wait_for_topics)
        options = group_options(
            group_id, protocol=group_protocol, instance_id=group_instance_id, assignors=assignors,
            remote_assignor=group_remote_assignor, max_poll_interval_ms=max_poll_interval_ms,
            session_timeout_ms=session_timeout_ms, heartbeat_interval_ms=heartbeat_interval_ms,
        )  # fmt: skip
        self._isolation, self._wait_for_topics = Isolation.named(isolation), wait_for_topics
        self._has_assigned = False
        self._cluster = open_cluster(ClusterOptions(
            bootstrap=parse_bootstrap(bootstrap), client_id=client_id, security=security,
            request_timeout_ms=request_timeout_ms, timeout_ms=timeout_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        ))  # fmt: skip
        self._fetch_options = FetchOptions(
            isolation=self._isolation, check_crcs=check_crcs, prefetch_bytes=prefetch_bytes,
            max_wait_ms=fetch_max_wait_ms, min_bytes=fetch_min_bytes, max_bytes=fetch_max_bytes,
            partition_max_bytes=partition_max_bytes,
        )  # fmt: skip
        self._group = OwnGroup(
            self._cluster, group_id, options, Listeners(on_assigned, on_revoked, on_lost),
            commits_every_ms=auto_commit and auto_commit_interval_ms, on_failure=self._note,
        )  # fmt: skip
        self._subscribed = Subscribed(topics, pattern, broker_matches=self._group.broker_matches)
        begin, metadata = start_timestamp(start), self._group.metadata
        self._positions = Positions(self._cluster, self._isolation, begin, metadata, self._note)
        self._conversion = Conversion(key_deserializer, value_deserializer)
        self._watch = TopicWatch(self._cluster, self._share)
        self._reporter = Reporter(on_statistics, statistics_interval_ms, self.statistics)
        self._handed_out: set[PartitionReader] = set()

    async def __aenter__(self) -> Self:
        """Connect and begin to read; see `start`."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close. Without an error, all records handed out count as processed for auto-commit."""
        if error is None:
            self._mark_consumed()
        await self.close()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KeyT, ValueT]]:
        """The records, for ever, as they come."""
        return self

    async def __anext__(self) -> ConsumerRecord[KeyT, ValueT]:
        """The next record of any partition; waits for one.

        Raises:
            ClientError: as `getmany`.
        """
        fetcher = self._polled()
        while True:
            reader, record = await self._next(fetcher)
            self._handed_out.add(reader)
            if not self._conversion.is_needed:
                self._records_count += 1
                return cast(ConsumerRecord[KeyT, ValueT], record)
            for records in (await self._conversion.convert([(reader, [record])], fetcher)).values():
                self._records_count += 1
                return records[0]

    async def _next(self, fetcher: Fetcher) -> tuple[PartitionReader, ConsumerRecord]:
        """The next record as it was read."""
        while True:
            reader = self._current
            if (
                reader is not None
                and not reader.is_paused
                and fetcher.readers.get(reader.partition) is reader
            ):
                record = reader.take_one()
                if record is not None:
                    return reader, record
            self._current = fetcher.next_reader(())
            if self._current is None:
                await fetcher.wait(None)

    async def start(self) -> None:
        """Connect; join the group, or read all partitions of the topics.

        Raises:
            BrokerUnreachable: no broker answers.
            BrokerRefused: a topic does not exist.
            UnsupportedByBroker: the broker lacks the group protocol that was chosen.
            InvalidUse: it is started already, or closed.
        """
        self._cluster.check_unused("consumer", is_started=self._fetcher is not None)
        try:
            await self._cluster.refresh(())
            await self._group.check_support()
            fetcher = Fetcher(self._cluster, self._fetch_options, self._positions.find)
            fetcher.outlives_topics = self._outlives(self._subscribed)
            names = await self._subscribed.names(self._cluster)
            wanted = await self._existing(names)
            if self._group.group_id is None:
                fetcher.set_partitions(wanted)
        except BaseException:
            await self._cluster.close()
            raise
        self._fetcher = fetcher
        if self._group.group_id is not None and not self._subscribed.is_empty:
            self._group.join(fetcher, self._positions, self._subscribed, names)
        if self._group.commits_every_s is not None:
            self._positions.commit_every(self._group.commits_every_s, fetcher)
        self._watch.start(self._subscribed, names, fetcher.break_off)
        self._reporter.start(self._note, fetcher.break_off)
        fetcher.start()

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or those that match a pattern, instead of what is read now.

        Partitions that stay keep their positions. With a group, the members share the topics again.

        Raises:
            InvalidType, InvalidUse: as `Consumer`, or nothing is given, or it is not started.
            BrokerRefused: a topic does not exist, and `wait_for_topics` is not set.
            BrokerUnreachable: no broker answers.
        """
        fetcher = self._running()
        subscribed = Subscribed(topics, pattern, broker_matches=self._group.broker_matches)
        if subscribed.is_empty:
            raise InvalidUse("nothing is given to read: give names of topics, or a pattern")
        names = await subscribed.names(self._cluster)
        await self._existing(names)
        await self._watch.close()
        self._subscribed = subscribed
        fetcher.outlives_topics = self._outlives(subscribed)
        await self._share(names)
        self._watch.start(subscribed, names, fetcher.break_off)

    def _outlives(self, subscribed: Subscribed) -> bool:
        """Whether a topic may go while it is read: the group, or the watch, takes it out."""
        return self._group.group_id is not None or subscribed.regex is not None

    async def _existing(self, names: tuple[str, ...]) -> list[TopicPartition]:
        """The partitions of topics, which have to exist unless the group waits for them."""
        wanted: list[TopicPartition] = []
        for topic in () if self._wait_for_topics else names:
            wanted += await self.partitions(topic)
        return wanted

    async def _share(self, names: tuple[str, ...]) -> None:
        """Read these topics from now on: as a member of the group, or all of their partitions."""
        fetcher = self._running()
        if self._group.member is not None:
            self._group.member.subscribe(self._subscribed, names)
        elif self._group.group_id is not None:
            self._group.join(fetcher, self._positions, self._subscribed, names)
        else:
            fetcher.set_partitions(await self._existing(names))

    async def close(self) -> None:
        """Commit what auto-commit may, leave the group, close every connection."""
        fetcher = self._fetcher
        if fetcher is None:
            return
        try:
            await self._watch.close()
            await self._positions.stop_committing()
            await self._group.close(fetcher, self._positions)
            await self._reporter.close()
        finally:
            self._fetcher = self._group.member = None
            await fetcher.close()
            await self._cluster.close()

    # Reading.

    async def getmany(
        self, *, timeout_ms: int = 1000, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]]:
        """Records by partition, as soon as there are any; empty if none come in time.

        The next call marks these as processed, for auto-commit.

        Raises:
            InvalidUse: a negative `timeout_ms`, or `max_records` below 1.
            ListenerFailed, ClientBroken: a listener raised, or a defect ended the reading.
            BrokerRefused: a partition that cannot be read, or an offset out of range with
                start="none".
            BadRecords: a batch is damaged.
            BadValue: the first record's key or value cannot be deserialized; the error has the
                record, and the next call continues after it.
            RegistryUnreachable: a deserializer's registry gave no answer; nothing is lost.
        """
        check_numbers(0, timeout_ms=timeout_ms)
        check_numbers(1, max_records=max_records)
        fetcher = self._polled()
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            taken: dict[TopicPartition, list[ConsumerRecord]] = {}
            readers: list[PartitionReader] = []
            left = max_records
            while left > 0 and (reader := fetcher.next_reader(taken.keys())) is not None:
                records = reader.take(left)
                if records:
                    taken[reader.partition] = records
                    readers.append(reader)
                    left -= len(records)
            self._handed_out.update(readers)
            if self._conversion.is_needed and taken:
                pairs = list(zip(readers, taken.values(), strict=True))
                found = await self._conversion.convert(pairs, fetcher)
            else:
                found = cast(dict[TopicPartition, list[ConsumerRecord[KeyT, ValueT]]], taken)
            self._records_count += sum(map(len, found.values()))
            if found or not await fetcher.wait(deadline):
                return found

    def between(
        self, start: int | str | datetime, end: int | str | datetime
    ) -> AsyncIterator[ConsumerRecord[KeyT, ValueT]]:
        """Exactly the records with ``start <= time < end``, in order of arrival; then it ends.

        Times are given as `seek_to_time` takes them. Of records that are late none is missed: each
        partition is read up to the end that it has when the span is over, so a span that ends in
        the future is followed until then. The positions move; another call may follow.

            async for record in consumer.between("2013-07-04T12:00Z", "2013-07-04T13:00Z"): ...

        Raises:
            InvalidTime: a time that is none, or an end that is not after the start.
            InvalidUse: the consumer has a group, whose positions this would move, or is closed.
        """
        from_ms, to_ms = to_timestamp(start), to_timestamp(end)
        if to_ms <= from_ms:
            raise InvalidTime(
                f"the end {format_time(to_ms)} is not after the start {format_time(from_ms)}, so "
                "no record can be between them"
            )
        if self._group.group_id is not None:
            raise InvalidUse(
                "between() would move the positions of the group: use a consumer without group_id"
            )
        self._running()
        return self._window(from_ms, to_ms)

    async def _window(
        self, from_ms: int, to_ms: int
    ) -> AsyncIterator[ConsumerRecord[KeyT, ValueT]]:
        """The records of the span; times may be out of order, offsets are not.

        Where the broker stamps the records, times only rise, and the first record after the span
        ends its partition.
        """
        await self.seek_to_time(from_ms)
        partitions = self.assignment()
        ends: Mapping[TopicPartition, int] | None = None
        done: set[TopicPartition] = set()
        try:
            while True:
                if ends is None and time.time_ns() // 1_000_000 >= to_ms:
                    ends = await self.end_offsets(partitions)
                if ends is not None and all(
                    tp in done or (self.position(tp) or 0) >= ends[tp] for tp in partitions
                ):
                    return
                for partition, records in (await self.getmany(timeout_ms=_WINDOW_POLL_MS)).items():
                    end = INT64_MAX if ends is None else ends[partition]
                    for record in records:
                        if from_ms <= record.timestamp_ms < to_ms and record.offset < end:
                            yield record
                    if _is_after(records[-1], to_ms):
                        done.add(partition)
                        self.pause(partition)
        finally:
            if self._fetcher is not None and (still := done & self.assignment()):
                self.resume(*still)

    def _polled(self) -> Fetcher:
        """Note the poll; raise errors of background tasks; open the next auto-commit."""
        fetcher = self._running()
        if self._subscribed.is_empty and not self._has_assigned:
            raise InvalidUse(
                "the consumer has no topic: name some, Consumer('t', ...), or call subscribe or "
                "assign first"
            )
        if self._group.member is not None:
            self._group.member.polled()
        self._mark_consumed()
        fetcher.raise_failure()
        return fetcher

    def _mark_consumed(self) -> None:
        for reader in self._handed_out:
            reader.consumed = reader.position
        self._handed_out.clear()

    # Partitions and positions.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; not together with a group's topics.

        Raises:
            InvalidUse: this consumer shares topics with a group, or a value is not a partition.
        """
        if self._group.member is not None:
            raise InvalidUse("a group assigns the partitions: give no topics to assign yourself")
        self._running().set_partitions([partition_of(partition) for partition in partitions])
        self._has_assigned = True

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._running().readers)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these (none given: all) until `resume`."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out again."""
        self._set_paused(partitions, is_paused=False)

    def _set_paused(self, partitions: tuple[TopicPartition, ...], *, is_paused: bool) -> None:
        for reader in self._readers(partitions):
            reader.is_paused = is_paused
        self._running().wake()

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed out, None while it is looked up."""
        return self._reader(partition).position

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets between the position and the end that the latest fetch saw, None before it."""
        return self._reader(partition).statistics().lag

    def statistics(self) -> ConsumerStatistics:
        """What was read so far, and where each partition stands."""
        fetcher = self._running()
        return ConsumerStatistics(
            time_ms=time.time_ns() // 1_000_000,
            records=self._records_count,
            fetches=fetcher.answers_count,
            bytes_fetched=fetcher.fetched_bytes,
            partitions={tp: reader.statistics() for tp, reader in fetcher.readers.items()},
        )

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Hand out from `offset` next.

        Raises:
            InvalidUse: the partition is not read, or `offset` is not an offset.
        """
        check_offset("offset", offset)
        self._reader(partition).seek(offset)
        self._running().wake()

    async def seek_to_time(
        self, when: int | str | datetime, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Go to the first record at or after a time (none given: in all partitions).

        `when` is milliseconds, an aware `datetime`, or text as `client.times` reads it. Where a
        partition has no such record (None in the answer), its end is next. Records are in offset
        order, so older ones may follow the first.

        Raises:
            InvalidTime: `when` is not a time, or in the wrong unit.
            BrokerRefused: the lookup failed.
        """
        readers = self._readers(partitions)
        wanted = dict.fromkeys((reader.partition for reader in readers), to_timestamp(when))
        found = await first_records(self._cluster, wanted, self._isolation)
        ends = await self.end_offsets(tp for tp, hit in found.items() if hit is None)
        for reader in readers:
            hit = found[reader.partition]
            reader.seek(ends[reader.partition] if hit is None else hit.offset)
        self._running().wake()
        return found

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the earliest record (none given: in all partitions)."""
        await self._seek_to_end_of(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end, after the last record (none given: in all partitions)."""
        await self._seek_to_end_of(partitions, LATEST)

    async def _seek_to_end_of(self, partitions: tuple[TopicPartition, ...], end: int) -> None:
        readers = self._readers(partitions)
        offsets = await self._ends([reader.partition for reader in readers], end)
        for reader in readers:
            reader.seek(offsets[reader.partition])
        self._running().wake()

    # Questions.

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int | str | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time, None where there is none.

        Raises:
            InvalidTime: a time in the wrong unit.
            BrokerRefused: an unknown partition.
        """
        wanted = {
            partition_of(tp): to_timestamp(when) for tp, when in pairs_of("times_ms", times_ms)
        }
        return await first_records(self._cluster, wanted, self._isolation)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The earliest offset of each partition."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last offset that this consumer may see, for each partition."""
        return await self._ends(partitions, LATEST)

    async def _ends(
        self, partitions: Iterable[TopicPartition], end: int
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(map(partition_of, partitions), end)
        found = await list_offsets(self._cluster, wanted, self._isolation)
        return {partition: hit.offset for partition, hit in found.items() if hit is not None}

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic.

        Raises:
            BrokerRefused: the topic does not exist.
        """
        return [TopicPartition(topic, n) for n in (await self._cluster.topic(topic)).partitions]

    # Commits.

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Store positions for the group: those given, or after everything handed out so far.

        Raises:
            InvalidUse: there is no group, or a key is not a partition, or a value not an offset.
            BrokerRefused: the group has continued without this member.
        """
        group = self._group.for_commits()
        if offsets is None:
            self._mark_consumed()
            positions = consumed_positions(self._running().readers.values())
        else:
            positions = positions_of(offsets)
        await self._positions.commit(group, positions)

    async def committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's stored positions (none given: all of them); partitions without are left out.

        Raises:
            InvalidUse: there is no group.
        """
        group = self._group.for_commits()
        return await fetch_committed(self._cluster, group.group_id, partitions or None)

    def group_metadata(self) -> GroupMetadata:
        """In whose name this member commits now; for `Producer.send_offsets`.

        Raises:
            InvalidUse: there is no group.
        """
        return self._group.for_commits()

    # Called by the group and the fetcher.

    def _note(self, error: ClientError) -> None:
        if self._fetcher is not None:
            self._fetcher.report(error)

    def _running(self) -> Fetcher:
        if self._fetcher is None:
            raise InvalidUse("the consumer is not started, or closed: use 'async with Consumer'")
        return self._fetcher

    def _reader(self, partition: TopicPartition) -> PartitionReader:
        reader = self._running().readers.get(partition_of(partition))
        if reader is None:
            raise InvalidUse(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return reader

    def _readers(self, partitions: tuple[TopicPartition, ...]) -> list[PartitionReader]:
        if not partitions:
            return list(self._running().readers.values())
        return [self._reader(partition) for partition in partitions]


def _is_after(record: ConsumerRecord[Any, Any], to_ms: int) -> bool:
    """Whether no record after this one can be before `to_ms`: the broker stamped it later."""
    is_stamped = record.timestamp_type is TimestampType.LOG_APPEND_TIME
    return is_stamped and record.timestamp_ms >= to_ms
