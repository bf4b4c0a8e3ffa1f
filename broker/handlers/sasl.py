"""SaslHandshake (key 17) and SaslAuthenticate (key 36) on a listener without authentication.

Kafka advertises both on every listener and answers ILLEGAL_SASL_STATE where there is nothing to
authenticate; kafkajs looks for key 36 in the list before it connects anywhere.

Source: KIP-43, KIP-152; Kafka `KafkaApis.handleSaslHandshakeRequest`.
"""

from broker.context import Context, RequestContext
from protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.error_codes import ErrorCode


def handle_handshake(
    context: Context, request: RequestContext, message: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """There is no mechanism to choose."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def handle_authenticate(
    context: Context, request: RequestContext, message: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """There is nobody to become."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener is PLAINTEXT and asks for no authentication.",
    )
