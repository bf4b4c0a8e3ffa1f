"""SaslHandshake (key 17, versions 0-1) on a listener without authentication.

Kafka advertises it on every listener and answers ILLEGAL_SASL_STATE where there is nothing to
authenticate.

Source: KIP-43, KIP-152; Kafka `KafkaApis.handleSaslHandshakeRequest`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Refuse: there is no mechanism to choose."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
