"""SaslAuthenticate (key 36, versions 0-2): the tokens of a SASL exchange.

Source: KIP-152, KIP-368; Kafka `SaslServerAuthenticator.handleSaslToken`, and
`KafkaApis.handleSaslAuthenticateRequest` where there is nothing to authenticate.
"""

from typing import Any

from broker.requests.authentication import authenticate, refuse
from broker.requests.context import Context, RequestContext
from broker.security.mechanism import AuthenticationFailed
from protocol.api import sasl_authenticate as api
from protocol.error_codes import ErrorCode
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.SaslAuthenticateRequest
) -> Steps[Any]:
    """Answer with the server's next token, or refuse and close."""
    session = request.session
    sasl = session.sasl
    if sasl is None or sasl.exchange is None:
        return api.SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message=f"Listener {session.listener} asks for no authentication."
            if sasl is None
            else "SaslAuthenticate request received after successful authentication",
        )
    try:
        result = yield from authenticate(context, session, bytes(message.auth_bytes))
    except AuthenticationFailed as error:
        answer = api.SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message=sasl.failure_text(error),
        )
        return refuse(context, session, error, answer)
    return api.SaslAuthenticateResponse(
        auth_bytes=result.token, session_lifetime_ms=result.session_lifetime_ms
    )
