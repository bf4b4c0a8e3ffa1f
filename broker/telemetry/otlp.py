"""A push, read: `MetricsData` of OTLP v1 to points with names and labels.

The messages are those of the package `opentelemetry-proto`, which the extra `telemetry` installs.
It is imported with the first push. Numbers come as they are; of a distribution come its count and
sum.

Source: OpenTelemetry `opentelemetry/proto/metrics/v1/metrics.proto`.
"""

import functools
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from broker.threads import IMPORTING

POINTS_MAX: Final = 5_000
"""The points of one push that are read; more are left out and counted."""

_DELTA: Final = 1


class Unreadable(ValueError):
    """Bytes that are no metrics."""


class Point(NamedTuple):
    """One value. `labels` are in order of their names, and texts of any length."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_counter: bool
    is_delta: bool


class Push(NamedTuple):
    """The points of a push, and how many more there were."""

    points: list[Point]
    left_out: int


@functools.cache
def is_installed() -> bool:
    """Whether the extra is installed."""
    try:
        return find_spec("opentelemetry.proto.metrics.v1.metrics_pb2") is not None
    except ModuleNotFoundError:
        return False


def read(data: bytes) -> Push:
    """The points of a push; may run in any thread.

    Raises:
        Unreadable: these are no metrics.
    """
    with IMPORTING:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    try:
        message = MetricsData.FromString(data)
    except DecodeError as error:
        raise Unreadable(f"not MetricsData of OTLP: {error}") from error
    points: list[Point] = []
    left_out = 0
    for point in _points(message):
        if len(points) < POINTS_MAX:
            points.append(point)
        else:
            left_out += 1
    return Push(points, left_out)


def _points(message: Any) -> Iterator[Point]:
    for resource in message.resource_metrics:
        common = list(_labels(resource.resource.attributes))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _points_of(metric, common)


def _points_of(metric: Any, common: list[tuple[str, str]]) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    is_sum = kind == "sum"
    is_delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    for point in data.data_points:
        labels = tuple(sorted({**dict(common), **dict(_labels(point.attributes))}.items()))
        if kind in ("gauge", "sum"):
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            is_counter = is_sum and data.is_monotonic
            yield Point(metric.name, labels, float(value), is_counter, is_sum and is_delta)
        else:
            yield Point(f"{metric.name}.count", labels, float(point.count), True, is_delta)
            yield Point(f"{metric.name}.sum", labels, float(point.sum), False, is_delta)


def _labels(attributes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Names and values of attributes; those that are lists or maps are left out."""
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            value = getattr(attribute.value, kind)
            yield attribute.key, str(value).lower() if kind == "bool_value" else str(value)
