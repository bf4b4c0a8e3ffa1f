"""GetTelemetrySubscriptions (key 71, version 0): which metrics a client should push.

A client that no subscription matches is asked for none, and asks again after five minutes.

Differs from Kafka: sums are wanted as totals, not as differences, so that a push that is lost is
made up for by the next one.

Source: KIP-714; Kafka `ClientMetricsManager.processGetTelemetrySubscriptionRequest`.
"""

from broker.requests.client_facts import facts_of
from broker.requests.context import Context, RequestContext
from broker.telemetry.service import ACCEPTED
from protocol.api import get_telemetry_subscriptions as api
from protocol.error_codes import ErrorCode


def handle(
    context: Context, request: RequestContext, message: api.GetTelemetrySubscriptionsRequest
) -> api.GetTelemetrySubscriptionsResponse:
    """The subscription of this client."""
    telemetry = context.telemetry
    instance, error = telemetry.ask(bytes(message.client_instance_id), facts_of(request))
    if error is not ErrorCode.NONE:
        return api.GetTelemetrySubscriptionsResponse(error_code=error)
    return api.GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,
        requested_metrics=list(instance.wanted.metrics),
    )
