"""Conversations about share groups (KIP-932) that Apache Kafka and Tidelog both have to hold.

A conversation is a sequence of requests of members on raw connections, each with what the broker
answered. `chapters` are written by hand: sessions, acknowledgements, limits, offsets, ends. `walk`
is a random one: what it does next depends on its seed and on the answers so far, so that two
brokers that answer alike get the same requests.

Ids, texts, times and epochs of groups are left out of the answers: they are each broker's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from protocol.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.offset_commit import OffsetCommitRequest
from protocol.api.offset_delete import OffsetDeleteRequest
from protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.api.share_fetch import AcquiredRecords, PartitionData, ShareFetchResponse
from protocol.api.share_group_describe import ShareGroupDescribeRequest
from protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.error_codes import ErrorCode
from protocol.records.scan import scan_entries
from protocol.structs import ProtocolMetadata, TopicPartitions
from tests.support.broker import RawClient, batch
from tests.support.requests import create_topic, produce
from tests.support.share_group import ShareMember, set_group

SETTINGS: Final = {
    "log.retention.check.interval.ms": "3600000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Of both brokers."""

LONG_LOCK: Final = "60000"
EXPIRY_S: Final = 1.3
STEP_S: Final = 0.3
"""How long a broker may need for what it does after an answer: settings, releases."""

WAIT_MS: Final = 300
SHORT_WAIT_MS: Final = 200
"""Of fetches in a walk: without a wait Kafka at times answers that nothing is there, and has it in
the next answer."""
_LOADING: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
ACCEPT, RELEASE, REJECT, RENEW, GAP = (1,), (2,), (3,), (4,), (0,)

OWN: Final = frozenset(
    {
        "acknowledge_error_message",
        "assignment_epoch",
        "authorized_operations",
        "client_host",
        "current_leader",
        "error_message",
        "group_epoch",
        "heartbeat_interval_ms",
        "leader_epoch",
        "member_epoch",
        "member_id",
        "node_endpoints",
        "throttle_time_ms",
        "topic_id",
    }
)
"""Fields that are each broker's own."""

Line = tuple[str, Any]
"""What was done, and what the broker answered."""


def plain(answer: Any) -> Any:
    """An answer as plain values: codes by name, record batches as their offsets."""
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    if not dataclasses.is_dataclass(answer):
        return answer
    found: dict[str, Any] = {}
    if isinstance(answer, ShareFetchResponse) and _is_blank(answer):
        answer = dataclasses.replace(answer, responses=[])
    for each in dataclasses.fields(answer):
        value = getattr(answer, each.name)
        if each.name in OWN:
            continue
        if each.name == "records":
            batches = scan_entries(bytes(value or b""))
            found[each.name] = [(entry.base_offset, entry.last_offset) for entry in batches]
        elif each.name.endswith("error_code"):
            found[each.name] = ErrorCode(value).name
        elif each.name == "partitions" and value and isinstance(value[0], PartitionData):
            found[each.name] = sorted(
                (plain(part) for part in value if not _is_empty(part)), key=repr
            )
        elif each.name in ("partitions", "responses", "groups", "members"):
            found[each.name] = sorted((plain(item) for item in value), key=repr)
        else:
            found[each.name] = plain(value)
    return found


def joined(ranges: Sequence[AcquiredRecords]) -> list[AcquiredRecords]:
    """Neighbours of the same delivery count as one: how they are cut says nothing to a client."""
    found: list[AcquiredRecords] = []
    for each in ranges:
        last = found[-1] if found else None
        is_next = last is not None and last.last_offset + 1 == each.first_offset
        if last is not None and is_next and last.delivery_count == each.delivery_count:
            found[-1] = dataclasses.replace(last, last_offset=each.last_offset)
        else:
            found.append(each)
    return found


def _is_blank(answer: Any) -> bool:
    return all(_is_empty(part) for topic in answer.responses for part in topic.partitions)


def _is_empty(part: Any) -> bool:
    """Whether a fetch has nothing of a partition: some answers name it all the same."""
    return not (part.acquired_records or part.error_code or part.acknowledge_error_code)


