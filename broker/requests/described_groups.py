"""What the descriptions of consumer, share and streams groups have in common."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from broker.groups.consumer.values import Partitions, indexes_by_key
from broker.requests.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker.requests.context import Context, Handler, RequestContext
from protocol.error_codes import ErrorCode
from protocol.structs import NamedAssignment, NamedPartitions
from storage.disk.steps import Steps

_Group = TypeVar("_Group")


def assignment(context: Context, partitions: Partitions) -> NamedAssignment:
    """The partitions by topic; a topic deleted meanwhile has no name and is left out."""
    find = context.topics.find_by_id
    return NamedAssignment(
        topic_partitions=[
            NamedPartitions(topic_id=topic_id, topic_name=topic.name, partitions=indexes)
            for topic_id, indexes in indexes_by_key(partitions).items()
            if (topic := find(topic_id)) is not None
        ]
    )


def describing(
    response: Callable[..., Any],
    blank: Callable[..., Any],
    groups: Callable[[Context], Mapping[str, _Group]],
    describe: Callable[[Context, _Group], Any],
    *,
    group_type: str,
) -> Handler:
    """A handler that describes each requested group, or says why not, in the order of the request.

    `groups` are those of the type; `response` and `blank` are the classes of the answer and of a
    group in it.
    """

    def handle(context: Context, request: RequestContext, message: Any) -> Steps[Any]:
        operations = GROUP_OPERATIONS if message.include_authorized_operations else NOT_ASKED
        found = []
        for group_id in message.group_ids:
            group = groups(context).get(group_id)
            if not group_id:
                described = blank(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
            elif group is None:
                described = blank(
                    group_id=group_id,
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=absence(context, group_id, group_type),
                )
            else:
                described = describe(context, group)
                described.authorized_operations = operations
            found.append(described)
            yield None
        return response(groups=found)

    return handle


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
