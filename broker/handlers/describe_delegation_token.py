"""DescribeDelegationToken (key 41, versions 0-3): tokens and their secrets.

A client sees the tokens that it owns, may renew or has asked for. It sees another one with DESCRIBE
on the token or DESCRIBE_TOKENS on its owner. What it may not see is left out.

Source: KIP-48, KIP-373; Kafka `DelegationTokenManager.filterToken`.
"""

from broker.principal import Principal
from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.security.tokens import Token
from protocol.acl import Operation, ResourceType
from protocol.api import describe_delegation_token as api
from protocol.error_codes import ErrorCode
from protocol.structs import TokenPrincipal


def handle(
    context: Context, request: RequestContext, message: api.DescribeDelegationTokenRequest
) -> api.DescribeDelegationTokenResponse:
    """The tokens of the named principals, or of all."""
    tokens = context.security.tokens
    if not request.session.may_handle_tokens:
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return api.DescribeDelegationTokenResponse(error_code=code)
    if not tokens.are_enabled:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return api.DescribeDelegationTokenResponse(error_code=code)
    owners = None
    if message.owners is not None:
        owners = [Principal(owner.principal_type, owner.principal_name) for owner in message.owners]
    check = Check(context, request)

    def is_shown(token: Token) -> bool:
        if owners is not None and not any(map(token.is_known_to, owners)):
            return False
        return (
            token.is_known_to(request.session.principal)
            or check.sees(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
            or check.sees(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        )

    shown = filter(is_shown, tokens)
    return api.DescribeDelegationTokenResponse(
        tokens=[_described(token, tokens.secret_of(token.id)) for token in shown]
    )


def _described(token: Token, secret: bytes) -> api.DescribedDelegationToken:
    return api.DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=secret,
        renewers=[
            TokenPrincipal(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