class Scene:
    """One conversation: its connections, its topic, and its transcript."""

    def __init__(self, host: str, port: int, name: str) -> None:
        """Speak with one broker; `name` makes the names of groups and topics unique."""
        self.host = host
        self.port = port
        self.name = name
        self.topic = f"topic-{name}"
        self.group = f"group-{name}"
        self.topic_id = b""
        self.lines: list[Line] = []
        self.has_exact_ranges = False
        """Whether neighbours of the same count are compared one by one."""

        self._clients: list[RawClient] = []

    async def client(self) -> RawClient:
        """A new connection."""
        client = await RawClient.connect(self.host, self.port)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    def note(self, what: str, answer: Any) -> None:
        """Add a line; names of this scene are written as they are in all scenes."""
        if isinstance(answer, ShareFetchResponse) and not self.has_exact_ranges:
            for topic in answer.responses:
                for part in topic.partitions:
                    part.acquired_records = joined(part.acquired_records)
        text = repr(plain(answer)).replace(self.name, "NAME")
        self.lines.append((what, text))

    async def begin(self, *, partitions: int = 1, **settings: str) -> None:
        """Create the topic; the group begins at the first record."""
        client = await self.client()
        self.topic_id = await create_topic(client, self.topic, partitions, retention_ms="-1")
        while (await self._coordinator(client)) != ErrorCode.NONE:
            await asyncio.sleep(STEP_S)
        await self.set(**({"share_auto_offset_reset": "earliest"} | settings))

    async def _coordinator(self, client: RawClient) -> int:
        """Ask for the group's coordinator: Kafka creates its topic then."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        answer = await client.request(request, 4)
        code: int = answer.coordinators[0].error_code
        return code

    async def set(self, **settings: str) -> None:
        """Give the group settings, and wait until they hold."""
        await set_group(self._clients[0], self.group, **settings)
        await asyncio.sleep(STEP_S)

    async def ask(self, what: str, message: Any, version: int) -> Any:
        """Send a request on the first connection, and note the answer."""
        answer = await self._clients[0].request(message, version)
        self.note(what, answer)
        return answer

    async def produce(self, count: int, partition: int = 0) -> None:
        """Append one batch."""
        answer = await produce(
            self._clients[0],
            self.topic,
            batch(*(f"value {number}" for number in range(count))),
            partition=partition,
        )
        assert answer.error_code == 0, answer

    async def member(self, name: str = "member-1", group: str = "") -> Member:
        """A member that has joined and knows its partitions, or the group has none to give."""
        member = Member(self, await self.client(), group or self.group, name)
        await member.join()
        return member

    async def delete_records(self, offset: int, partition: int = 0) -> Any:
        """Delete the records before an offset."""
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=self.topic, partitions=[part])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
        return await self._clients[0].request(request, 2)

    async def describe(self, what: str, topics: dict[str, list[int]] | None = None) -> None:
        """Note where the group stands."""
        asked = DescribeShareGroupOffsetsRequestGroup(
            group_id=self.group,
            topics=None
            if topics is None
            else [
                DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(indexes))
                for name, indexes in topics.items()
            ],
        )
        await self.ask(what, DescribeShareGroupOffsetsRequest(groups=[asked]), 1)

    async def alter(self, what: str, offsets: dict[int, int], topic: str = "") -> None:
        """Set offsets, and note the answer."""
        parts = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            for index, offset in offsets.items()
        ]
        asked = AlterShareGroupOffsetsRequestTopic(topic_name=topic or self.topic, partitions=parts)
        request = AlterShareGroupOffsetsRequest(group_id=self.group, topics=[asked])
        await self.ask(what, request, 0)


class Member:
    """A member whose requests are noted."""

    def __init__(self, scene: Scene, client: RawClient, group: str, name: str) -> None:
        """Speak on one connection."""
        self.scene = scene
        self.raw = ShareMember(client, group, scene.topic_id, name=name)

    @property
    def name(self) -> str:
        """The id of the member."""
        return self.raw.member_id

    async def join(self) -> None:
        """Join, and ask until there is an assignment: Kafka's first one is empty."""
        answer = await self.raw.heartbeat(self.scene.topic, epoch=0)
        while answer.error_code in _LOADING:
            await asyncio.sleep(STEP_S)
            answer = await self.raw.heartbeat(self.scene.topic, epoch=0)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        for _ in range(100):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            await asyncio.sleep(0.1)
            answer = await self.raw.heartbeat(self.scene.topic)

    async def reconnect(self) -> None:
        """Close the connection, and open another one once the broker has noticed."""
        await self.raw.client.close()
        await asyncio.sleep(STEP_S)
        self.raw.client = await self.scene.client()
        self.raw.session_epoch = 0

    async def fetch(self, what: str, *partitions: int, **fields: Any) -> Any:
        """Fetch, and note the answer."""
        fields.setdefault("max_wait_ms", WAIT_MS)
        answer = await self.raw.fetch_whole(*(partitions or (0,)), **fields)
        is_plain = fields.get("session_epoch", 0) == 0 and not fields.get("acks")
        if answer.error_code == 0 and is_plain and _is_blank(answer):
            # Kafka answers once without records when they were deleted.
            fields.pop("session_epoch", None)
            answer = await self.raw.fetch_whole(*(partitions or (0,)), **fields)
        fields.pop("forgotten_topics_data", None)
        self.scene.note(f"{what}: {self.name} fetches {partitions or (0,)} {fields}", answer)
        return answer

    async def acknowledge(self, what: str, *acks: Any, **fields: Any) -> Any:
        """Acknowledge, and note the answer."""
        answer = await self.raw.acknowledge(*acks, **fields)
        self.scene.note(f"{what}: {self.name} acknowledges {acks} {fields}", answer)
        return answer


