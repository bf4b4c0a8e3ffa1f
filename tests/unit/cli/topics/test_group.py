"""Moving a group whose positions outlived a topic, and a group as a document."""

from collections.abc import Iterable
from typing import Any

import pytest

from cli.topics import group
from cli.topics.group_settings import document_of
from cli.topics.moving import Aim, Move
from client.core.groups import GroupAdmin
from client.core.offsets import EARLIEST
from client.descriptions import GroupInfo, GroupMemberInfo
from client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicInfo, TopicPartition

STAYS, GOES = TopicPartition("stays", 0), TopicPartition("goes", 0)


class FakeAdmin:
    """A cluster with one topic, and a group with positions in two."""

    moved: dict[TopicPartition, int] | None = None

    async def describe_group(self, group_id: str) -> GroupInfo:
        return GroupInfo(
            group_id=group_id, state="Empty", protocol_type="", assignor="", members=()
        )

    require_no_members = GroupAdmin.require_no_members

    async def group_offsets(self, _: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {STAYS: OffsetAndMetadata(5), GOES: OffsetAndMetadata(5)}

    async def served_windows(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {}

    async def topics(self, *, internal: bool) -> dict[str, TopicInfo]:
        partitions: Any = {0: None}
        info = TopicInfo(name="stays", topic_id=b"", is_internal=False, partitions=partitions)
        return {"stays": info}

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> Any:
        # A broker is asked for a minute whether a missing partition comes to be.
        assert list(wanted) == [STAYS]
        return {STAYS: OffsetAndTimestamp(0 if wanted[STAYS] == EARLIEST else 9, -1, 0)}

    first_records = list_offsets

    async def alter_group_offsets(self, _: str, positions: dict[TopicPartition, int]) -> None:
        FakeAdmin.moved = positions


async def test_positions_in_a_deleted_topic_are_left_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin: Any = FakeAdmin()
    aim = Aim(place="to the beginning", timestamp=EARLIEST)
    moves = await group._reset(admin, "g", Move(aim=aim, topics=(), execute=True, may_be_new=False))
    assert moves == [(STAYS, 5, 0)]
    assert FakeAdmin.moved == {STAYS: 0}
    assert "they do not exist any more: goes-0" in capsys.readouterr().err


def test_a_group_of_either_kind_has_the_same_keys() -> None:
    member = GroupMemberInfo(
        member_id="m", instance_id=None, client_id="c", client_host="/127.0.0.1",
        partitions=(TopicPartition("t", 1),),
    )  # fmt: skip
    info = GroupInfo(
        group_id="s", state="Stable", protocol_type="share", assignor="simple", members=(member,)
    )
    assert document_of(info, [{"topic": "t"}]) == {
        "group": "s",
        "state": "Stable",
        "protocol_type": "share",
        "assignor": "simple",
        "members": [
            {
                "member_id": "m",
                "instance_id": None,
                "client_id": "c",
                "host": "/127.0.0.1",
                "partitions": [{"topic": "t", "partition": 1}],
            }
        ],
        "positions": [{"topic": "t"}],
    }
