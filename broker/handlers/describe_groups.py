"""DescribeGroups (key 15, versions 0-6): state and members of groups.

An unknown group is "Dead" with no error; from v6 on it is GROUP_ID_NOT_FOUND. Members' metadata is
shown only while a generation is stable, because only then is a protocol chosen.

Source: Kafka `GroupMetadataManager.describeGroups`, `ClassicGroup.describe`.
"""

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.values import GroupState
from broker.requests.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from broker.requests.context import Context, RequestContext
from broker.requests.described_groups import absence
from protocol.api import describe_groups as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps

_NOT_FOUND_SINCE = 6


def handle(
    context: Context, request: RequestContext, message: api.DescribeGroupsRequest
) -> Steps[api.DescribeGroupsResponse]:
    """Each requested group, in the order of the request."""
    operations = GROUP_OPERATIONS if message.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in message.groups:
        group = context.groups.classic_groups.get(group_id)
        if group is None:
            described = _unknown(context, group_id, request.api_version)
        else:
            described = _describe(group)
        is_described = described.error_code == ErrorCode.NONE
        described.authorized_operations = operations if is_described else NOT_ASKED
        groups.append(described)
        yield None
    return api.DescribeGroupsResponse(groups=groups)


def _unknown(context: Context, group_id: str, version: int) -> api.DescribedGroup:
    described = api.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _NOT_FOUND_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = absence(context, group_id, "classic")
    return described


def _describe(group: ClassicGroup) -> api.DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return api.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            api.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=f"/{member.client_host}",
                member_metadata=member.subscription if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.snapshot().members
        ],
    )