# -- chapters --------------------------------------------------------------------------------------


async def sessions(scene: Scene) -> None:
    """Epochs of sessions, and what is checked before them."""
    await scene.begin(share_record_lock_duration_ms=LONG_LOCK)
    await scene.produce(10)
    one = await scene.member()
    await one.fetch("no session", session_epoch=3)
    await one.acknowledge("no session", (0, 0, ACCEPT), session_epoch=3)
    await one.acknowledge("first epoch", (0, 0, ACCEPT), session_epoch=0)
    await one.acknowledge("last epoch, no session", (0, 0, ACCEPT), session_epoch=-1)
    await one.fetch("last epoch, no session", session_epoch=-1)
    await one.fetch("acknowledgement in the first", session_epoch=0, acks=[(0, 0, 0, ACCEPT)])
    await one.fetch("first", max_records=3, share_acquire_mode=1)
    await one.fetch("epoch repeated", session_epoch=0)
    await one.fetch("ahead", session_epoch=9)
    await one.acknowledge("ahead", (0, 0, ACCEPT), session_epoch=9)
    await one.fetch("second", max_records=2, share_acquire_mode=1)
    await one.acknowledge("third", (0, 2, ACCEPT))
    await one.fetch("negative epoch", session_epoch=-2)
    await one.fetch("renewal with limits", is_renew_ack=True)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    await one.fetch("renewal", is_renew_ack=True, acks=[(0, 3, 4, RENEW)], **nothing)
    await one.fetch("no records wanted", max_records=0)
    await one.fetch("negative records", max_records=-1)
    await one.fetch("no bytes", max_bytes=0, max_records=1, share_acquire_mode=1)
    await one.fetch("partition that is not there", 7)
    await one.fetch("last", session_epoch=-1, acks=[(0, 3, 3, ACCEPT)])
    await asyncio.sleep(STEP_S)
    await one.fetch("after the last", session_epoch=4)
    one.raw.session_epoch = 0
    await one.fetch("again")
    await one.reconnect()
    await one.fetch("after the connection was lost")
    await one.fetch("odd mode", max_records=2, share_acquire_mode=2)
    odd = Member(scene, await scene.client(), scene.group, "")
    await odd.fetch("no member id")
    odd = Member(scene, await scene.client(), scene.group, "m" * 37)
    await odd.fetch("long member id")
    odd = Member(scene, await scene.client(), "", "member-9")
    await odd.fetch("no group")
    odd = Member(scene, await scene.client(), scene.group, "stranger")
    await odd.fetch("no member")
    odd = Member(scene, await scene.client(), scene.group + "-2", "stranger")
    await odd.fetch("no such group")


