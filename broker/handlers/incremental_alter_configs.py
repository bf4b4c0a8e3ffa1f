"""IncrementalAlterConfigs (key 44, versions 0-1): set, delete, append to or subtract from settings.

All changes of one resource happen together or not at all.

Source: KIP-339; Kafka `ConfigAdminManager`.
"""

from collections import Counter
from functools import partial

from broker.requests.config_resources import Resource, change
from broker.requests.context import Context, RequestContext
from protocol.api import incremental_alter_configs as api


async def handle(
    context: Context, request: RequestContext, message: api.IncrementalAlterConfigsRequest
) -> api.IncrementalAlterConfigsResponse:
    """Change each resource independently; one that occurs twice in the request is refused."""
    named = Counter((asked.resource_type, asked.resource_name) for asked in message.resources)
    return api.IncrementalAlterConfigsResponse(
        responses=[
            await change(
                context,
                request,
                asked,
                partial(_changed, asked),
                validate_only=message.validate_only,
                is_repeated=named[asked.resource_type, asked.resource_name] > 1,
            )
            for asked in message.resources
        ]
    )


def _changed(asked: api.AlterConfigsResource, resource: Resource) -> dict[str, str]:
    overrides = resource.overrides()
    for config in asked.configs:
        resource.apply(overrides, config.name, config.config_operation, config.value)
    return overrides
