"""SaslHandshake (key 17, versions 0-1): the client chooses a SASL mechanism.

Kafka advertises it on every listener and answers ILLEGAL_SASL_STATE where there is nothing to
authenticate.

Source: KIP-43, KIP-152; Kafka `SaslServerAuthenticator.handleHandshakeRequest`,
`KafkaApis.handleSaslHandshakeRequest`.
"""

from typing import Any

from broker.errors import ConnectionMustClose
from broker.requests.authentication import refuse
from broker.requests.context import Context, RequestContext
from broker.security.mechanism import AuthenticationFailed
from protocol.api import sasl_handshake as api
from protocol.error_codes import ErrorCode


def handle(context: Context, request: RequestContext, message: api.SaslHandshakeRequest) -> Any:
    """Begin an exchange with the mechanism, or refuse it and name those on offer."""
    session = request.session
    if session.sasl is None:
        return api.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    session.client_id = request.client_id or ""
    try:
        code = session.sasl.handshake(
            message.mechanism, request.api_version, context.clock.monotonic_ms()
        )
    except AuthenticationFailed as error:
        last: Any = ConnectionMustClose(f"authentication failed: {error.reason}")
        if message.mechanism in session.sasl.mechanisms:
            # As Kafka has it: the answer is good, but nothing is served after it.
            last = api.SaslHandshakeResponse(mechanisms=session.sasl.mechanisms)
        return refuse(context, session, error, last)
    answer = api.SaslHandshakeResponse(error_code=code, mechanisms=session.sasl.mechanisms)
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return refuse(context, session, AuthenticationFailed("unknown-mechanism"), answer)
    return answer
