"""DescribeUserScramCredentials (key 50, version 0): users and their mechanisms, never a secret.

Null or no names at all ask for every user. A named user without credentials is RESOURCE_NOT_FOUND,
one who is named twice DUPLICATE_RESOURCE.

Differs from Kafka: a client that may not describe the cluster and asks for all users gets an
answer; Kafka never answers it.

Source: KIP-554; Kafka `ScramPublisher`, `KafkaApis.handleDescribeUserScramCredentialsRequest`.
"""

from collections import Counter

from broker.requests.access import Check
from broker.requests.context import Context, RequestContext
from protocol.acl import Operation
from protocol.api import describe_user_scram_credentials as api
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: api.DescribeUserScramCredentialsRequest
) -> api.DescribeUserScramCredentialsResponse:
    """The outcome for every named user, each once."""
    asked = Counter(user.name for user in message.users or ())
    if not Check(context, request).cluster(Operation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return api.DescribeUserScramCredentialsResponse(
            error_code=code,
            error_message="Cluster authorization failed.",
            results=[
                api.DescribeUserScramCredentialsResult(error_code=code, error_message=None)
                for _ in message.users or ()
            ],
        )
    known = context.security.credentials.users()
    results = []
    for name in asked or known:
        result = api.DescribeUserScramCredentialsResult(user=name)
        if asked[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}"
            )
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = (
                "Attempt to describe a user credential that does not exist: " + name
            )
        else:
            result.credential_infos = [
                api.CredentialInfo(mechanism=mechanism, iterations=iterations)
                for mechanism, iterations in known[name]
            ]
        results.append(result)
    return api.DescribeUserScramCredentialsResponse(error_message="", results=results)
