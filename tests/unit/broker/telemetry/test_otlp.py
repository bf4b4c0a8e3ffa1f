"""Pushes as OpenTelemetry's own library writes them."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from broker.telemetry import otlp
from broker.telemetry.otlp import POINTS_MAX, Point, Unreadable, read


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


def test_names_and_labels_that_all_points_share_are_bounded() -> None:
    """A megabyte of labels of a resource, or one long name, for each of thousands of points."""
    data = MetricsData()
    resource = data.resource_metrics.add()
    for number in range(20_000):
        resource.resource.attributes.add(key=f"k{number}").value.string_value = "v" * 5
    metric = resource.scope_metrics.add().metrics.add(name="n" * 100_000)
    for _ in range(100_000):
        metric.gauge.data_points.add().SetInParent()
    metric.gauge.data_points[0].attributes.add(key="k" * 9_999).value.string_value = "v" * 9_999
    push = read(data.SerializeToString())
    assert (len(push.points), push.left_out) == (POINTS_MAX, 100_000 - POINTS_MAX)
    assert {len(point.labels) for point in push.points} == {33, 32}
    assert max(len(point.name) for point in push.points) == 1_000
    texts = [text for point in push.points for label in point.labels for text in label]
    assert max(map(len, texts)) == 1_000


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_push_of_a_million_parts_is_refused(depth: int) -> None:
    data = MetricsData()
    for _ in range(otlp.PARTS_MAX + 1 if depth == 1 else 1):
        resource = data.resource_metrics.add()
    for _ in range(otlp.PARTS_MAX if depth == 2 else 1):
        scope = resource.scope_metrics.add()
    for _ in range(otlp.PARTS_MAX if depth == 3 else 1):
        scope.metrics.add()
    with pytest.raises(Unreadable, match="more than 20000 resources, scopes and metrics"):
        read(data.SerializeToString())


def test_what_is_not_wanted_is_left_out() -> None:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for name in ("a.b", "a.c", "b"):
        metrics.add(name=name).gauge.data_points.add(as_int=1)
    bytes_of = data.SerializeToString()
    for wanted, names in (
        (("a.",), ["a.b", "a.c"]),
        (("a.c", "b"), ["a.c", "b"]),
        ((), []),
        (("*",), ["a.b", "a.c", "b"]),
    ):
        push = read(bytes_of, wanted)
        assert [point.name for point in push.points] == names
        assert push.left_out == 3 - len(names)
