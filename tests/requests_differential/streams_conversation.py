"""Conversations about groups of Kafka Streams (KIP-1071) that Kafka and Tidelog both have to hold.

As in `share_conversation`: chapters by hand, and `walk`, whose steps depend on its seed and on the
answers so far. Texts and times are left out of the answers; epochs are not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from protocol import streams
from protocol.api import streams_group_heartbeat as api
from protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.api.delete_groups import DeleteGroupsRequest
from protocol.api.delete_topics import DeleteTopicsRequest
from protocol.api.describe_groups import DescribeGroupsRequest
from protocol.api.join_group import JoinGroupRequest
from protocol.api.list_groups import ListGroupsRequest
from protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.api.offset_delete import OffsetDeleteRequest
from protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from protocol.error_codes import ErrorCode
from protocol.structs import ProtocolMetadata
from tests.requests_differential.share_conversation import STEP_S, Line, Scene
from tests.support.requests import create_topic
from tests.support.share_group import set_group

KNOWN_S: Final = 1.5
"""How long Kafka's coordinator may need to learn of a topic."""

MISSING_SOURCE: Final = 1
WRONG_SIZE: Final = 2
MISSING_INTERNAL: Final = 3
SETTINGS: Final = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
"""Of both brokers."""

OWN: Final = frozenset(
    {
        "acknowledge_error_message",
        "authorized_operations",
        "client_host",
        "error_message",
        "status_detail",
        "throttle_time_ms",
        "topic_id",
    }
)
"""Fields that are each broker's own: texts, times, ids. Epochs are compared."""

EPOCHS: Final = ("member_epoch", "group_epoch", "assignment_epoch")


def plain(answer: Any) -> Any:
    """An answer as plain values: codes by name, lists sorted, as their order says nothing."""
    if isinstance(answer, list):
        return sorted((plain(each) for each in answer), key=repr)
    if not dataclasses.is_dataclass(answer):
        return answer
    found = {}
    for each in dataclasses.fields(answer):
        value = getattr(answer, each.name)
        if each.name == "error_code":
            found[each.name] = ErrorCode(value).name
        elif each.name not in OWN:
            found[each.name] = plain(value)
    return found


def topology(
    *,
    epoch: int = 0,
    sources: tuple[str, ...] = (),
    store: str = "",
    repartition: str = "",
    count: int = 0,
    joined: tuple[str, ...] = (),
) -> streams.Topology:
    """One subtopology that reads `sources`, or two with a repartition topic between them.

    `store` is a changelog of the last one; `count` gives the repartition topic partitions;
    `joined` are topics that the last one reads beside it, copartitioned.
    """
    first = streams.Subtopology(subtopology_id="0", source_topics=list(sources))
    last = first
    subs = [first]
    if repartition:
        first.repartition_sink_topics = [repartition]
        settings = [streams.KeyValue(key="cleanup.policy", value="delete")]
        info = streams.TopicInfo(name=repartition, partitions=count, topic_configs=settings)
        last = streams.Subtopology(
            subtopology_id="1",
            source_topics=list(joined),
            repartition_source_topics=[info],
        )
        if joined:
            places = list(range(len(joined)))
            group = streams.CopartitionGroup(source_topics=places, repartition_source_topics=[0])
            last.copartition_groups = [group]
        subs.append(last)
    elif joined:
        places = list(range(len(sources)))
        first.copartition_groups = [streams.CopartitionGroup(source_topics=places)]
    if store:
        settings = [streams.KeyValue(key="cleanup.policy", value="compact")]
        last.state_changelog_topics = [streams.TopicInfo(name=store, topic_configs=settings)]
    return streams.Topology(epoch=epoch, subtopologies=subs)