async def acknowledgements(scene: Scene) -> None:
    """Right and wrong acknowledgements."""
    await scene.begin(share_record_lock_duration_ms=LONG_LOCK)
    await scene.produce(6)
    await scene.produce(6)
    await scene.produce(20)
    one, two = await scene.member(), await scene.member("member-2")
    await one.fetch("two batches", max_records=12, share_acquire_mode=1)
    await one.acknowledge("first after last", (3, 2, ACCEPT))
    await one.acknowledge("not in order", (3, 4, ACCEPT), (0, 1, ACCEPT))
    await one.acknowledge("overlapping", (0, 3, ACCEPT), (2, 4, ACCEPT))
    await one.acknowledge("same twice", (0, 1, ACCEPT), (0, 1, ACCEPT))
    await one.acknowledge("no types", (0, 1, ()))
    await one.acknowledge("too many types", (0, 1, (1, 1, 1)))
    await one.acknowledge("unknown type", (0, 1, (5,)))
    await one.acknowledge("negative type", (0, 1, (-1,)))
    await one.acknowledge("renewal unmarked", (0, 1, RENEW))
    await one.acknowledge("negative offset", (-1, -1, ACCEPT))
    await one.acknowledge("beyond", (12, 12, ACCEPT))
    await one.acknowledge("partly beyond", (11, 12, ACCEPT))
    await one.acknowledge("far beyond", (1000, 1000, ACCEPT))
    await one.acknowledge("partition that is not there", (0, 0, ACCEPT), partition=3)
    await one.acknowledge("negative partition", (0, 0, ACCEPT), partition=-1)
    await two.fetch("the next batch", max_records=5, share_acquire_mode=1)
    await two.acknowledge("of another member", (0, 0, ACCEPT))
    await one.acknowledge("half of another member", (10, 13, ACCEPT))
    await one.acknowledge("right, then wrong", (0, 1, ACCEPT), (12, 13, ACCEPT))
    await one.acknowledge("still its own", (0, 1, ACCEPT))
    await one.acknowledge("again", (0, 1, ACCEPT))
    await one.acknowledge("one type each", (2, 6, (1, 2, 3, 0, 1)))
    await one.acknowledge("done already", (6, 6, ACCEPT))
    await one.acknowledge("below the start", (0, 2, RELEASE))
    await one.acknowledge("partly below the start", (1, 3, ACCEPT))
    await two.acknowledge("given back by another", (3, 3, ACCEPT))
    await one.fetch("given back", max_records=1, share_acquire_mode=1)
    await one.acknowledge("renewal", (3, 3, RENEW), is_renew_ack=True)
    await one.acknowledge("renewal and acceptance", (3, 7, (4, 1, 1, 1, 1)), is_renew_ack=True)
    await one.acknowledge("renewal of another's", (12, 12, RENEW), is_renew_ack=True)
    await one.acknowledge("the rest", (3, 3, ACCEPT), (7, 11, ACCEPT))
    await scene.set(share_renew_acknowledge_enable="false")
    await two.acknowledge("no renewals", (12, 12, RENEW), is_renew_ack=True)
    await two.fetch("with the next fetch", acks=[(0, 12, 13, ACCEPT), (0, 14, 14, REJECT)])
    await two.fetch("a wrong one, with the next fetch", acks=[(0, 100, 101, ACCEPT)])
    await scene.describe("where it stands")
    await one.acknowledge("last", (20, 20, ACCEPT), session_epoch=-1)
    await one.acknowledge("after the last", (20, 20, ACCEPT))


async def acquiring(scene: Scene) -> None:
    """Which ranges a fetch acquires: both modes, batch sizes, windows that are full."""
    await scene.begin(
        share_record_lock_duration_ms=LONG_LOCK, share_partition_max_record_locks="100"
    )
    scene.has_exact_ranges = True
    for count in (5, 1, 7, 10, 3, 3, 3, 50, 30, 60):
        await scene.produce(count)
    one, two = await scene.member(), await scene.member("member-2")
    await one.fetch("optimised", max_records=3)
    await one.fetch("optimised by size", max_records=12, batch_size=1)
    await two.fetch("strict", max_records=4, share_acquire_mode=1)
    await two.fetch("strict, small batches", max_records=8, batch_size=2, share_acquire_mode=1)
    await one.fetch("batches of four", max_records=9, batch_size=4)
    await two.acknowledge("a gap is given back", (14, 15, RELEASE))
    await one.fetch("the gap and more", max_records=40, batch_size=10)
    await one.fetch("to the limit", max_records=500)
    await two.fetch("full", max_records=500)
    await two.acknowledge("one is free", (13, 13, RELEASE))
    await two.fetch("still full", max_records=500)
    await one.acknowledge("the first five", (0, 4, ACCEPT))
    await two.fetch("five more", max_records=500)
    await one.acknowledge("wide", (5, 12, ACCEPT))
    await two.fetch("eight more", max_records=2, share_acquire_mode=1)
    await two.fetch("no batch size", max_records=1, batch_size=0, share_acquire_mode=1)
    await scene.describe("where it stands")
    await two.reconnect()
    await one.reconnect()
    await one.fetch("all again", max_records=500)


async def sizes(scene: Scene) -> None:
    """Limits in bytes, and partitions that a fetch has to load."""
    await scene.begin(partitions=3, share_record_lock_duration_ms=LONG_LOCK)
    for partition in range(3):
        await scene.produce(5, partition)
    one, two = await scene.member(), await scene.member("member-2")
    await one.fetch("no bytes", 0, 1, max_bytes=0, max_wait_ms=0)
    # Which of the two is loaded first in Kafka is by chance.
    for turn in ("loaded", "the other", "nothing"):
        answer = await one.raw.fetch_whole(0, 1, max_wait_ms=WAIT_MS)
        parts = [part for topic in answer.responses for part in topic.partitions]
        scene.note(turn, [part.acquired_records for part in parts if part.acquired_records])
    await one.fetch("one of three is new", 2)
    for _ in range(2):
        await scene.produce(5)
    began_s = time.monotonic()
    await two.fetch("least above the most", min_bytes=1 << 20, max_bytes=1, max_wait_ms=5_000)
    scene.note("at once", time.monotonic() - began_s < 4)
    await two.fetch("the least is there", min_bytes=2, max_wait_ms=5_000)
    await two.fetch("no bytes, nothing there", max_bytes=0, max_wait_ms=0)
    await scene.produce(5)
    await two.fetch("no bytes", max_bytes=0)
    await two.fetch("one byte", max_bytes=1)


