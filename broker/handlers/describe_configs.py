"""DescribeConfigs (key 32, versions 0-4): settings of topics, brokers, loggers, groups.

Requested keys are answered in the order of the request; null and an empty list both mean all.
Version 0 has `is_default` where later ones have the source; synonyms (v1+) and documentation (v3+)
only on request. A key that is requested twice is answered once. The values of passwords are
withheld.

A setting becomes bytes at once, and so does a resource: the answer for a thousand topics would have
hundreds of thousands of objects, which are as long to free as to make. What topics inherit has the
same bytes for all of them.

Differs from Kafka: a resource that is named twice is described once; there it is described twice.

Source: KIP-133, KIP-226, KIP-569; Kafka `ConfigHelper`.
"""

from functools import partial
from typing import Any

from broker.requests.config_resources import (
    EncodedSettings,
    Resource,
    find_resource,
    refusals_in,
)
from broker.requests.context import Context, RequestContext
from config.describe import DescribedSetting
from config.values import ValueType
from protocol.api import describe_configs as api
from protocol.registry import struct_encoder
from storage.disk.steps import Steps


def handle(
    context: Context, request: RequestContext, message: api.DescribeConfigsRequest
) -> Steps[api.DescribeConfigsResponse]:
    """Describe every resource; each has its own error."""
    settings = EncodedSettings(
        api.DescribeConfigsResponse, api.DescribeConfigsResourceResult, request.api_version
    )
    encode = struct_encoder(
        api.DescribeConfigsResponse, api.DescribeConfigsResult, request.api_version
    )
    described: dict[object, Any] = {}
    for asked in message.resources:
        key = (asked.resource_type, asked.resource_name, tuple(asked.configuration_keys or ()))
        if key not in described:
            described[key] = encode(_describe(context, message, settings, asked))
        yield None
    return api.DescribeConfigsResponse(results=list(described.values()))


def _describe(
    context: Context,
    message: api.DescribeConfigsRequest,
    settings: EncodedSettings,
    asked: api.DescribeConfigsResource,
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
                is_changeable = resource.is_changeable(entry.key)
                make = partial(_result, resource, message, entry, is_changeable)
                result.configs.append(settings.encoded(entry, make, is_changeable=is_changeable))
    return result


def _result(
    resource: Resource,
    message: api.DescribeConfigsRequest,
    entry: DescribedSetting,
    is_changeable: bool,
) -> api.DescribeConfigsResourceResult:
    key = entry.key
    synonyms = entry.visible_synonyms if message.include_synonyms else ()
    is_secret = key.type is ValueType.PASSWORD
    return api.DescribeConfigsResourceResult(
        name=key.name,
        value=None if is_secret else entry.value,
        read_only=not is_changeable,
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
