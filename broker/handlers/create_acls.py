"""CreateAcls (key 30, versions 0-3): put access rules in force.

Each rule has its own result; the good ones are written together, and are on disk when the answer
leaves. A rule that is in force already is no error.

Differs from Kafka: a rule with ANY or MATCH, which are for filters, is INVALID_REQUEST; Kafka
answers UNKNOWN_SERVER_ERROR.

Source: Kafka `AclControlManager.createAcls`; KIP-140, KIP-290.
"""

from broker.requests.access import Check
from broker.requests.authorized_operations import NO_AUTHORIZER
from broker.requests.context import Context, RequestContext
from broker.security.acls import complaint_about
from protocol.acl import Acl, Operation
from protocol.api import create_acls as api
from protocol.error_codes import ErrorCode

CHANGES_MAX = 10_000
"""Rules that one request may change."""


async def handle(
    context: Context, request: RequestContext, message: api.CreateAclsRequest
) -> api.CreateAclsResponse:
    """The result of each rule, in order."""
    creations = message.creations
    refusal: tuple[int, str] | None = None
    if context.security.access is None:
        refusal = ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    elif not Check(context, request).cluster(Operation.ALTER):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    elif len(creations) > CHANGES_MAX:
        refusal = (
            ErrorCode.INVALID_REQUEST,
            f"{len(creations)} rules are in the request; send at most {CHANGES_MAX}",
        )
    if refusal is not None:
        return api.CreateAclsResponse(
            results=[
                api.AclCreationResult(error_code=refusal[0], error_message=refusal[1])
                for _ in creations
            ]
        )
    acls = [_acl(creation) for creation in creations]
    complaints = [complaint_about(acl) for acl in acls]
    good = [acl for acl, complaint in zip(acls, complaints, strict=True) if complaint is None]
    await context.topics.alone(lambda: context.security.add_acls(good))
    for acl in good:
        context.security.audit.changed(request, f"added the rule {acl}")
    return api.CreateAclsResponse(
        results=[
            api.AclCreationResult()
            if complaint is None
            else api.AclCreationResult(
                error_code=ErrorCode.INVALID_REQUEST, error_message=complaint
            )
            for complaint in complaints
        ]
    )


def _acl(creation: api.AclCreation) -> Acl:
    return Acl(
        resource_type=creation.resource_type,
        name=creation.resource_name,
        pattern=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )
