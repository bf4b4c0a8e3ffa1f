"""RenewDelegationToken (key 39, versions 0-2): a token of the client's expires later.

The owner of a token and its renewers may do this; no other right counts. The change is on disk when
the answer leaves.

Source: KIP-48; Kafka `DelegationTokenControlManager.renewDelegationToken`.
"""

from collections.abc import Callable

from broker.requests.context import Context, RequestContext
from broker.security.tokens import NO_TIME, Token, TokenRefused
from protocol.api import renew_delegation_token as api
from protocol.error_codes import ErrorCode


async def handle(
    context: Context, request: RequestContext, message: api.RenewDelegationTokenRequest
) -> api.RenewDelegationTokenResponse:
    """When the token expires now."""

    def renew(now_ms: int) -> Token:
        secret, period_ms = bytes(message.hmac), message.renew_period_ms
        by = request.session.principal
        return context.security.tokens.renew(secret, period_ms, by=by, now_ms=now_ms)

    code, expires_ms = await change_expiry(context, request, renew, "renewed")
    return api.RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)


async def change_expiry(
    context: Context, request: RequestContext, change: Callable[[int], Token], what: str
) -> tuple[ErrorCode, int]:
    """The error code of `change`, which gets the wall-clock time, and when its token expires."""
    if not request.session.may_handle_tokens:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIME
    try:
        token = await context.topics.alone(lambda: change(context.clock.wall_ms()))
    except TokenRefused as refused:
        return refused.code, 0
    text = f"{what} the delegation token {token.id} of {token.owner}"
    context.security.audit.changed(request, text)
    return ErrorCode.NONE, token.expires_ms
