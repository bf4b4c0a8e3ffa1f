"""DeleteAcls (key 31, versions 0-3): refused, there is no authorizer and so no rule to delete.

Source: Kafka `AclApis.handleDeleteAcls` without an authorizer; KIP-140.
"""

from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from protocol.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Refuse every filter; the answer has one result for each."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
            )
            for _ in message.filters
        ]
    )
