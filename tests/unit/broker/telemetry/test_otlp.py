"""Pushes as OpenTelemetry's own library writes them."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from broker.telemetry import otlp
from broker.telemetry.otlp import Point, Unreadable, read


def test_every_kind_of_metric_is_read() -> None:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key="client_rack").value.string_value = "r"
    metrics = resource.scope_metrics.add().metrics
    gauge = metrics.add(name="g").gauge.data_points.add(as_int=3)
    gauge.attributes.add(key="flag").value.bool_value = True
    gauge.attributes.add(key="client_rack").value.string_value = "own"
    gauge.attributes.add(key="list").value.array_value.SetInParent()
    total = metrics.add(name="s").sum
    total.is_monotonic, total.aggregation_temporality = True, 1
    total.data_points.add(as_double=1.5)
    level = metrics.add(name="up.down").sum
    level.aggregation_temporality = 2
    level.data_points.add(as_double=-1)
    spread = metrics.add(name="h").histogram
    spread.aggregation_temporality = 2
    spread.data_points.add(count=4, sum=10)
    metrics.add(name="q").summary.data_points.add(count=2, sum=3)
    metrics.add(name="nothing")
    rack = (("client_rack", "r"),)
    assert read(data.SerializeToString()).points == [
        Point("g", (("client_rack", "own"), ("flag", "true")), 3, False, False),
        Point("s", rack, 1.5, True, True),
        Point("up.down", rack, -1, False, False),
        Point("h.count", rack, 4, True, False),
        Point("h.sum", rack, 10, False, False),
        Point("q.count", rack, 2, True, False),
        Point("q.sum", rack, 3, False, False),
    ]


def test_the_points_of_a_push_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "POINTS_MAX", 3)
    data = MetricsData()
    points = data.resource_metrics.add().scope_metrics.add().metrics.add(name="g").gauge.data_points
    for _ in range(5):
        points.add(as_int=1)
    push = read(data.SerializeToString())
    assert (len(push.points), push.left_out) == (3, 2)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x08\x01\x0a"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Unreadable, match="not MetricsData"):
        read(data)


def test_nothing_is_no_point() -> None:
    assert read(b"").points == []
