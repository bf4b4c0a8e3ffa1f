"""The session of a share consumer with one leader: what the broker knows, what is in hand.

Owns the epoch, the offsets in hand and the acknowledgements that wait for the next request, and
writes them into requests. Refuses to know connections' failures and memberships.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from client.core.connection import Connection
from client.core.sharing.options import Ack, ShareOptions
from client.types import TopicPartition
from protocol.api import share_acknowledge, share_fetch
from protocol.structs import AcknowledgementBatch, TopicPartitions

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

Range = tuple[int, int, Ack]
"""First and last offset, both included, and what became of them."""

Acks = Mapping[TopicPartition, list[Range]]


@dataclass(slots=True, kw_only=True, eq=False)
class ShareSession:
    """One session. `ids` has the topic id of every partition that was ever part of it."""

    node_id: int
    connection: Connection
    epoch: int = FIRST_EPOCH
    ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    known: set[TopicPartition] = field(default_factory=set)
    in_hand: dict[TopicPartition, set[int]] = field(default_factory=dict)
    done: dict[TopicPartition, list[Range]] = field(default_factory=dict)

    def advance(self) -> None:
        """The next request has the next epoch."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def take_done(self) -> dict[TopicPartition, list[Range]]:
        """The acknowledgements to send, in order of offsets, neighbours joined."""
        done, self.done = self.done, {}
        return {partition: joined(ranges) for partition, ranges in done.items() if ranges}

    def partition(self, topic_id: bytes, index: int) -> TopicPartition | None:
        """The partition that an answer names; None if it is not of this session."""
        for partition, known in self.ids.items():
            if partition.partition == index and known == topic_id:
                return partition
        return None

    def fetch_request(
        self,
        options: ShareOptions,
        member_id: str,
        wanted: Mapping[TopicPartition, bytes],
        acks: Acks,
        wait_ms: int,
    ) -> share_fetch.ShareFetchRequest:
        """The next fetch of exactly the partitions `wanted`; the session knows them from now on."""
        gone = [tp for tp in self.known if wanted.get(tp) != self.ids[tp]]
        forgotten = [
            TopicPartitions(topic_id=self.ids[tp], partitions=[tp.partition]) for tp in gone
        ]
        added = [tp for tp in wanted if tp not in self.known or tp in gone]
        self.ids.update(wanted)
        self.known = set(wanted)
        parts = share_fetch.FetchTopic, share_fetch.FetchPartition
        return share_fetch.ShareFetchRequest(
            group_id=options.group_id,
            member_id=member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=min(wait_ms, options.fetch_max_wait_ms),
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            max_records=options.max_records if wanted else 0,
            batch_size=options.max_records,
            share_acquire_mode=int(options.is_strict),
            topics=self._topics(*parts, dict.fromkeys([*added, *acks]), acks),
            forgotten_topics_data=forgotten,
        )

    def acknowledge_request(
        self, options: ShareOptions, member_id: str, acks: Acks, *, is_final: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Acknowledgements alone; the final one lets the broker take back what is in hand."""
        parts = share_acknowledge.AcknowledgeTopic, share_acknowledge.AcknowledgePartition
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=options.group_id,
            member_id=member_id,
            share_session_epoch=FINAL_EPOCH if is_final else self.epoch,
            is_renew_ack=any(ack is Ack.RENEW for ranges in acks.values() for *_, ack in ranges),
            topics=self._topics(*parts, acks, acks),
        )

    def _topics(
        self, topic: Any, part: Any, named: Iterable[TopicPartition], acks: Acks
    ) -> list[Any]:
        """The partitions `named` by topic, with their acknowledgements, as objects of a request."""
        topics: dict[bytes, Any] = {}
        for tp in named:
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ack])
                for first, last, ack in acks.get(tp, ())
            ]
            topic_id = self.ids[tp]
            topics.setdefault(topic_id, topic(topic_id=topic_id)).partitions.append(
                part(partition_index=tp.partition, acknowledgement_batches=batches)
            )
        return list(topics.values())


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in order, with neighbours of the same kind as one."""
    found: list[Range] = []
    for first, last, ack in sorted(ranges):
        if found and found[-1][1] + 1 == first and found[-1][2] is ack:
            found[-1] = (found[-1][0], last, ack)
        else:
            found.append((first, last, ack))
    return found


def offsets_of(ranges: Iterable[Range]) -> list[int]:
    """The offsets of records in ranges; gaps have none."""
    return [
        offset
        for first, last, ack in ranges
        if ack is not Ack.GAP
        for offset in range(first, last + 1)
    ]


def holes(first: int, last: int, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The ranges from `first` to `last` that `offsets`, in ascending order, leave out."""
    for offset in offsets:
        if offset > first:
            yield first, offset - 1
        first = offset + 1
    if first <= last:
        yield first, last
