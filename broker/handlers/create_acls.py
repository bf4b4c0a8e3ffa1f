"""CreateAcls (key 30, versions 0-3): refused, there is no authorizer that would apply the rules.

Source: Kafka `AclApis.handleCreateAcls` without an authorizer; KIP-140.
"""

from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from protocol.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: CreateAclsRequest
) -> CreateAclsResponse:
    """Refuse every rule; the answer has one result for each."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in message.creations
        ]
    )