class StreamsScene(Scene):
    """A conversation about a group of Kafka Streams."""

    base = 0
    """The epoch that others are counted from: how many steps a topic takes to appear is Kafka's."""

    async def begin(self, *, partitions: int = 2, **settings: str) -> None:
        """Create the source topic; give the group settings."""
        client = await self.client()
        self.topic_id = await create_topic(client, self.topic, partitions)
        while (await self._coordinator(client)) != ErrorCode.NONE:
            await asyncio.sleep(STEP_S)
        if settings:
            await self.set(**settings)
        await asyncio.sleep(KNOWN_S)

    async def set(self, **settings: str) -> None:
        """Give the group settings, and wait until they hold."""
        await set_group(self._clients[0], self.group, **settings)
        await asyncio.sleep(STEP_S)

    def named(self, suffix: str) -> str:
        """The name of another topic of this scene."""
        return f"{self.topic}-{suffix}"

    def note(self, what: str, answer: Any) -> None:
        """Add a line; names of this scene are written as they are in all scenes."""
        found = plain(answer)
        _count_epochs(found, self.base)
        self.lines.append((what, repr(found).replace(self.name, "NAME")))

    async def beat(self, what: str, **fields: Any) -> Any:
        """A heartbeat of any kind; note the answer."""
        request = api.StreamsGroupHeartbeatRequest(**({"group_id": self.group} | fields))
        answer = await self._clients[0].request(request, 0)
        self.note(what, answer)
        return answer

    async def describe_group(self, what: str) -> None:
        """Note the group as it is described."""
        ids = [self.group]
        await self.ask(what, StreamsGroupDescribeRequest(group_ids=ids), 0)

    async def create(self, suffix: str, partitions: int) -> str:
        """Another topic."""
        await create_topic(self._clients[0], self.named(suffix), partitions)
        await asyncio.sleep(KNOWN_S)
        return self.named(suffix)


def _count_epochs(found: Any, base: int) -> None:
    for each in found if isinstance(found, list) else ():
        _count_epochs(each, base)
    for name, value in found.items() if isinstance(found, dict) else ():
        if name not in EPOCHS:
            _count_epochs(value, base)
        elif value > 0:
            found[name] = value - base


class Member:
    """One member of an application, as Kafka Streams behaves: it does what it is given."""

    def __init__(self, scene: StreamsScene, name: str, process: str = "") -> None:
        self.scene = scene
        self.name = name
        self.process = process or f"process-{name}"
        self.epoch = 0
        self.owned: tuple[list[api.TaskIds], list[api.TaskIds]] = ([], [])

    async def join(self, wanted: streams.Topology, what: str = "joins", **fields: Any) -> Any:
        """Join with a topology."""
        base: dict[str, Any] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "topology": wanted,
            "process_id": self.process,
            "client_tags": [],
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        return await self._send(what, base | fields)

    async def beat(self, what: str = "continues", **fields: Any) -> Any:
        """Continue, with all tasks."""
        return await self._send(what, {"member_epoch": self.epoch, **self._tasks(), **fields})

    async def until(self, what: str, *codes: int) -> None:
        """Continue until these are the statuses, and note that heartbeat only.

        Kafka's coordinator learns of topics and settings some time after their answer.
        """
        lines = len(self.scene.lines)
        for _ in range(100):
            answer = await self.beat(what)
            if [status.status_code for status in answer.status or ()] == list(codes):
                break
            await asyncio.sleep(STEP_S / 3)
        del self.scene.lines[lines:]
        self.scene.base = answer.member_epoch
        self.scene.note(f"{self.name} {what}", answer)

    async def leave(self) -> Any:
        """Leave."""
        return await self._send("leaves", {"member_epoch": -1})

    def _tasks(self) -> dict[str, Any]:
        active, standby = self.owned
        return {"active_tasks": active, "standby_tasks": standby, "warmup_tasks": []}

    async def _send(self, what: str, fields: dict[str, Any]) -> Any:
        answer = await self.scene.beat(f"{self.name} {what}", member_id=self.name, **fields)
        if not answer.error_code:
            self.epoch = max(answer.member_epoch, 0)
            if answer.active_tasks is not None:
                self.owned = (answer.active_tasks, answer.standby_tasks or [])
        return answer


