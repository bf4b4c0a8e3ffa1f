"""DescribeAcls (key 29, versions 0-3): the access rules that a filter selects.

Without an authorizer the answer is SECURITY_DISABLED; user interfaces hide their page then.

Differs from Kafka: 0 for a type, operation or permission, here and in the other two requests, is
INVALID_REQUEST; there it closes the connection.

Source: Kafka `AclApis.handleDescribeAcls`; KIP-140, KIP-290.
"""

from broker.requests.access import Check
from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from protocol.acl import AclFilter, Operation
from protocol.api.delete_acls import DeleteAclsFilter
from protocol.api.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.error_codes import ErrorCode


def filter_of(message: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that a request carries."""
    return AclFilter(
        resource_type=message.resource_type_filter,
        name=message.resource_name_filter,
        pattern=message.pattern_type_filter,
        principal=message.principal_filter,
        host=message.host_filter,
        operation=message.operation,
        permission=message.permission_type,
    )


def handle(
    context: Context, request: RequestContext, message: DescribeAclsRequest
) -> DescribeAclsResponse:
    """The selected rules, grouped by resource."""
    access = context.security.access
    if access is None:
        return _refused(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if not Check(context, request).cluster(Operation.DESCRIBE):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    chosen = filter_of(message)
    complaint = chosen.complaint()
    if complaint is not None:
        return _refused(ErrorCode.INVALID_REQUEST, complaint)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in access.select(chosen):
        resource = resources.setdefault(
            (acl.resource_type, acl.name, acl.pattern),
            DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                acls=[],
            ),
        )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))


def _refused(code: ErrorCode, message: str) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)
