"""Metrics of clients (KIP-714) on the wire: subscriptions, pushes, refusals, the metrics port.

OpenTelemetry's own library writes what is pushed.
"""

from __future__ import annotations

import gzip
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from protocol.api.api_versions import ApiVersionsRequest
from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.api.list_config_resources import ListConfigResourcesRequest
from protocol.api.push_telemetry import PushTelemetryRequest
from protocol.api_keys import ApiKey
from protocol.error_codes import ErrorCode
from protocol.records.compression import compress
from protocol.records.layout import Codec
from tests.integration.operator.test_metrics import samples
from tests.support.broker import RawClient, RunningBroker, running_broker
from tests.support.clock import FrozenClock

CLIENT_METRICS = 16
DELETE = 1
MINUTE_MS = 60_000
ID = uuid.UUID(int=7, version=4)


@pytest.fixture
async def measured(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[RunningBroker]:
    async with running_broker(
        tmp_path / "data", clock=clock, metrics_listener="127.0.0.1:0"
    ) as running:
        yield running


async def subscribe(client: RawClient, name: str, **settings: str | None) -> tuple[int, Any]:
    """Set or (None) delete settings of a subscription; the error and its text."""
    answer = await client.request(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=CLIENT_METRICS,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=key.replace("_", "."),
                            value=value,
                            config_operation=DELETE if value is None else 0,
                        )
                        for key, value in settings.items()
                    ],
                )
            ]
        ),
        1,
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


async def ask(client: RawClient, instance: uuid.UUID = ID) -> Any:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance.bytes)
    return await client.request(request, 0, client_id="app")


