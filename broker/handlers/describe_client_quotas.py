"""DescribeClientQuotas (key 48, versions 0-1): nobody has a quota, for none can be set.

Source: KIP-546; Kafka `ClientQuotaControlManager`.
"""

from broker.context import Context, RequestContext
from protocol.api.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def handle(
    context: Context, request: RequestContext, message: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas that match any filter: none. Clients expect a list, not null."""
    return DescribeClientQuotasResponse(error_message=None, entries=[])