async def settle(*members: Member) -> None:
    """Let members continue until nothing changes any more."""
    for turn in range(4):
        for member in members:
            await member.beat(f"settles {turn}")


async def refusals(scene: StreamsScene) -> None:
    """Requests that are refused, each for a reason of its own."""
    await scene.begin()
    wanted = topology(sources=(scene.topic,))
    good: dict[str, Any] = {
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topology": wanted,
        "process_id": "p",
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    task = [api.TaskIds(subtopology_id="0", partitions=[0])]
    regex = streams.Topology(
        epoch=0,
        subtopologies=[streams.Subtopology(subtopology_id="0", source_topic_regex=["a.*"])],
    )
    counted = topology(sources=(scene.topic,), store=scene.named("store"))
    counted.subtopologies[0].state_changelog_topics[0].partitions = 3
    offsets = [api.TaskOffset(subtopology_id="0", partition=0, offset=1)]
    odd: dict[str, dict[str, Any]] = {
        "no member": {"member_id": ""},
        "no group": {"group_id": ""},
        "no instance": {"instance_id": ""},
        "no rack": {"rack_id": ""},
        "static member": {"instance_id": "i"},
        "epoch -3": {"member_epoch": -3, "topology": None},
        "static leave": {"member_epoch": -2, "topology": None},
        "no timeout": {"rebalance_timeout_ms": -1},
        "no topology": {"topology": None},
        "joins with tasks": {"active_tasks": task},
        "joins with standby tasks": {"standby_tasks": task},
        "joins with warm-up tasks": {"warmup_tasks": task},
        "some kinds of tasks": {"standby_tasks": None},
        "topology later": {"member_epoch": 1},
        "regular expression": {"topology": regex},
        "changelog with a count": {"topology": counted},
        "task offsets": {"task_offsets": offsets},
        "task end offsets": {"task_end_offsets": offsets},
        "internal topic": {"topology": topology(sources=("__consumer_offsets",))},
        "bad name": {"topology": topology(sources=("a b",))},
        "unknown group": {"member_epoch": 3, "topology": None},
        "leaves an unknown group": {"member_epoch": -1, "topology": None},
    }
    for what, fields in odd.items():
        await scene.beat(what, **(good | fields))
    sub = wanted.subtopologies[0]
    loop = topology(sources=(), repartition=scene.named("loop"))
    loop.subtopologies[0].repartition_source_topics = loop.subtopologies[
        1
    ].repartition_source_topics
    await scene.beat("a loop", **(good | {"topology": loop}))
    unwritten = streams.Subtopology(
        subtopology_id="1", repartition_source_topics=[streams.TopicInfo(name=scene.named("r"))]
    )
    lost = streams.Topology(epoch=0, subtopologies=[sub, unwritten])
    await scene.beat("read and not written", **(good | {"topology": lost}))
    blank = streams.Topology(epoch=0, subtopologies=[streams.Subtopology(subtopology_id="0")])
    await scene.beat("no source", **(good | {"topology": blank}))
    twice = streams.Topology(epoch=0, subtopologies=[sub, sub])
    await scene.beat("an id twice", **(good | {"topology": twice}))
    far = topology(sources=(scene.topic,))
    far.subtopologies[0].copartition_groups = [streams.CopartitionGroup(source_topics=[4])]
    await scene.beat("a place out of range", **(good | {"topology": far}))
    await scene.describe_group("nothing is left")
    one = Member(scene, "m")
    await one.join(wanted)
    await one.beat("owns nothing of it", active_tasks=[api.TaskIds(subtopology_id="9")])
    for name, index in (("9", 0), ("0", 2), ("0", -1)):
        ids = [api.TaskIds(subtopology_id=name, partitions=[index])]
        await one.beat(f"owns task {name}_{index}", active_tasks=ids)
    await one.beat("ahead", member_epoch=one.epoch + 1)
    await one.beat("behind", member_epoch=one.epoch - 1)
    await scene.beat("unknown member", member_id="other", member_epoch=2)
    await scene.beat("unknown member leaves", member_id="other", member_epoch=-1)
    changed = topology(sources=(scene.topic, scene.named("more")))
    await one.join(changed, "joins with another topology")
    await one.join(topology(epoch=1, sources=(scene.topic,)), "joins with a newer topology")
    await one.beat()
    await scene.describe_group("in the end")


async def topics(scene: StreamsScene) -> None:
    """Topics that are missing, created, of wrong sizes, and that come and go."""
    await scene.begin(partitions=3)
    other = scene.named("other")
    wanted = topology(
        sources=(scene.topic, other),
        repartition=scene.named("app-repartition"),
        store=scene.named("app-changelog"),
    )
    one = Member(scene, "one")
    await one.join(wanted, "joins without its source")
    await scene.describe_group("not ready")
    await one.beat()
    await scene.create("other", 5)
    await one.until("lacks internal topics", MISSING_INTERNAL)
    await one.until("has them")
    await one.beat()
    await scene.describe_group("ready")
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=other, count=6)], timeout_ms=10_000
    )
    await scene.ask("grow", grown, 3)
    await one.until("its source has grown", WRONG_SIZE)
    await scene.describe_group("wrong size")
    await one.beat()
    gone = DeleteTopicsRequest(topic_names=[other], timeout_ms=10_000)
    await scene.ask("delete", gone, 5)
    await one.until("its source is gone", MISSING_SOURCE)
    await one.beat("and gives up")
    await one.beat()
    await scene.describe_group("missing")
    await one.leave()
    await scene.describe_group("empty")


