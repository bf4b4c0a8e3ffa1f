"""DeleteAcls (key 31, versions 0-3): take the access rules out of force that filters select.

A rule that two filters select stands in the result of both.

Source: Kafka `AclControlManager.deleteAcls`; KIP-140.
"""

from broker.handlers.describe_acls import filter_of
from broker.requests.access import Check
from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from protocol.acl import Acl, Operation
from protocol.api import delete_acls as api
from protocol.error_codes import ErrorCode


async def handle(
    context: Context, request: RequestContext, message: api.DeleteAclsRequest
) -> api.DeleteAclsResponse:
    """The rules that each filter removed, in order of the filters."""
    if context.security.access is None:
        return _refused(message, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    if not Check(context, request).cluster(Operation.ALTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return _refused(message, code, "Cluster authorization failed.")
    gone: list[Acl] = []
    answer = await context.topics.alone(lambda: _delete(context, message, gone))
    for acl in gone:
        context.security.audit.changed(request, f"removed the rule {acl}")
    return answer


def _delete(
    context: Context, message: api.DeleteAclsRequest, gone: list[Acl]
) -> api.DeleteAclsResponse:
    """Remove the selected rules, which are added to `gone`."""
    access = context.security.access
    assert access is not None
    results = []
    for each in message.filters:
        chosen = filter_of(each)
        complaint = chosen.complaint()
        if complaint is not None:
            results.append(
                api.DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message=complaint
                )
            )
            continue
        selected = access.select(chosen)
        gone += selected
        results.append(
            api.DeleteAclsFilterResult(
                error_message=None, matching_acls=[_matching(acl) for acl in selected]
            )
        )
    context.security.remove_acls(gone)
    return api.DeleteAclsResponse(filter_results=results)


def _matching(acl: Acl) -> api.DeleteAclsMatchingAcl:
    return api.DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
        error_message=None,
    )


def _refused(message: api.DeleteAclsRequest, code: ErrorCode, text: str) -> api.DeleteAclsResponse:
    return api.DeleteAclsResponse(
        filter_results=[
            api.DeleteAclsFilterResult(error_code=code, error_message=text) for _ in message.filters
        ]
    )
