"""Lookups explained by a metrics port whose address a test knows."""

from typing import Any

from client.aio.explain import MetricsPort
from client.core.options import NOT_SECURED, Security


async def explain_lookup(
    metrics_url: str,
    topic: str,
    partition: int,
    timestamp_ms: int,
    security: Security = NOT_SECURED,
) -> dict[str, Any]:
    """What the port says of the lookup of a time."""
    asked = {"topic": topic, "partition": partition, "at": timestamp_ms}
    return await MetricsPort(metrics_url, security).document("/explain", asked)
