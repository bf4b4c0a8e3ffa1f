"""DescribeConfigs (key 32, versions 0-4): settings of topics, brokers, loggers, groups.

Requested keys are answered in the order of the request; null and an empty list both mean all.
Version 0 has `is_default` where later ones have the source; synonyms (v1+) and documentation (v3+)
only on request. A key that is requested twice is answered once. The values of passwords are
withheld.

Differs from Kafka: a resource that is named twice is described once; there it is described twice.

Source: KIP-133, KIP-226, KIP-569; Kafka `ConfigHelper`.
"""

from broker.requests.config_resources import Resource, find_resource, refusals_in
from broker.requests.context import Context, RequestContext
from config.describe import Entry
from config.values import ValueType
from protocol.api import describe_configs as api
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.DescribeConfigsRequest
) -> Steps[api.DescribeConfigsResponse]:
    """Describe every resource; each has its own error."""
    described: dict[object, api.DescribeConfigsResult] = {}
    for asked in message.resources:
        key = (asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ()))
        if key not in described:
            described[key] = _describe(context, message, asked)
        yield None
    return api.DescribeConfigsResponse(results=list(described.values()))


def _describe(
    context: Context, message: api.DescribeConfigsRequest, asked: api.DescribeConfigsResource
) -> api.DescribeConfigsResult:
    result = api.DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=""
    )

    with refusals_in(result):
        resource = find_resource(context, asked.resource_type, asked.resource_name)
        entries = {entry.key.name: entry for entry in resource.describe()}
        names = asked.configuration_keys or list(entries)
        for name in dict.fromkeys(names):
            entry = entries.get(resource.canonical(name))
            if entry is not None:
                result.configs.append(_result(resource, message, entry))
    return result


def _result(
    resource: Resource, message: api.DescribeConfigsRequest, entry: Entry
) -> api.DescribeConfigsResourceResult:
    key = entry.key
    synonyms = entry.visible_synonyms if message.include_synonyms else ()
    is_secret = key.type is ValueType.PASSWORD
    return api.DescribeConfigsResourceResult(
        name=key.name,
        value=None if is_secret else entry.value,
        read_only=not resource.is_changeable(key),
        config_source=entry.source,
        is_default=resource.is_default(entry),
        is_sensitive=is_secret,
        synonyms=[
            api.DescribeConfigsSynonym(
                name=level.name, value=None if is_secret else level.value, source=level.source
            )
            for level in synonyms
        ],
        config_type=key.type,
        documentation=key.doc if message.include_documentation else None,
    )
