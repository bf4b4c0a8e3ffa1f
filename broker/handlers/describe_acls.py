"""DescribeAcls (key 29, versions 0-3): there is no authorizer, and that is the answer.

User interfaces look for SECURITY_DISABLED to hide their access page.

Differs from Kafka: 0 for a type, operation or permission, here and in the other two requests, is
answered like any other number; there it closes the connection.

Source: Kafka `AclApis.handleDescribeAcls` without an authorizer; KIP-140.
"""

from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Answer that this broker keeps no access rules."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
