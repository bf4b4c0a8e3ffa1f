"""What a bucket has of topics: the closed segments in objects that its journal names.

The driver reads the journal, and the tasks fetch the objects; the records of these never pass
through the broker. Everything else does: the offsets of a query, what no object has yet, and what
the bucket cannot be asked for.

    log        0        400        800      1100     1180
    bucket     | object  | object   |
    broker                          | closed | open           -> [800, 1180) is read there

An object holds what the broker would answer, since it is closed, durable, and below the last stable
offset. The offsets of a query are the broker's own, so nothing is read that it does not show. What
is read from the broker, although there may be objects:

* topics that are compacted, or were: the bucket follows their rewriting later;
* objects of a later leader epoch than the broker's: another broker has taken the bucket over, and
  its records may be others.

Aborted transactions are in the index of the segment that has their marker, which may be a later
one. An entry also says up to where everything was decided, and there the search ends. Markers after
the last object are the broker's to name: a fetch there lists the transactions that are under way.

Imports `storage` for the journal. Only the driver imports this module.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Final

from client.errors import BrokerRefused
from pipeline.errors import BadOptions
from pipeline.net.cluster import LATEST, Cluster
from pipeline.options.options import SourceOptions, TopicPartition
from pipeline.plan.objects import ObjectPart, answers, read_indexes, store_at
from pipeline.plan.pruning import SegmentTimes
from pipeline.plan.segments import AbortedTransaction, txn_entries
from pipeline.plan.splits import OffsetRange
from protocol.error_codes import ErrorCode
from protocol.records.layout import INT64_MAX
from storage.bucket.journal import catch_up, read_state
from storage.bucket.map import log_key
from storage.remote.engine import BadStoreUrl, list_clusters
from storage.segment.facts import RemoteObject, SegmentFacts
from storage.segment.manifest import parse_remote_lines

_REFRESH_S: Final = 5.0
"""How old the journal may be for a micro-batch. What is missing in it is read from the broker."""

_INDEXES_AT_ONCE: Final = 16

_Stored = tuple[SegmentFacts, RemoteObject]


class Bucket:
    """The journal of a bucket as it was read last. Belongs to one thread."""

    def __init__(self, url: str, cluster_id: str) -> None:
        """Read the journal.

        Raises:
            BadOptions: `url` is no address of a bucket, or has nothing of the cluster.
            StoreFailed: the store did not answer, or refused.
        """
        self._cluster_id = cluster_id
        self._check(url)
        self._store = store_at(url, cluster_id)
        with answers("the journal"):
            self._state = read_state(self._store)
        self._read_s = time.monotonic()
        self._lines: dict[tuple[str, int], list[str]] = {}
        self._segments: dict[tuple[str, int], list[_Stored]] = {}
        self._compacted: dict[str, bool] = {}
        self._transactions: dict[str, list[tuple[int, int, int, int]]] = {}
        self._sort()

    def _check(self, url: str) -> None:
        try:
            with answers("the list of clusters"):
                found = list_clusters(url)
        except BadStoreUrl as error:
            raise BadOptions(f"option segments.remote: {error}") from error
        except FileNotFoundError:
            found = []
        if self._cluster_id not in found:
            raise BadOptions(
                f"option segments.remote={url!r}: kafka.bootstrap.servers is cluster "
                f"{self._cluster_id}, and what is there is of "
                f"{', '.join(found) or 'no cluster'}: give the remote.storage.url of this "
                "broker"
            )

    def refresh(self) -> None:
        """Read what came since, unless that was a moment ago. Raises StoreFailed."""
        if time.monotonic() - self._read_s < _REFRESH_S:
            return
        number = self._state.number
        with answers("the journal"):
            catch_up(self._store, self._state, {})
        self._read_s = time.monotonic()
        if self._state.number != number:
            self._sort()

    def _sort(self) -> None:
        """Sort the journal's lines by partition; they are parsed when they are wanted."""
        self._lines = defaultdict(list)
        self._segments.clear()
        self._compacted.clear()
        for key, lines in self._state.keys("segment"):
            self._lines[key.topic_id.hex(), key.partition].append(str(lines))

    def times(
        self, cluster: Cluster, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[SegmentTimes]]:
        """The times of the records in objects. Raises as `divide`."""
        return {
            tp: [
                SegmentTimes(
                    base_offset=facts.base_offset,
                    next_offset=facts.next_offset,
                    oldest_ms=facts.min_timestamp,
                    youngest_ms=min(facts.max_timestamp, facts.data_max_timestamp),
                )
                for facts, _ in self._stored(cluster, tp)
            ]
            for tp in partitions
        }

    def divide(
        self, cluster: Cluster, options: SourceOptions, ranges: Sequence[OffsetRange]
    ) -> tuple[list[ObjectPart], list[OffsetRange]]:
        """The parts of `ranges` to read from objects, and those to read from the broker.

        Raises:
            BrokerRefused: the broker does not show the settings of a topic.
            StoreFailed: the store did not answer, or refused.
        """
        inside: dict[TopicPartition, list[ObjectPart]] = defaultdict(list)
        outside: list[OffsetRange] = []
        for one in sorted(ranges):
            at = one.start
            stored = self._stored(cluster, one.topic_partition)
            first = bisect_right(stored, one.start, key=lambda it: it[1].next_offset)
            for _, where in stored[first:]:
                if where.base_offset >= one.end:
                    break
                start, end = max(where.base_offset, at), min(where.next_offset, one.end)
                if start >= end:
                    continue
                outside.append(OffsetRange(one.topic, one.partition, at, start))
                wanted = OffsetRange(one.topic, one.partition, start, end)
                inside[one.topic_partition].append(self._part(wanted, where))
                at = end
            outside.append(OffsetRange(one.topic, one.partition, at, one.end))
        parts: list[ObjectPart] = []
        for tp, those in inside.items():
            if options.read_committed:
                aborted = self._aborted(cluster, tp, those)
                if aborted is None:
                    outside += [part.wanted for part in those]
                    continue
                those = [replace(part, aborted=aborted).narrowed(part.wanted) for part in those]
            parts += those
        return parts, [one for one in outside if one.size > 0]

    def _part(self, wanted: OffsetRange, where: RemoteObject) -> ObjectPart:
        return ObjectPart(
            wanted=wanted,
            cluster_id=self._cluster_id,
            key=where.key,
            base_offset=where.base_offset,
            next_offset=where.next_offset,
            log_bytes=where.log_bytes,
            object_bytes=where.object_bytes,
        )

    def _stored(self, cluster: Cluster, tp: TopicPartition) -> list[_Stored]:
        """The objects of a partition to read, in order."""
        part = cluster.topic_id(tp[0]), tp[1]
        known = self._segments.get(part)
        if known is None:
            known = []
            if part in self._lines and not self._is_compacted(cluster, tp):
                found = map(parse_remote_lines, self._lines[part])
                known = sorted(found, key=lambda it: it[1].base_offset)
            self._segments[part] = known
        epoch = cluster.leader_epoch(tp)
        return list(takewhile(lambda it: it[1].epoch <= epoch, known))

    def _is_compacted(self, cluster: Cluster, tp: TopicPartition) -> bool:
        """Whether the broker may have fewer records than the objects, now or since long."""
        topic, index = tp
        topic_id = cluster.topic_id(topic)
        log = self._state.documents.get(log_key(bytes.fromhex(topic_id), index))
        if not isinstance(log, dict) or "cleaned" in log:
            return True
        if topic_id not in self._compacted:
            policy = cluster.settings(topic).get("cleanup.policy", "")
            self._compacted[topic_id] = "compact" in policy
        return self._compacted[topic_id]

    def _aborted(
        self, cluster: Cluster, tp: TopicPartition, parts: Sequence[ObjectPart]
    ) -> tuple[AbortedTransaction, ...] | None:
        """The aborted transactions with records in `parts`; None if they cannot be known."""
        start, end = parts[0].wanted.start, parts[-1].wanted.end
        stored = [it for it in self._stored(cluster, tp) if it[1].next_offset > start]
        if any(one.next_offset != other.base_offset for (_, one), (_, other) in pairwise(stored)):
            return None
        found: list[AbortedTransaction] = []
        listed = [where for facts, where in stored if facts.txn_index_bytes]
        for at in range(0, len(listed), _INDEXES_AT_ONCE):
            try:
                entries = self._transactions_in(tp, listed[at : at + _INDEXES_AT_ONCE])
            except FileNotFoundError:
                # Retention has begun to delete them.
                return None
            found += [entry[:3] for entry in entries]
            if entries[-1][3] >= end:
                return tuple(found)
        last = stored[-1][1].next_offset
        try:
            stable = cluster.list_offsets({tp: LATEST}, read_committed=True)[tp].offset
            if last < stable:
                fetched = cluster.fetch(tp, last, max_bytes=1, read_committed=True)
                found += [(*one, INT64_MAX) for one in fetched.aborted if one[1] < last]
        except BrokerRefused as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        return tuple(found)

    def _transactions_in(
        self, tp: TopicPartition, objects: Sequence[RemoteObject]
    ) -> list[tuple[int, int, int, int]]:
        """What the indexes of `objects`, which have some, list of aborted transactions."""
        fresh = [where for where in objects if where.key not in self._transactions]

        def read(where: RemoteObject) -> bytes:
            whole = OffsetRange(*tp, where.base_offset, where.next_offset)
            return read_indexes(self._store, self._part(whole, where)).txn_index

        with ThreadPoolExecutor(max(len(fresh), 1)) as pool:
            for where, index in zip(fresh, pool.map(read, fresh), strict=True):
                self._transactions[where.key] = txn_entries(index)
        return [entry for where in objects for entry in self._transactions[where.key]]
