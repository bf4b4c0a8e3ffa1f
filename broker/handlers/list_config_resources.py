"""ListConfigResources (key 74, versions 0-1): the resources that DescribeConfigs would know.

Version 0 dates from when the API listed only subscriptions to client metrics. Version 1 takes
types; none means all. Groups are those with settings of their own.

Source: KIP-714, KIP-1142; Kafka `KafkaApis.handleListConfigResources`.
"""

from collections.abc import Iterator

from broker.requests.config_resources import ResourceType
from broker.requests.context import Context, RequestContext
from protocol.api import list_config_resources as api
from protocol.error_codes import ErrorCode

_TYPES_SINCE = 1


def handle(
    context: Context, request: RequestContext, message: api.ListConfigResourcesRequest
) -> api.ListConfigResourcesResponse:
    """Every resource of the requested types."""
    types = {int(known) for known in ResourceType}
    if request.api_version < _TYPES_SINCE:
        asked = {int(ResourceType.CLIENT_METRICS)}
    else:
        asked = set(message.resource_types) or types
    if not asked <= types:
        return api.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return api.ListConfigResourcesResponse(
        config_resources=[
            api.ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(asked)
            for name in _names(context, ResourceType(resource_type))
        ]
    )


def _names(context: Context, resource_type: ResourceType) -> Iterator[str]:
    if resource_type is ResourceType.TOPIC:
        yield from sorted(topic.name for topic in context.topics)
    elif resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        yield from (str(endpoint.node_id) for endpoint in context.endpoints)
    elif resource_type is ResourceType.GROUP:
        yield from sorted(context.topics.group_overrides)
    elif resource_type is ResourceType.CLIENT_METRICS:
        yield from sorted(context.telemetry.subscriptions.overrides)
