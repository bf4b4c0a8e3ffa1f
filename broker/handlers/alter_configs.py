"""AlterConfigs (key 33, versions 0-2): replace all settings of a resource by the given ones.

A setting that is not named returns to its default, so clients prefer IncrementalAlterConfigs.

Source: KIP-133; Kafka `ConfigAdminManager`.
"""

from functools import partial

from broker.errors import InvalidRequest
from broker.requests.config_resources import Operation, Resource, change
from broker.requests.context import Context, RequestContext
from protocol.api import alter_configs as api


async def handle(
    context: Context, request: RequestContext, message: api.AlterConfigsRequest
) -> api.AlterConfigsResponse:
    """Replace the settings of every resource, independently of the others."""
    return api.AlterConfigsResponse(
        responses=[
            await change(
                context,
                request,
                asked,
                partial(_named_alone, asked),
                validate_only=message.validate_only,
            )
            for asked in message.resources
        ]
    )


def _named_alone(asked: api.AlterConfigsResource, resource: Resource) -> dict[str, str]:
    if not resource.may_be_replaced:
        raise InvalidRequest("Levels of loggers are set one by one: use incremental changes.")
    overrides: dict[str, str] = {}
    for config in asked.configs:
        resource.apply(overrides, config.name, Operation.SET, config.value)
    return overrides
