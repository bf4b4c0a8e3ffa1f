"""AlterUserScramCredentials (key 51, version 0): set and remove users' SCRAM credentials.

Users are independent of one another; one user's changes are made whole or not at all. They are on
disk when the answer leaves.

Source: KIP-554; Kafka `ScramControlManager.alterCredentials`.
"""

from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from broker.security.credentials import Deletion, Outcome, Upsertion
from protocol.acl import Operation
from protocol.api import alter_user_scram_credentials as api
from protocol.error_codes import ErrorCode


async def handle(
    context: Context, request: RequestContext, message: api.AlterUserScramCredentialsRequest
) -> api.AlterUserScramCredentialsResponse:
    """The outcome for every user, each once."""
    if Check(context, request).cluster(Operation.ALTER):
        outcomes = await context.topics.alone(lambda: _alter(context, message))
        removed = {change.name for change in message.deletions}
        for outcome in outcomes:
            if outcome.code == ErrorCode.NONE:
                what = "removed" if outcome.name in removed else "changed"
                context.security.audit.changed(request, f"{what} a credential of {outcome.name!r}")
    else:
        names = dict.fromkeys(change.name for change in message.deletions)
        names.update(dict.fromkeys(change.name for change in message.upsertions))
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        text = "Cluster authorization failed."
        outcomes = [Outcome(name=name, code=code, message=text) for name in names]
    return api.AlterUserScramCredentialsResponse(
        results=[
            api.AlterUserScramCredentialsResult(
                user=outcome.name, error_code=outcome.code, error_message=outcome.message
            )
            for outcome in outcomes
        ]
    )


def _alter(context: Context, message: api.AlterUserScramCredentialsRequest) -> list[Outcome]:
    return context.security.alter_users(
        [Deletion(name=change.name, mechanism=change.mechanism) for change in message.deletions],
        [
            Upsertion(
                name=change.name,
                mechanism=change.mechanism,
                iterations=change.iterations,
                salt=bytes(change.salt),
                salted_password=bytes(change.salted_password),
            )
            for change in message.upsertions
        ],
    )
