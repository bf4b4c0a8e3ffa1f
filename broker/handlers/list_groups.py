"""ListGroups (key 16, versions 0-5): the groups that this broker coordinates, all of them.

Versions: v1 throttle time, v3 flexible, v4 states, to show and to filter by, v5 group types
likewise. Filters ignore case, as people type them.

Source: Kafka `GroupMetadataManager.listGroups`; KIP-518, KIP-848.
"""

from broker.context import Context, RequestContext
from protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

GROUP_TYPE = "classic"


def handle(
    context: Context, request: RequestContext, message: ListGroupsRequest
) -> ListGroupsResponse:
    """Every group that passes the filters."""
    states = {state.lower() for state in message.states_filter}
    types = {group_type.lower() for group_type in message.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=GROUP_TYPE,
            )
            for group in context.groups.groups.values()
            if (not states or group.state.value.lower() in states)
            and (not types or GROUP_TYPE in types)
        ]
    )
