"""What the descriptions of consumer, share and streams groups have in common."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from broker.groups.consumer.values import Partitions, indexes_by_key
from broker.requests.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker.requests.context import Context
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

if TYPE_CHECKING:
    from protocol.api import consumer_group_describe, share_group_describe, streams_group_describe

    Request = (
        consumer_group_describe.ConsumerGroupDescribeRequest
        | share_group_describe.ShareGroupDescribeRequest
        | streams_group_describe.StreamsGroupDescribeRequest
    )

_Group = TypeVar("_Group")
_Described = TypeVar(
    "_Described",
    "consumer_group_describe.DescribedGroup",
    "share_group_describe.DescribedGroup",
    "streams_group_describe.DescribedGroup",
)


def assignment(api: Any, context: Context, partitions: Partitions) -> Any:
    """An Assignment of `api`; a topic deleted meanwhile has no name and is left out."""
    find = context.topics.find_by_id
    return api.Assignment(
        topic_partitions=[
            api.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=indexes)
            for topic_id, indexes in indexes_by_key(partitions).items()
            if (topic := find(topic_id)) is not None
        ]
    )


def described_groups(
    context: Context,
    message: "Request",
    groups: Mapping[str, _Group],
    describe: Callable[[_Group], _Described],
    *,
    blank: type[_Described],
    group_type: str,
) -> Steps[list[_Described]]:
    """Each requested group, in the order of the request: as `describe` does, or its error.

    `groups` are those of the type that the request is for; `blank` is the class of the answer.
    """
    operations = GROUP_OPERATIONS if message.include_authorized_operations else NOT_ASKED
    found: list[_Described] = []
    for group_id in message.group_ids:
        group = groups.get(group_id)
        if not group_id:
            described = blank(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        elif group is None:
            described = blank(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=absence(context, group_id, group_type),
            )
        else:
            described = describe(group)
            described.authorized_operations = operations
        found.append(described)
        yield None
    return found


def absence(context: Context, group_id: str, group_type: str) -> str:
    """Why no group of this type has the name: it is of another type, or does not exist."""
    groups = context.groups
    every = (
        groups.classic_groups,
        groups.consumer_groups,
        groups.share_groups,
        groups.streams_groups,
    )
    if any(group_id in each for each in every):
        return f"Group {group_id} is not a {group_type} group."
    return f"Group {group_id} not found."
