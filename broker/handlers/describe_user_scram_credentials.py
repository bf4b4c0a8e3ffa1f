"""DescribeUserScramCredentials (key 50, version 0): no user has credentials here.

A request for all users (null or empty) gets an empty answer. A named user is RESOURCE_NOT_FOUND,
and one who is named twice DUPLICATE_RESOURCE.

Source: KIP-554; Kafka `ScramPublisher`, `KafkaApis.handleDescribeUserScramCredentialsRequest`.
"""

from collections import Counter

from broker.requests.context import Context, RequestContext
from protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The outcome for every named user, each once."""
    counts = Counter(user.name for user in message.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[
            DescribeUserScramCredentialsResult(
                user=name,
                error_code=(
                    ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE
                ),
                error_message=(
                    f"User {name!r} has no SCRAM credentials."
                    if count == 1
                    else f"User {name!r} stands in the request more than once."
                ),
            )
            for name, count in counts.items()
        ],
    )