async def deliveries(scene: Scene) -> None:
    """A record that is always released, up to its limit; limits of other groups."""
    await scene.begin(share_record_lock_duration_ms=LONG_LOCK)
    await scene.produce(6)
    await scene.produce(3)
    one = await scene.member()
    for turn in range(30):
        answer = await one.fetch(f"turn {turn}", max_records=6)
        for topic in answer.responses:
            for part in topic.partitions:
                acks = [(r.first_offset, r.last_offset, RELEASE) for r in part.acquired_records]
                if acks:
                    await one.acknowledge(f"turn {turn}", *acks)
    await scene.describe("where it stands")
    await scene.produce(4)
    await scene.set(share_delivery_count_limit="2")
    for turn in range(4):
        await one.fetch(f"limit of two, turn {turn}", max_records=10)
        await one.reconnect()
    await scene.describe("where it stands")


async def expiry(scene: Scene) -> None:
    """Locks that expire, and locks that are renewed."""
    await scene.begin(share_record_lock_duration_ms="1000")
    await scene.produce(4)
    one, two = await scene.member(), await scene.member("member-2")
    await one.fetch("first", max_records=4)
    await asyncio.sleep(EXPIRY_S)
    await one.acknowledge("too late", (0, 0, ACCEPT))
    await two.fetch("expired", max_records=4)
    await one.acknowledge("another's", (1, 1, ACCEPT))
    await asyncio.sleep(0.7)
    await two.acknowledge("two are renewed", (0, 1, RENEW), is_renew_ack=True)
    await asyncio.sleep(0.6)
    await one.fetch("two are not", max_records=4)
    await asyncio.sleep(EXPIRY_S)
    await one.fetch("all", max_records=4)
    await asyncio.sleep(EXPIRY_S)
    for turn in range(5):
        await two.fetch(f"turn {turn}", max_records=4)
        await asyncio.sleep(EXPIRY_S)
    await scene.describe("where it stands")


