"""DescribeClientQuotas (key 48, versions 0-1): the quotas that match a filter.

Source: KIP-546; Kafka `ClientQuotasImage.describe`.
"""

from broker.quotas.book import Component, InvalidQuota, UnknownEntityType
from broker.requests.context import Context, RequestContext
from protocol.api import describe_client_quotas as api
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: api.DescribeClientQuotasRequest
) -> api.DescribeClientQuotasResponse:
    """The entities and their quotas. Clients expect a list, and null for a refusal."""
    components = [
        Component(part.entity_type, part.match_type, part.match) for part in message.components
    ]
    try:
        selected = context.security.quotas.select(components, strict=message.strict)
    except InvalidQuota as error:
        unknown = isinstance(error, UnknownEntityType)
        return api.DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION if unknown else ErrorCode.INVALID_REQUEST,
            error_message=str(error),
            entries=None,
        )
    entries = [
        api.EntryData(
            entity=[api.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[api.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in selected
    ]
    return api.DescribeClientQuotasResponse(error_message="", entries=entries)