def pushed(*points: tuple[str, float], kind: str = "gauge", **labels: str) -> bytes:
    """A push of values, each with the labels."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, value in points:
        metric = scope.metrics.add(name=name)
        values = getattr(metric, kind)
        if kind == "sum":
            values.is_monotonic = True
            values.aggregation_temporality = 2
        point = values.data_points.add(as_double=value)
        for key, text in labels.items():
            point.attributes.add(key=key).value.string_value = text
    encoded: bytes = data.SerializeToString()
    return encoded


async def push(client: RawClient, subscription: Any, metrics: bytes, **fields: Any) -> int:
    values = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "metrics": metrics,
        **fields,
    }
    answer = await client.request(PushTelemetryRequest(**values), 0, client_id="app")
    code: int = answer.error_code
    return code


async def test_a_subscription_is_set_shown_listed_and_deleted(measured: RunningBroker) -> None:
    client = await measured.client()
    assert await subscribe(client, "s", metrics="*", interval_ms="1000", match="client_id=a.*") == (
        0,
        None,
    )
    asked = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="s")
    (found,) = (await client.request(DescribeConfigsRequest(resources=[asked]), 4)).results
    assert [(each.name, each.value, each.config_source) for each in found.configs] == [
        ("interval.ms", "1000", 7),
        ("match", "client_id=a.*", 7),
        ("metrics", "*", 7),
    ]
    listed = (await client.request(ListConfigResourcesRequest(), 0)).config_resources
    assert [each.resource_name for each in listed] == ["s"]
    assert (await subscribe(client, "s", metrics=None, interval_ms=None, match=None))[0] == 0
    listed = (await client.request(ListConfigResourcesRequest(), 0)).config_resources
    assert listed == []


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST, "100 to 3600000"),
        ({"interval_ms": "soon"}, ErrorCode.INVALID_REQUEST, "not a whole number"),
        ({"metric": "*"}, ErrorCode.INVALID_REQUEST, "did you mean metrics"),
        ({"match": "colour=red"}, ErrorCode.INVALID_REQUEST, "client_software_name"),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG, "missing )"),
    ],
)
async def test_settings_that_cannot_be_meant(
    measured: RunningBroker, settings: dict[str, str], error: ErrorCode, text: str
) -> None:
    code, message = await subscribe(await measured.client(), "s", **settings)
    assert code == error, message
    assert text in message


async def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as running:
        assert (await subscribe(await running.client(), "s", metrics="org.", interval_ms="500"))[
            0
        ] == 0
    async with running_broker(tmp_path / "data") as running:
        found = await ask(await running.client())
        assert (found.requested_metrics, found.push_interval_ms) == (["org."], 500)


async def test_a_client_is_asked_for_what_matches_it(measured: RunningBroker) -> None:
    client = await measured.client()
    version = ApiVersionsRequest(client_software_name="lib", client_software_version="1.2")
    assert (await client.request(version, 4)).error_code == 0
    nothing = await ask(client)
    assert (nothing.error_code, nothing.requested_metrics) == (0, [])
    assert nothing.push_interval_ms == 5 * MINUTE_MS
    assert nothing.telemetry_max_bytes == 1_048_576
    assert nothing.accepted_compression_types == [4, 3, 1, 2]
    matching = "client_software_name=li.,client_software_version=1\\.2,client_id=app"
    await subscribe(client, "one", metrics="b.,a.", interval_ms="2000", match=matching)
    await subscribe(
        client, "two", metrics="a.", interval_ms="1000", match=f"client_instance_id={ID}"
    )
    await subscribe(client, "three", metrics="c.", match="client_id=ap")
    found = await ask(client)
    assert (found.requested_metrics, found.push_interval_ms) == (["a.", "b."], 1000)
    assert found.subscription_id != nothing.subscription_id
    await subscribe(client, "three", metrics="*", match=None)
    assert (await ask(client)).requested_metrics == ["*"]
    made = await ask(client, uuid.UUID(int=0))
    assert uuid.UUID(bytes=made.client_instance_id).version == 4


async def test_what_clients_push_is_on_the_metrics_port(
    measured: RunningBroker, clock: FrozenClock
) -> None:
    client = await measured.client()
    await subscribe(client, "s", metrics="*", interval_ms="1000")
    subscription = await ask(client)
    rate = ("org.apache.kafka.producer.record.send.rate", 2.5)
    assert await push(client, subscription, pushed(rate, topic="t")) == 0
    clock.advance(1000)
    total = pushed(("org.apache.kafka.producer.record.send.total", 7), kind="sum")
    packed = compress(Codec.ZSTD, total)
    assert await push(client, subscription, packed, compression_type=4) == 0
    found = await samples(measured)
    who = ("app", ID.hex)
    assert found["tidelog_client_producer_record_send_rate", *who, "t"] == 2.5
    assert found["tidelog_client_producer_record_send_total", *who] == 7
    assert found["tidelog_telemetry_instances",] == 1
    assert found["tidelog_telemetry_pushes_total", "none"] == 2
    clock.advance(MINUTE_MS)
    found = await samples(measured)
    assert [key for key in found if key[0].startswith("tidelog_client_")] == []
    assert found["tidelog_telemetry_instances",] == 0


async def test_pushes_that_are_out_of_order(measured: RunningBroker, clock: FrozenClock) -> None:
    client = await measured.client()
    await subscribe(client, "s", metrics="*", interval_ms="1000")
    first = await ask(client)
    data = pushed(("x", 1))
    assert (await ask(client)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(client, first, data) == 0
    assert await push(client, first, data) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock.advance(1000)
    assert await push(client, first, data, subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await ask(client)).error_code == 0
    wrong = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await push(client, first, data, compression_type=9) == wrong
    clock.advance(1000)
    large = gzip.compress(bytes(2_000_000), mtime=0)
    invalid = ErrorCode.INVALID_RECORD
    assert await push(client, first, large, compression_type=1) == invalid
    clock.advance(1000)
    too_large = ErrorCode.TELEMETRY_TOO_LARGE
    assert await push(client, first, bytes(1_048_577)) == too_large
    clock.advance(1000)
    assert await push(client, first, b"\xff\xff") == invalid
    nobody = {"client_instance_id": bytes(16)}
    assert await push(client, first, data, **nobody) == ErrorCode.INVALID_REQUEST
    # The last push comes when it comes, and nothing comes after it.
    assert await push(client, first, data, terminating=True) == 0
    clock.advance(1000)
    assert await push(client, first, data) == ErrorCode.INVALID_REQUEST


async def test_without_the_library_the_apis_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from broker.requests import features
    from broker.telemetry import otlp

    monkeypatch.setattr(otlp, "is_installed", lambda: False)
    features.served_apis.cache_clear()
    try:
        async with running_broker(tmp_path / "data") as running:
            answer = await (await running.client()).request(ApiVersionsRequest(), 2)
            keys = {each.api_key for each in answer.api_keys}
    finally:
        features.served_apis.cache_clear()
    assert not keys & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert ApiKey.SHARE_FETCH in keys