async def membership(scene: Scene) -> None:
    """Heartbeats right and wrong, and requests about the group in other protocols."""
    await scene.begin(partitions=2)
    one = await scene.member()

    async def beat(what: str, group: str = "", **fields: Any) -> None:
        wanted: dict[str, Any] = {"group_id": group or scene.group, "member_id": "member-1"}
        request = ShareGroupHeartbeatRequest(**(wanted | fields))
        answer = await scene._clients[0].request(request, 1)
        scene.note(what, ErrorCode(answer.error_code))

    epoch = one.raw.epoch
    await beat("right", member_epoch=epoch)
    await beat("ahead", member_epoch=epoch + 1)
    await beat("long ago", member_epoch=1)
    await beat("unknown member", member_id="other", member_epoch=3)
    await beat("unknown group", group=f"{scene.group}-none", member_epoch=3)
    await beat("unknown group is left", group=f"{scene.group}-none", member_epoch=-1)
    await beat("negative epoch", member_epoch=-2)
    await beat("joins without topics", member_id="other", member_epoch=0)
    await beat("no topics", member_id="x", member_epoch=0, subscribed_topic_names=[])
    await beat("no member id", member_id="", member_epoch=0, subscribed_topic_names=["t"])
    await beat("long id", member_id="m" * 37, member_epoch=0, subscribed_topic_names=["t"])
    await beat("no rack", member_id="r", member_epoch=0, rack_id="", subscribed_topic_names=["t"])
    request = ShareGroupHeartbeatRequest(
        group_id="", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    answer = await scene._clients[0].request(request, 1)
    scene.note("no group id", ErrorCode(answer.error_code))
    ids = [scene.group, f"{scene.group}-none", ""]
    await scene.ask("describe", ShareGroupDescribeRequest(group_ids=ids), 1)
    await scene.ask("describe, classic", DescribeGroupsRequest(groups=[scene.group]), 6)
    await scene.ask(
        "join, classic",
        JoinGroupRequest(
            group_id=scene.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[ProtocolMetadata(name="range", metadata=b"")],
        ),
        5,
    )
    await scene.ask(
        "heartbeat, consumer",
        ConsumerGroupHeartbeatRequest(
            group_id=scene.group,
            member_id="member-c",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[scene.topic],
            topic_partitions=[],
        ),
        1,
    )
    asked = OffsetFetchRequestGroup(group_id=scene.group, topics=None)
    await scene.ask("fetch all offsets", OffsetFetchRequest(groups=[asked]), 9)
    named = [OffsetFetchRequestTopics(name=scene.topic, partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=scene.group, topics=named)
    await scene.ask("fetch offsets", OffsetFetchRequest(groups=[asked]), 9)
    await scene.ask("commit", OffsetCommitRequest(group_id=scene.group, topics=[]), 9)
    await scene.ask("delete offsets", OffsetDeleteRequest(group_id=scene.group, topics=[]), 0)
    await scene.ask("delete", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    await scene.produce(2)
    await one.fetch("fetch", 0, 1)
    await beat("leave", member_epoch=-1)
    await beat("leave again", member_epoch=-1)
    await one.acknowledge("left, with a session", (0, 1, ACCEPT))
    await scene.ask("describe, empty", ShareGroupDescribeRequest(group_ids=ids[:1]), 1)
    await scene.ask("delete, empty", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    await scene.ask("delete again", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    await scene.ask("describe, gone", ShareGroupDescribeRequest(group_ids=ids[:1]), 1)
    await scene.describe("offsets, gone")


async def offsets(scene: Scene) -> None:
    """Offsets of groups: described, altered, deleted, while there are members and after."""
    await scene.begin(partitions=2, share_record_lock_duration_ms=LONG_LOCK)
    await scene.produce(10)
    await scene.describe("no group")
    one = await scene.member()
    await scene.describe("not fetched", {scene.topic: [0, 1]})
    await one.fetch("five", 0, 1, max_records=5, share_acquire_mode=1)
    await one.acknowledge("two", (0, 1, ACCEPT))
    await one.acknowledge("a hole", (3, 3, ACCEPT))
    await scene.describe("at two", {scene.topic: [0]})
    # Kafka never answers when it is asked for a partition that does not exist.
    await scene.describe("topic that is not there", {"no-such-topic": [0, 1]})
    await scene.alter("with members", {0: 5})
    gone = DeleteShareGroupOffsetsRequest(
        group_id=scene.group,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=scene.topic)],
    )
    await scene.ask("deleted with members", gone, 0)
    await one.raw.heartbeat(epoch=-1)
    await scene.alter("altered", {0: 5, 1: 0})
    await scene.describe("altered")
    await one.acknowledge("in an old session", (2, 2, ACCEPT))
    await one.fetch("in an old session", 0, max_records=2, share_acquire_mode=1)
    await one.fetch("once more", 0, max_records=2, share_acquire_mode=1)
    await one.reconnect()
    # Kafka never answers a request with an offset or a partition that is negative.
    await scene.alter("beyond the end", {1: 100})
    await scene.describe("beyond the end")
    await scene.alter("no topic", {0: 1}, topic="no-such-topic")
    await scene.alter("nothing", {})
    await scene.alter("altered again", {0: 2, 1: 0})
    again = await scene.member("member-2")
    await again.fetch("at two", 0, max_records=3, share_acquire_mode=1)
    await again.acknowledge("hole", (3, 3, ACCEPT))
    await again.raw.heartbeat(epoch=-1)
    await again.reconnect()
    await asyncio.sleep(STEP_S)
    await scene.describe("a hole")
    await scene.ask("deleted", gone, 0)
    await scene.ask("deleted again", gone, 0)
    none = DeleteShareGroupOffsetsRequest(
        group_id=scene.group,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name="no-such-topic")],
    )
    await scene.ask("no such topic deleted", none, 0)
    none = DeleteShareGroupOffsetsRequest(group_id=f"{scene.group}-none", topics=gone.topics)
    await scene.ask("deleted of no group", none, 0)
    await scene.describe("deleted", {scene.topic: [0]})
    fresh = await scene.member("member-3")
    await fresh.fetch("from the start", max_records=3, share_acquire_mode=1)


async def records_deleted(scene: Scene) -> None:
    """Records that are deleted while a group has them."""
    await scene.begin(share_record_lock_duration_ms=LONG_LOCK)
    for _ in range(4):
        await scene.produce(5)
    one, two = await scene.member(), await scene.member("member-2")
    await one.fetch("seven", max_records=7, share_acquire_mode=1)
    await one.acknowledge("some are given back", (0, 2, RELEASE))
    scene.note("deleted", await scene.delete_records(4))
    await two.fetch("what is left", max_records=2, share_acquire_mode=1)
    await two.fetch("and then", max_records=2, share_acquire_mode=1)
    await one.acknowledge("a deleted one", (3, 3, ACCEPT))
    await one.acknowledge("one that is there", (4, 4, ACCEPT))
    scene.note("deleted", await scene.delete_records(9))
    await one.acknowledge("deleted", (5, 6, RELEASE))
    await two.fetch("more", max_records=3, share_acquire_mode=1)
    await two.fetch("more", max_records=3, share_acquire_mode=1)
    scene.note("all deleted", await scene.delete_records(20))
    await two.fetch("nothing", max_records=3)
    await scene.produce(2)
    await two.fetch("new", max_records=3)
    await two.fetch("new", max_records=3)
    await one.reconnect()
    await scene.describe("where it stands")


async def topic_deleted(scene: Scene) -> None:
    """A topic that is deleted under its readers."""
    await scene.begin()
    await scene.produce(5)
    one = await scene.member()
    await one.fetch("first", max_records=2, share_acquire_mode=1)
    await scene.ask("deleted", DeleteTopicsRequest(topic_names=[scene.topic], timeout_ms=10_000), 5)
    await asyncio.sleep(1)
    await one.acknowledge("deleted", (0, 1, ACCEPT))
    await one.fetch("deleted")
    await scene.describe("nothing is left")
    await one.fetch("ends", session_epoch=-1)


CHAPTERS: Final[tuple[Callable[[Scene], Awaitable[None]], ...]] = (
    sessions,
    acknowledgements,
    acquiring,
    sizes,
    deliveries,
    expiry,
    membership,
    offsets,
    records_deleted,
    topic_deleted,
)


# -- the random walk -------------------------------------------------------------------------------

_MEMBERS: Final = 3
_PARTITIONS: Final = 2
_SUSPICIOUS: Final = 5


class Walk:
    """Random steps of three members in two partitions."""

    def __init__(self, scene: Scene, seed: int) -> None:
        """Nothing happens before `run`."""
        self.scene = scene
        self.rng = random.Random(seed)
        self.members: list[Member] = []
        self.held: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.ends = [0] * _PARTITIONS
        self.starts = [0] * _PARTITIONS
        self.batches = [[0] for _ in range(_PARTITIONS)]
        """Where batches begin, of each partition, and where the last one ends."""

        self.is_over = False
        """Whether a record was delivered so often that it is no longer certain what comes next."""

    async def run(self, steps: int) -> None:
        """Take steps; a second of silence lets locks expire now and then."""
        scene = self.scene
        await scene.begin(
            partitions=_PARTITIONS,
            share_record_lock_duration_ms=LONG_LOCK,
            share_delivery_count_limit="10",
        )
        self.members = [await scene.member(f"member-{n}") for n in range(1, _MEMBERS + 1)]
        # It stays, so that the group is never without a session: what a member forgot and still
        # holds remains locked.
        await (await scene.member("keeper")).fetch("walk", 0, max_records=0)
        await self._produce()
        actions = (
            (self._fetch, 40),
            (self._acknowledge, 40),
            (self._acknowledge_wrongly, 4),
            (self._produce, 15),
            (self._delete_records, 3),
            (self._leave, 3),
            (self._reconnect, 3),
            (self._expire, 2),
        )
        for _ in range(steps):
            names, weights = zip(*actions, strict=True)
            await self.rng.choices(names, weights)[0]()
            if self.is_over:
                return
        await scene.describe("in the end", {scene.topic: list(range(_PARTITIONS))})

    async def _fetch(self) -> None:
        rng = self.rng
        member, partition = rng.choice(self.members), rng.randrange(_PARTITIONS)
        acks = self._some(member, partition) if rng.random() < 0.3 else []
        if member.raw.session_epoch == 0:
            acks = []
        forgotten = TopicPartitions(topic_id=self.scene.topic_id, partitions=[1 - partition])
        mode = rng.choice((0, 1))
        # How far whole batches go beyond a limit is each broker's own.
        wanted = rng.choice((1, 2, 3, 7, 30, 500)) if mode else 500
        answer = await member.fetch(
            "walk",
            partition,
            max_records=0 if acks else wanted,
            batch_size=rng.choice((1, 3, 10, 500)),
            share_acquire_mode=mode,
            max_wait_ms=SHORT_WAIT_MS if member.raw.session_epoch else WAIT_MS,
            forgotten_topics_data=[forgotten],
            acks=[(partition, *ack) for ack in acks],
        )
        self._took(member, answer)

    def _took(self, member: Member, answer: Any) -> None:
        for topic in answer.responses:
            for part in topic.partitions:
                held = self.held.setdefault((member.name, part.partition_index), [])
                counts = [each.delivery_count for each in part.acquired_records]
                self.is_over = self.is_over or max(counts, default=0) >= _SUSPICIOUS
                held += [(each.first_offset, each.last_offset) for each in part.acquired_records]

    def _some(self, member: Member, partition: int) -> list[tuple[int, int, list[int]]]:
        """Acknowledgements of some of what the member holds, mostly."""
        rng = self.rng
        held = sorted(self.held.get((member.name, partition), []))
        chosen = [each for each in held if rng.random() < 0.6]
        acks = []
        left = [each for each in held if each not in chosen]
        for first, last in chosen:
            middle = rng.randint(first, last)
            begin, end = rng.choice(((first, last), (first, middle), (middle, last)))
            if rng.random() < 0.6:
                types = [rng.choice((1, 1, 2, 2, 3, 0))]
            else:
                types = [rng.choice((1, 2, 3, 0)) for _ in range(begin, end + 1)]
            acks.append((begin, end, types))
            left += [(first, begin - 1)] if begin > first else []
            left += [(end + 1, last)] if end < last else []
        self.held[member.name, partition] = left
        return acks

    async def _acknowledge(self) -> None:
        member, partition = self.rng.choice(self.members), self.rng.randrange(_PARTITIONS)
        if not member.raw.session_epoch:
            return
        acks = self._some(member, partition)
        if acks:
            await member.acknowledge("walk", *acks, partition=partition)

    async def _acknowledge_wrongly(self) -> None:
        rng = self.rng
        member, partition = rng.choice(self.members), rng.randrange(_PARTITIONS)
        if not member.raw.session_epoch:
            return
        first = rng.randint(self.starts[partition], self.ends[partition] + 2)
        last = first + rng.choice((0, 0, 1, 5))
        types = [rng.choice((0, 1, 2, 3))]
        await member.acknowledge("walk, at random", (first, last, types), partition=partition)

    async def _produce(self) -> None:
        partition = self.rng.randrange(_PARTITIONS)
        count = self.rng.choice((1, 2, 5, 20))
        await self.scene.produce(count, partition)
        self.ends[partition] += count
        self.batches[partition].append(self.ends[partition])

    async def _delete_records(self) -> None:
        partition = self.rng.randrange(_PARTITIONS)
        # Inside of a batch a range of Kafka begins with deleted records.
        offset = self.rng.choice(self.batches[partition][-6:])
        answer = await self.scene.delete_records(offset, partition)
        self.scene.note(f"walk: deleted to {partition}-{offset}", answer)
        # What becomes of acknowledgements of deleted records is each broker's own.
        start = self.starts[partition] = max(offset, self.starts[partition])
        for member in self.members:
            self.held[member.name, partition] = [
                (max(first, start), last)
                for first, last in self.held.get((member.name, partition), [])
                if last >= start
            ]

    async def _leave(self) -> None:
        member = self.rng.choice(self.members)
        if member.raw.session_epoch:
            await member.fetch("walk, ends", 0, session_epoch=-1)
            member.raw.session_epoch = 0
            self._lost(member)
            await asyncio.sleep(STEP_S)

    async def _reconnect(self) -> None:
        member = self.rng.choice(self.members)
        self.scene.note(f"walk: {member.name} reconnects", None)
        await member.reconnect()
        self._lost(member)

    async def _expire(self) -> None:
        await self.scene.set(share_record_lock_duration_ms="1000")
        await self._fetch()
        await asyncio.sleep(EXPIRY_S)
        await self.scene.set(share_record_lock_duration_ms=LONG_LOCK)

    def _lost(self, member: Member) -> None:
        for partition in range(_PARTITIONS):
            if self.rng.random() < 0.9:
                self.held.pop((member.name, partition), None)


# -- running ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _scene(bootstrap: str, name: str) -> AsyncIterator[Scene]:
    host, _, port = bootstrap.rpartition(":")
    scene = Scene(host, int(port), name)
    try:
        yield scene
    finally:
        await scene.close()


async def read_chapter(
    bootstrap: str, chapter: Callable[[Scene], Awaitable[None]], suffix: str = ""
) -> list[Line]:
    """The transcript of a chapter with one broker."""
    async with _scene(bootstrap, chapter.__name__ + suffix) as scene:
        await chapter(scene)
        return scene.lines


async def read_walk(bootstrap: str, seed: int, steps: int, suffix: str = "") -> list[Line]:
    """The transcript of a random walk with one broker."""
    async with _scene(bootstrap, f"walk-{seed}{suffix}") as scene:
        await Walk(scene, seed).run(steps)
        return scene.lines


def differing(ours: Sequence[Line], theirs: Sequence[Line]) -> list[tuple[str, str, str]]:
    """What differs: what was done, our answer, Kafka's."""
    found = [
        (mine[0], mine[1], other[1])
        for mine, other in zip(ours, theirs, strict=False)
        if mine != other
    ]
    if len(ours) != len(theirs):
        found.append(("lines", str(len(ours)), str(len(theirs))))
    return found
