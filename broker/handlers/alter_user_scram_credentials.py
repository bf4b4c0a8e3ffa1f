"""AlterUserScramCredentials (key 51, version 0): refused, no listener would check a password.

Deleting an unknown credential is RESOURCE_NOT_FOUND, as in Kafka; setting one is
UNSUPPORTED_SASL_MECHANISM.

Source: KIP-554; Kafka `ScramControlManager.alterCredentials`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
)
from protocol.error_codes import ErrorCode

_MECHANISMS = (1, 2)


def handle(
    context: Context, request: RequestContext, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """The outcome for every user, each once."""
    outcomes = {deletion.name: _deleted(deletion) for deletion in message.deletions}
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


def _deleted(deletion: ScramCredentialDeletion) -> tuple[ErrorCode, str]:
    if not deletion.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user has a name."
    if deletion.mechanism not in _MECHANISMS:
        return (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"Mechanism {deletion.mechanism} is unknown; 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.",
        )
    return ErrorCode.RESOURCE_NOT_FOUND, f"User {deletion.name!r} has no SCRAM credentials."
