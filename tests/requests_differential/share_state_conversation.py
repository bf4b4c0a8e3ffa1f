"""A conversation about the stored states of a share group, by the requests of brokers (KIP-932).

Read `share_conversation` first: this is one more of its chapters.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Final

from protocol.api import delete_share_group_state as deleting
from protocol.api import initialize_share_group_state as initializing
from protocol.api import read_share_group_state as reading
from protocol.api import read_share_group_state_summary as summing
from protocol.api import write_share_group_state as writing
from protocol.api.find_coordinator import FindCoordinatorRequest
from protocol.error_codes import ErrorCode
from protocol.structs import StatesToRead, StateToRead
from tests.requests_differential.share_conversation import STEP_S, Scene
from tests.support.share_group import state_to_write

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
_LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class States:
    """The requests about partition 0 of the scene's topic; each answer is noted."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._topic_id = scene.topic_id

    async def _ask(self, what: str, request: Any, topic: Any, part: Any, version: int) -> Any:
        asked = topic(topic_id=self._topic_id, partitions=[part])
        message = request(group_id=self._scene.group, topics=[asked])
        return await self._scene.ask(what, message, version)

    def of_no_topic(self) -> States:
        """The same for a topic that does not exist."""
        other = States(self._scene)
        other._topic_id = bytes(range(16))
        return other

    async def initialize(self, what: str, epoch: int, start: int = -1, partition: int = 0) -> None:
        part = initializing.PartitionData(
            partition=partition, state_epoch=epoch, start_offset=start
        )
        request = initializing.InitializeShareGroupStateRequest
        await self._ask(f"{what}: initialize", request, initializing.InitializeStateData, part, 0)

    async def read(self, what: str, leader_epoch: int = -1, partition: int = 0) -> None:
        part = StateToRead(partition=partition, leader_epoch=leader_epoch)
        request = reading.ReadShareGroupStateRequest
        await self._ask(f"{what}: read", request, StatesToRead, part, 0)

    async def write(
        self, what: str, *batches: Sequence[int], version: int = 1, **fields: int
    ) -> None:
        part = state_to_write(batches, **fields)
        request = writing.WriteShareGroupStateRequest
        await self._ask(f"{what}: write", request, writing.WriteStateData, part, version)

    async def delete(self, what: str, partition: int = 0) -> None:
        part = deleting.PartitionData(partition=partition)
        request = deleting.DeleteShareGroupStateRequest
        await self._ask(f"{what}: delete", request, deleting.DeleteStateData, part, 0)

    async def summary(self, what: str, version: int = 1, partition: int = 0) -> None:
        """Also the leader epoch, which other answers of a scene leave out."""
        part = StateToRead(partition=partition)
        request, topic = summing.ReadShareGroupStateSummaryRequest, StatesToRead
        answer = await self._ask(f"{what}: summary", request, topic, part, version)
        found = answer.results[0].partitions[0]
        self._scene.note(f"{what}: leader epoch", found.leader_epoch)

    async def are_kept(self) -> None:
        """Wait until the broker keeps states: Kafka creates their topic when it is asked for it."""
        client = await self._scene.client()
        topic = base64.urlsafe_b64encode(self._topic_id).decode().rstrip("=")
        key = f"{self._scene.group}:{topic}:0"
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
        await client.request(request, 6)
        part = StateToRead(partition=0, leader_epoch=-1)
        asked = StatesToRead(topic_id=self._topic_id, partitions=[part])
        read = reading.ReadShareGroupStateRequest(group_id=self._scene.group, topics=[asked])
        while True:
            answer = await client.request(read, 0)
            if answer.results[0].partitions[0].error_code not in _LOADING:
                return
            await asyncio.sleep(STEP_S)


async def states(scene: Scene) -> None:
    """States that are begun, written, read and deleted, and what is refused."""
    await scene.begin()
    asked = States(scene)
    await asked.are_kept()
    await _refusals_before_it_is_begun(asked)
    await asked.initialize("begun", 3, 10)
    await asked.summary("begun")
    await asked.read("begun")
    await asked.write(
        "two ranges", (10, 14, ACKNOWLEDGED, 1), (15, 19, AVAILABLE, 1), start=10, done=5
    )
    await asked.read("two ranges")
    await asked.write("over them", (12, 17, ARCHIVED, 2), (18, 25, AVAILABLE, 1), done=8)
    await asked.read("over them")
    await asked.write("an older count", (12, 30, ACKNOWLEDGED, 1), start=11, version=0)
    await asked.read("an older count")
    await asked.summary("an older count")
    await asked.summary("an older count", version=0)
    await asked.write("start moves back", start=4, done=2)
    await asked.read("start moves back")
    await asked.read("leader", leader_epoch=7)
    await asked.summary("leader")
    for what, leader, epoch in (("both", 6, 2), ("state", 7, 2), ("none", 9, 9), ("any", -1, -1)):
        await asked.write(f"fenced {what}", leader_epoch=leader, state_epoch=epoch, done=1)
        await asked.summary(f"fenced {what}")
    await asked.read("fenced", leader_epoch=6)
    await asked.initialize("fenced", 2)
    await asked.initialize("same epoch", 3, 1)
    await asked.summary("same epoch")
    await asked.write("former leader", leader_epoch=6)
    await asked.initialize("no epoch", -1)
    await asked.summary("no epoch")
    await asked.write("former state", state_epoch=2)
    await asked.initialize("next epoch", 8, 0)
    await asked.read("next epoch")
    await asked.write("no topic that is there", leader_epoch=1)
    await asked.write("refused", (5, 4, AVAILABLE, 1))
    await asked.write("refused", (5, 6, 1, 1))
    await asked.write("refused", start=-2)
    await asked.delete("begun")
    await asked.read("deleted")
    await asked.summary("deleted")
    await asked.delete("deleted")
    await asked.initialize("begun again", 1)
    await asked.summary("begun again")


async def _refusals_before_it_is_begun(asked: States) -> None:
    none = asked.of_no_topic()
    await asked.summary("not begun")
    await asked.read("not begun")
    await asked.write("not begun")
    await asked.delete("not begun")
    await none.initialize("no topic", 1)
    await none.read("no topic")
    await none.write("no topic")
    await none.delete("no topic")
    await none.summary("no topic")
    for partition in (-1, 9):
        await asked.initialize("no partition", 1, partition=partition)
        await asked.read("no partition", partition=partition)
        await asked.write("no partition", partition=partition)
        await asked.delete("no partition", partition)
        await asked.summary("no partition", partition=partition)