async def partitions(scene: StreamsScene) -> None:
    """Copartitioned topics and repartition topics of a given size, right and wrong."""
    await scene.begin(partitions=2)
    four = await scene.create("four", 4)
    again = await scene.create("four-again", 4)
    cases = {
        "a given size": topology(
            sources=(scene.topic,), repartition=scene.named("r1"), count=7, store=scene.named("s1")
        ),
        "joined with a larger topic": topology(
            sources=(scene.topic,), repartition=scene.named("r2"), joined=(four,)
        ),
        "joined, of another given size": topology(
            sources=(scene.topic,), repartition=scene.named("r3"), count=3, joined=(four,)
        ),
        "joined, of the same given size": topology(
            sources=(scene.topic,), repartition=scene.named("r4"), count=4, joined=(four, again)
        ),
        "sources of one size": topology(sources=(four, again), joined=(again,)),
        "sources of two sizes": topology(sources=(scene.topic, four), joined=(four,)),
        "an internal topic of another size": topology(sources=(scene.topic,), store=four),
    }
    for number, (what, wanted) in enumerate(cases.items()):
        scene.group = f"group-{scene.name}-{number}"
        scene.base = 0
        one = Member(scene, "one")
        answer = await one.join(wanted, f"joins: {what}")
        if [status.status_code for status in answer.status] == [MISSING_INTERNAL]:
            await one.until(f"has its topics: {what}")
        await one.beat(f"settles: {what}")
        await scene.describe_group(what)
        await one.leave()


