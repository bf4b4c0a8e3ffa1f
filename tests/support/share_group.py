"""A member of a share group on a raw connection: its requests, and the answers' one part."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.api import share_acknowledge, share_fetch, write_share_group_state
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.records.scan import iter_records, scan_entries
from protocol.structs import AcknowledgementBatch, StoredBatch
from tests.support.broker import RawClient

GROUP_RESOURCE = 32
FETCH_VERSION = 2
ACKNOWLEDGE_VERSION = 2


async def set_group(client: RawClient, group_id: str, **settings: str) -> None:
    """Give a group settings of its own; dots are written as underscores."""
    answer = await client.request(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=GROUP_RESOURCE,
                    resource_name=group_id,
                    configs=[
                        AlterableConfig(name=name.replace("_", "."), value=value)
                        for name, value in settings.items()
                    ],
                )
            ]
        ),
        1,
    )
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def state_to_write(
    batches: Sequence[Sequence[int]], *, partition: int = 0, **fields: int
) -> write_share_group_state.PartitionData:
    """What WriteShareGroupState adds to one partition; fields that are not given are -1.

    A batch is its first and last offset, its state of delivery, and how often it was delivered.
    """
    named = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return write_share_group_state.PartitionData(
        partition=partition,
        state_epoch=fields.get("state_epoch", -1),
        leader_epoch=fields.get("leader_epoch", -1),
        start_offset=fields.get("start", -1),
        delivery_complete_count=fields.get("done", -1),
        state_batches=[StoredBatch(**dict(zip(named, each, strict=True))) for each in batches],
    )


@dataclass
class Got:
    """What a fetch brought of one partition."""

    error: int = 0
    acknowledge_error: int = 0
    acquired: list[tuple[int, int, int]] = field(default_factory=list)
    """First and last offset, and how often they were delivered."""

    values: dict[int, bytes] = field(default_factory=dict)
    """The values of the acquired offsets."""


class ShareMember:
    """One member that reads partitions of one topic."""

    def __init__(
        self, client: RawClient, group_id: str, topic_id: bytes, *, name: str = "member-1"
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.topic_id = topic_id
        self.member_id = name
        self.epoch = 0
        self.session_epoch = 0

    async def heartbeat(self, *topics: str, epoch: int | None = None) -> Any:
        """A heartbeat; with names it is a full one."""
        answer = await self.client.request(
            ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=list(topics) or None,
            ),
            1,
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
        return answer

    def request(
        self, partitions: Sequence[int], *, session_epoch: int | None = None, **fields: Any
    ) -> share_fetch.ShareFetchRequest:
        """The next fetch; `acks` are (partition, first, last, types)."""
        acks = fields.pop("acks", ())
        wanted = {index: share_fetch.FetchPartition(partition_index=index) for index in partitions}
        for index, first, last, types in acks:
            batch = AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            part = wanted.setdefault(index, share_fetch.FetchPartition(partition_index=index))
            part.acknowledgement_batches.append(batch)
        defaults: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        return share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if session_epoch is None else session_epoch,
            topics=[
                share_fetch.FetchTopic(topic_id=self.topic_id, partitions=list(wanted.values()))
            ],
            **(defaults | fields),
        )

    async def fetch_whole(self, *partitions: int, **fields: Any) -> Any:
        """Send the next fetch; the whole answer."""
        request = self.request(partitions, **fields)
        answer = await self.client.request(request, FETCH_VERSION)
        if answer.error_code == 0 and request.share_session_epoch >= 0:
            self.session_epoch = request.share_session_epoch + 1
        return answer

    async def fetch(self, *partitions: int, **fields: Any) -> Got:
        """Fetch; what it brought of partition 0."""
        answer = await self.fetch_whole(*(partitions or (0,)), **fields)
        assert answer.error_code == 0, (answer.error_code, answer.error_message)
        return got(answer)

    async def acknowledge(
        self,
        *acks: tuple[int, int, Sequence[int]],
        session_epoch: int | None = None,
        partition: int = 0,
        **fields: Any,
    ) -> Any:
        """Acknowledge (first, last, types); the whole answer."""
        epoch = self.session_epoch if session_epoch is None else session_epoch
        batches = [
            AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks
        ]
        part = share_acknowledge.AcknowledgePartition(
            partition_index=partition, acknowledgement_batches=batches
        )
        answer = await self.client.request(
            share_acknowledge.ShareAcknowledgeRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=epoch,
                topics=[
                    share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[part])
                ],
                **fields,
            ),
            ACKNOWLEDGE_VERSION,
        )
        if answer.error_code == 0 and epoch >= 0:
            self.session_epoch = epoch + 1
        return answer

    async def acked(self, *acks: tuple[int, int, Sequence[int]], **fields: Any) -> int:
        """Acknowledge; the error code of the partition."""
        answer = await self.acknowledge(*acks, **fields)
        assert answer.error_code == 0, answer.error_code
        code: int = answer.responses[0].partitions[0].error_code
        return code


def got(answer: Any, partition: int = 0) -> Got:
    """What an answer has of one partition; nothing if it leaves it out."""
    for topic in answer.responses:
        for part in topic.partitions:
            if part.partition_index == partition:
                acquired = [
                    (each.first_offset, each.last_offset, each.delivery_count)
                    for each in part.acquired_records
                ]
                records = bytes(part.records or b"")
                values = {
                    record.offset: record.value or b""
                    for entry in scan_entries(records)
                    for record in iter_records(records, entry.position)
                    if any(first <= record.offset <= last for first, last, _ in acquired)
                }
                return Got(part.error_code, part.acknowledge_error_code, acquired, values)
    return Got()
