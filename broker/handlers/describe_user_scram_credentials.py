"""DescribeUserScramCredentials (key 50, version 0): no user has credentials here.

Asked for all (null or empty), the answer is empty; a user who is named is RESOURCE_NOT_FOUND.

Source: KIP-554; Kafka `ScramPublisher`, `KafkaApis.handleDescribeUserScramCredentialsRequest`.
"""

from broker.context import Context, RequestContext
from protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The outcome for every user who was named."""
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                user=user.name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"User {user.name!r} has no SCRAM credentials.",
            )
            for user in message.users or ()
        ],
    )