async def rebalances(scene: StreamsScene) -> None:
    """Members of two processes come and go; tasks move when they are given up."""
    await scene.begin(partitions=4)
    wanted = topology(sources=(scene.topic,), store=scene.named("changelog"))
    one, two = Member(scene, "one"), Member(scene, "two")
    await one.join(wanted)
    await one.until("has its topics")
    await settle(one)
    await two.join(wanted)
    await scene.describe_group("two has to wait")
    await two.beat("waits")
    await one.beat("learns of it")
    held = one.owned
    await one.beat("has not given up", active_tasks=None, standby_tasks=None, warmup_tasks=None)
    one.owned = held
    await one.beat("has given up")
    await two.beat("gets them")
    await settle(one, two)
    await scene.describe_group("stable")
    late = one.epoch - 1
    await one.beat("repeats the last epoch", member_epoch=late)
    await one.beat(
        "repeats it without tasks",
        member_epoch=late,
        active_tasks=None,
        standby_tasks=None,
        warmup_tasks=None,
    )
    await two.join(wanted, "joins again")
    await settle(one, two)
    await two.beat("has another rack", rack_id="r")
    await settle(one, two)
    await two.leave()
    await settle(one)
    await scene.describe_group("one is left")
    await one.join(topology(epoch=0, sources=(scene.topic,), store=scene.named("changelog")))
    await one.leave()
    await scene.describe_group("empty")
    await one.join(wanted, "comes back")
    await settle(one)


async def standbys(scene: StreamsScene) -> None:
    """Copies of state: one for each task, on another process; settings that change."""
    await scene.begin(partitions=2, streams_num_standby_replicas="1")
    wanted = topology(sources=(scene.topic,), store=scene.named("changelog"))
    one, two = Member(scene, "one"), Member(scene, "two")
    await one.join(wanted)
    await one.until("has its topics")
    await settle(one)
    await two.join(wanted)
    await settle(one, two, one, two)
    await scene.describe_group("a copy each")
    await scene.set(streams_num_standby_replicas="0")
    await settle(one, two)
    await scene.describe_group("no copies")
    await scene.set(streams_num_standby_replicas="2")
    await settle(one, two)
    await two.leave()
    await settle(one)
    await scene.describe_group("one process")


async def endpoints(scene: StreamsScene) -> None:
    """Interactive queries: which endpoint has which partition; the end of an application."""
    await scene.begin(partitions=2)
    wanted = topology(sources=(scene.topic,))
    one, two = Member(scene, "one"), Member(scene, "two")
    await one.join(
        wanted,
        user_endpoint=streams.Endpoint(host="one.example", port=9001),
        client_tags=[streams.KeyValue(key="zone", value="a")],
    )
    await settle(one)
    await two.join(wanted, user_endpoint=streams.Endpoint(host="two.example", port=65535))
    await settle(one, two)
    await one.beat("knows an old epoch", endpoint_information_epoch=99)
    await scene.describe_group("endpoints")
    await two.beat("asks for the end", shutdown_application=True)
    await one.beat("hears of the end")
    await two.leave()
    await one.beat("still")
    await one.leave()
    await one.join(wanted, "begins again")


