"""SaslAuthenticate (key 36, versions 0-2) on a listener without authentication.

kafkajs looks for this key in the list of APIs before it decides how to speak SASL.

Source: KIP-152; Kafka `KafkaApis.handleSaslAuthenticateRequest`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Refuse: there is no authentication."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener is PLAINTEXT and asks for no authentication.",
    )
