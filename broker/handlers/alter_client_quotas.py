"""AlterClientQuotas (key 49, versions 0-1): refused, because nothing here would enforce a quota.

Removing a quota that does not exist succeeds, so that clean-up scripts pass. A request that only
validates a new quota is refused too.

Differs from Kafka: setting a quota is refused, also with `validate_only`.

Source: KIP-546; Kafka `ClientQuotaControlManager.alterClientQuotas`.
"""

from broker.requests.context import Context, RequestContext
from protocol.api.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntryData,
)
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """The outcome for every entity."""
    return AlterClientQuotasResponse(entries=[_alter(entry) for entry in message.entries])


def _alter(entry: EntryData) -> AlterClientQuotasResponseEntryData:
    response = AlterClientQuotasResponseEntryData(error_message=None, entity=entry.entity)
    if any(not operation.remove for operation in entry.ops):
        response.error_code = ErrorCode.INVALID_REQUEST
        response.error_message = "This broker enforces no quotas, so none can be set."
    return response