async def other_protocols(scene: StreamsScene) -> None:
    """Requests of other protocols about a streams group, and the other way round."""
    await scene.begin(partitions=2)
    wanted = topology(sources=(scene.topic,))
    one = Member(scene, "one")
    await one.join(wanted)
    await settle(one)
    classic = JoinGroupRequest(
        group_id=scene.group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[ProtocolMetadata(name="range", metadata=b"")],
    )
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=scene.group,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[scene.topic],
        topic_partitions=[],
    )

    def commit(member: str, epoch: int, topic: str = "", index: int = 0) -> OffsetCommitRequest:
        part = OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
        named = OffsetCommitRequestTopic(name=topic or scene.topic, partitions=[part])
        return OffsetCommitRequest(
            group_id=scene.group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[named],
        )

    await scene.ask("join, classic", classic, 5)
    await scene.ask("heartbeat, consumer", consumer, 1)
    await scene.ask("describe, classic", DescribeGroupsRequest(groups=[scene.group]), 6)
    asked = ConsumerGroupDescribeRequest(group_ids=[scene.group])
    await scene.ask("describe, consumer", asked, 1)
    await scene.ask("list", ListGroupsRequest(types_filter=["streams"]), 5)
    await scene.ask("commit", commit("one", one.epoch), 9)
    await scene.ask("commit, old request", commit("one", one.epoch), 8)
    await scene.ask("commit, ahead", commit("one", one.epoch + 1), 9)
    await scene.ask("commit, behind", commit("one", 1), 9)
    await scene.ask("commit, other topic", commit("one", 1, scene.named("no")), 9)
    await scene.ask("commit, other member", commit("two", one.epoch), 9)
    await scene.ask("commit, no member", commit("", -1), 9)
    for member, epoch in (("one", one.epoch), ("one", 1), ("two", one.epoch), (None, -1)):
        group = OffsetFetchRequestGroup(
            group_id=scene.group, member_id=member, member_epoch=epoch, topics=None
        )
        await scene.ask(f"fetch {member} {epoch == 1}", OffsetFetchRequest(groups=[group]), 9)
    await scene.ask("delete offsets", OffsetDeleteRequest(group_id=scene.group, topics=[]), 0)
    await scene.ask("delete", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    await one.leave()
    await scene.ask("commit to the empty group", commit("", -1), 9)
    await scene.ask("describe, empty", DescribeGroupsRequest(groups=[scene.group]), 6)
    await scene.ask("heartbeat of a consumer, empty", consumer, 1)
    await scene.ask("delete, empty", DeleteGroupsRequest(groups_names=[scene.group]), 2)
    await scene.describe_group("deleted")
    await scene.ask("commit makes a classic group", commit("", -1), 9)
    await one.join(wanted, "turns it into a streams group")
    await scene.describe_group("a streams group")
    group = OffsetFetchRequestGroup(group_id=scene.group, topics=None)
    await scene.ask("its offsets", OffsetFetchRequest(groups=[group]), 9)


CHAPTERS: Final[tuple[Callable[[StreamsScene], Awaitable[None]], ...]] = (
    refusals,
    topics,
    partitions,
    rebalances,
    standbys,
    endpoints,
    other_protocols,
)


async def walk(scene: StreamsScene, seed: int, steps: int) -> None:
    """Three members come, continue, repeat themselves and leave, at random."""
    dice = random.Random(seed)
    await scene.begin(partitions=6)
    wanted = topology(
        sources=(scene.topic,),
        repartition=scene.named("repartition") if dice.random() < 0.5 else "",
        store=scene.named("changelog"),
    )
    process = "process" if dice.random() < 0.5 else ""
    members = [Member(scene, f"member-{number}", process) for number in range(3)]
    joined = {members[0].name}
    await members[0].join(wanted)
    await members[0].until("has its topics")
    for _ in range(steps):
        member = dice.choice(members)
        if member.name not in joined:
            await member.join(wanted)
            joined.add(member.name)
            continue
        step = dice.random()
        if step < 0.7:
            await member.beat()
        elif step < 0.78:
            none = {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None}
            await member.beat("does not say", **none)
        elif step < 0.84:
            await member.beat("is behind", member_epoch=max(member.epoch - 1, 1))
        elif step < 0.92:
            await member.join(wanted, "joins again")
        else:
            await member.leave()
            joined.discard(member.name)
    await scene.describe_group("in the end")


@asynccontextmanager
async def _scene(bootstrap: str, name: str) -> AsyncIterator[StreamsScene]:
    host, _, port = bootstrap.rpartition(":")
    scene = StreamsScene(host, int(port), name)
    try:
        yield scene
    finally:
        await scene.close()


async def read_chapter(
    bootstrap: str, chapter: Callable[[StreamsScene], Awaitable[None]]
) -> list[Line]:
    """The lines of a chapter."""
    async with _scene(bootstrap, f"chapter-{chapter.__name__}") as scene:
        await chapter(scene)
        return scene.lines


async def read_walk(bootstrap: str, seed: int, steps: int) -> list[Line]:
    """The lines of a random walk."""
    async with _scene(bootstrap, f"walk-{seed}") as scene:
        await walk(scene, seed, steps)
        return scene.lines
