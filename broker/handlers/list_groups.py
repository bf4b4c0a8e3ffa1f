"""ListGroups (key 16, versions 0-5): all groups that this broker coordinates.

Filters ignore case, as people type them.

Source: Kafka `GroupMetadataManager.listGroups`; KIP-518, KIP-848.
"""

from collections.abc import Iterator

from broker.groups.streams.values import STREAMS
from broker.requests.context import Context, RequestContext
from protocol.api import list_groups as api
from protocol.stored.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from storage.disk.steps import Steps

_CLASSIC = "classic"
_CONSUMER = "consumer"
_SHARE = "share"


def handle(
    context: Context, request: RequestContext, message: api.ListGroupsRequest
) -> Steps[api.ListGroupsResponse]:
    """Every group that passes the filters."""
    states = {state.lower() for state in message.states_filter}
    types = {group_type.lower() for group_type in message.types_filter}
    response = api.ListGroupsResponse()
    for group in _all(context):
        if (not states or group.group_state.lower() in states) and (
            not types or group.group_type in types
        ):
            response.groups.append(group)
        yield None
    return response


def _all(context: Context) -> Iterator[api.ListedGroup]:
    """The groups that exist when this begins, each in its state when it is reached."""
    for group in list(context.groups.classic_groups.values()):
        yield api.ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_CLASSIC,
        )
    of_types = (
        (_CONSUMER, CONSUMER_PROTOCOL_TYPE, list(context.groups.consumer_groups.values())),
        (_SHARE, _SHARE, list(context.groups.share_groups.values())),
        (STREAMS, STREAMS, list(context.groups.streams_groups.values())),
    )
    for group_type, protocol_type, groups in of_types:
        for each in groups:
            yield api.ListedGroup(
                group_id=each.group_id,
                protocol_type=protocol_type,
                group_state=each.state.value,
                group_type=group_type,
            )
