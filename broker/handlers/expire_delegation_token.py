"""ExpireDelegationToken (key 40, versions 0-2): a token of the client's expires earlier, or now.

Source: KIP-48; Kafka `DelegationTokenControlManager.expireDelegationToken`.
"""

from broker.handlers.renew_delegation_token import change_expiry
from broker.requests.context import Context, RequestContext
from broker.security.tokens import Token
from protocol.api import expire_delegation_token as api


async def handle(
    context: Context, request: RequestContext, message: api.ExpireDelegationTokenRequest
) -> api.ExpireDelegationTokenResponse:
    """When the token expires now; at once if the period is negative."""

    def expire(now_ms: int) -> Token:
        secret, period_ms = bytes(message.hmac), message.expiry_time_period_ms
        by = request.session.principal
        return context.security.tokens.expire(secret, period_ms, by=by, now_ms=now_ms)

    what = "removed" if message.expiry_time_period_ms < 0 else "set the expiry of"
    code, expires_ms = await change_expiry(context, request, expire, what)
    return api.ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)
