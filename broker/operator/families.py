"""Metric families of prometheus_client, made in one call each; `exporter` says which there are.

The library is imported at the first scrape: a start does not wait for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from broker.metrics import Distribution
from broker.operator.machine_figures import build_facts


def counter(name: str, help_text: str, value: float) -> Any:
    """A counter without labels."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, help_text, value=value)


def group_states(name: str, help_text: str, groups: Mapping[str, Any]) -> Any:
    """How many groups there are, by state."""
    states = Counter(group.state.value for group in groups.values())
    rows = [([state], count) for state, count in sorted(states.items())]
    return labelled_gauge(name, help_text, ["state"], rows)


def gauge(name: str, help_text: str, value: float) -> Any:
    """A gauge without labels."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, help_text, value=value)


def labelled_gauge(
    name: str, help_text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Any:
    """A gauge with labels; a row has their values, then its own."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def build_info() -> Any:
    """``tidelog_build_info``: 1, with the facts of the build as labels."""
    facts, text = build_facts(), "Always 1; the labels say what runs"
    return labelled_gauge("tidelog_build_info", text, list(facts), [(list(facts.values()), 1)])


def labelled_counter(
    name: str, help_text: str, labels: str | tuple[str, ...], counts: Mapping[Any, int]
) -> Any:
    """A counter by one label, or by several, whose values are tuples then."""
    from prometheus_client.core import CounterMetricFamily

    names = (labels,) if isinstance(labels, str) else labels
    family = CounterMetricFamily(name, help_text, labels=names)
    for values, count in sorted(counts.items()):
        family.add_metric((values,) if isinstance(labels, str) else values, count)
    return family


def histogram(name: str, help_text: str, distribution: Distribution, scale: float) -> Any:
    """A histogram without labels; its bounds are divided by `scale`."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, help_text)
    buckets, total = distribution.cumulative(scale)
    family.add_metric([], buckets, total)
    return family


def labelled_histogram(
    name: str, help_text: str, label: str, distributions: Mapping[str, Distribution], scale: float
) -> Any:
    """A histogram for each value of one label; bounds are divided by `scale`."""
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, distribution in distributions.items():
        buckets, total = distribution.cumulative(scale)
        family.add_metric([value], buckets, total)
    return family
