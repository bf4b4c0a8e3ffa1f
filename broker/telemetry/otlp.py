"""A push, read: `MetricsData` of OTLP v1 to points with names and labels.

The messages are those of the package `opentelemetry-proto`, which the extra `telemetry` installs.
It is imported with the first push. Numbers come as they are; of a distribution come its count and
sum. Bytes of a push may stand for a million parts, or for labels of a resource that each of its
points has, so all that is read of a push is bounded.

Source: OpenTelemetry `opentelemetry/proto/metrics/v1/metrics.proto`.
"""

import functools
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, NamedTuple

from broker.threads import IMPORTING

POINTS_MAX: Final = 5_000
"""The points of one push that are read; more are left out and counted."""

PARTS_MAX: Final = 20_000
"""The resources, scopes and metrics of one push; Kafka's clients have one of each for a value."""

ATTRIBUTES_MAX: Final = 32
"""The attributes of a resource or a point that are read."""

ALL: Final = "*"
"""Stands for all metrics, in place of a prefix of their names."""

_NAME_MAX: Final = 1_000
_SINGLE: Final = ("gauge", "sum")
_DELTA: Final = 1


class Unreadable(ValueError):
    """Bytes that are no metrics."""


class Point(NamedTuple):
    """One value. `labels` are in order of their names."""

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


def read(data: bytes, wanted: tuple[str, ...] = (ALL,)) -> Push:
    """The points of a push whose names begin with one of `wanted`; may run in any thread.

    Raises:
        Unreadable: these are no metrics, or more parts than a client has.
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
    for metric, common in _metrics(message):
        kind = metric.WhichOneof("data")
        if kind is None:
            continue
        # Read once: each access makes a text of it.
        name = metric.name
        given = getattr(metric, kind)
        points_each = 1 if kind in _SINGLE else 2
        is_wanted = ALL in wanted or name.startswith(wanted)
        room = (POINTS_MAX - len(points)) // points_each if is_wanted else 0
        left_out += points_each * max(0, len(given.data_points) - room)
        points += _points_of(name[:_NAME_MAX], kind, given, islice(given.data_points, room), common)
    return Push(points, left_out)


def _metrics(message: Any) -> Iterator[tuple[Any, dict[str, str]]]:
    """Each metric with the labels of its resource. Raises Unreadable."""
    parts = len(message.resource_metrics)
    _check_parts(parts)
    for resource in message.resource_metrics:
        common = dict(_labels(resource.resource.attributes))
        parts += len(resource.scope_metrics)
        _check_parts(parts)
        for scope in resource.scope_metrics:
            parts += len(scope.metrics)
            _check_parts(parts)
            for metric in scope.metrics:
                yield metric, common


def _check_parts(count: int) -> None:
    if count > PARTS_MAX:
        raise Unreadable(f"more than {PARTS_MAX} resources, scopes and metrics")


def _points_of(
    name: str, kind: str, data: Any, points: Iterable[Any], common: dict[str, str]
) -> Iterator[Point]:
    is_sum = kind == "sum"
    is_delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    for point in points:
        labels = tuple(sorted({**common, **dict(_labels(point.attributes))}.items()))
        if kind in _SINGLE:
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            is_counter = is_sum and data.is_monotonic
            yield Point(name, labels, float(value), is_counter, is_sum and is_delta)
        else:
            yield Point(f"{name}.count", labels, float(point.count), True, is_delta)
            yield Point(f"{name}.sum", labels, float(point.sum), False, is_delta)


def _labels(attributes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Names and values of the first attributes; those that are lists or maps are left out."""
    for attribute in islice(attributes, ATTRIBUTES_MAX):
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value"):
            value = getattr(attribute.value, kind)
            text = str(value).lower() if kind == "bool_value" else str(value)
            yield attribute.key[:_NAME_MAX], text[:_NAME_MAX]
