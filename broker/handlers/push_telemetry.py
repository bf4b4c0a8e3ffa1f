"""PushTelemetry (key 72, version 0): metrics of a client, kept for the metrics port.

A push is decompressed and read in the side thread.

Source: KIP-714; Kafka `ClientMetricsManager.processPushTelemetryRequest`.
"""

import logging

from broker.requests.client_facts import facts_of
from broker.requests.context import Context, RequestContext
from broker.telemetry.otlp import Unreadable
from protocol.api import push_telemetry as api
from protocol.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker.handlers.push_telemetry")


async def handle(
    context: Context, request: RequestContext, message: api.PushTelemetryRequest
) -> api.PushTelemetryResponse:
    """Take the metrics, if the push is in order."""
    telemetry = context.telemetry
    error = await _take(context, request, message)
    telemetry.pushes[error.name.lower()] += 1
    return api.PushTelemetryResponse(error_code=error)


async def _take(
    context: Context, request: RequestContext, message: api.PushTelemetryRequest
) -> ErrorCode:
    telemetry = context.telemetry
    instance, error = telemetry.check_push(
        bytes(message.client_instance_id),
        facts_of(request),
        message.subscription_id,
        message.compression_type,
        len(message.metrics),
        is_last=message.terminating,
    )
    if error is not ErrorCode.NONE or not message.metrics:
        return error
    assert instance is not None, "only an instance pushes"
    kind, data = message.compression_type, message.metrics
    try:
        push = await context.turns.side.run(lambda: telemetry.read(kind, data))
    except Unreadable as problem:
        logger.warning("metrics of client %r are refused: %s", request.client_id, problem)
        return ErrorCode.INVALID_RECORD
    telemetry.take(instance, request.client_id or "", push)
    return ErrorCode.NONE
