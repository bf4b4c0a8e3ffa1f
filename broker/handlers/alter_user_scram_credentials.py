"""AlterUserScramCredentials (key 51, version 0): refused, no listener would ask for a password.

Deleting what is not there is RESOURCE_NOT_FOUND, as in Kafka; setting a credential is
UNSUPPORTED_SASL_MECHANISM.

Source: KIP-554; Kafka `ScramControlManager.alterCredentials`.
"""

from broker.context import Context, RequestContext
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """The outcome for every user, each once."""
    outcomes = {
        deletion.name: (
            ErrorCode.RESOURCE_NOT_FOUND,
            f"User {deletion.name!r} has no SCRAM credentials.",
        )
        for deletion in message.deletions
    }
    for upsertion in message.upsertions:
        outcomes[upsertion.name] = (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "No listener of this broker uses SCRAM.",
        )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=text)
            for user, (code, text) in outcomes.items()
        ]
    )
