"""CreateDelegationToken (key 38, versions 0-3): a token for the client, or for another owner.

The token is on disk when the answer leaves. A client that logged in with a token, or with nothing
at all, gets none.

Source: KIP-48, KIP-373; Kafka `KafkaApis.handleCreateTokenRequest`.
"""

from broker.principal import USER_TYPE, Principal
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.security.tokens import NO_TIME, TokenRefused
from protocol.acl import Operation, ResourceType
from protocol.api import create_delegation_token as api
from protocol.error_codes import ErrorCode


async def handle(
    context: Context, request: RequestContext, message: api.CreateDelegationTokenRequest
) -> api.CreateDelegationTokenResponse:
    """The token with its secret, or why there is none."""
    requester = owner = request.session.principal
    if message.owner_principal_name:
        owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
    response = api.CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    renewers = [
        Principal(renewer.principal_type, renewer.principal_name) for renewer in message.renewers
    ]
    code = _refusal(context, request, owner, renewers)
    if code:
        response.error_code = code
        response.issue_timestamp_ms = NO_TIME
        response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
        return response
    tokens = context.security.tokens
    try:
        token = await context.topics.alone(
            lambda: tokens.create(
                owner=owner,
                requester=requester,
                renewers=renewers,
                max_lifetime_ms=message.max_lifetime_ms,
                now_ms=context.clock.wall_ms(),
            )
        )
    except TokenRefused as refused:
        response.error_code = refused.code
        return response
    context.security.audit.changed(request, f"made the delegation token {token.id} of {owner}")
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.id
    response.hmac = tokens.secret_of(token.id)
    return response


def _refusal(
    context: Context, request: RequestContext, owner: Principal, renewers: list[Principal]
) -> ErrorCode:
    if not request.session.may_handle_tokens:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if owner != request.session.principal and not Check(context, request).may(
        Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.type != USER_TYPE for renewer in renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE
