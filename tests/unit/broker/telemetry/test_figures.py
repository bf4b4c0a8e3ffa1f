"""What clients push stays within bounds, and is text that Prometheus reads."""

import math
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from broker.telemetry.figures import LABELS_MAX, TEXT_MAX, ClientFigures
from broker.telemetry.otlp import Point


def point(name: str, value: float = 1, **labels: Any) -> Point:
    return Point(name, tuple(sorted(labels.items())), value, is_counter=False, is_delta=False)


def counter(name: str, value: float, *, is_delta: bool = False) -> Point:
    return Point(name, (), value, is_counter=True, is_delta=is_delta)


def samples(figures: ClientFigures) -> dict[tuple[str, ...], float]:
    text = b"".join(figures.lines()).decode()
    return {
        (sample.name.removeprefix("tidelog_client_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_names_and_labels_are_those_of_prometheus() -> None:
    figures = ClientFigures()
    odd = {"node.id": "1", "client_id": "liar", "9x": "y", "__name__": "z", "q": 'a"b\\c\nd'}
    figures.take(b"i", 'app"\n', [point("org.apache.kafka.a.b-c", 2, **odd), point("other.x")])
    ((name, *labels),) = [key for key in samples(figures) if key[0] == "a_b_c"]
    assert labels == ['app"\n', b"i".hex(), "y", "z", "1", 'a"b\\c\nd']
    assert name == "a_b_c"
    assert ("other_x", 'app"\n', b"i".hex()) in samples(figures)


def test_differences_are_added_up_and_totals_replaced() -> None:
    figures = ClientFigures()
    for _ in range(2):
        figures.take(
            b"i", "a", [counter("n", 5), counter("d.total", 5, is_delta=True), point("g", 3)]
        )
    found = {name: value for (name, *_), value in samples(figures).items()}
    assert found == {"n_total": 5, "d_total": 10, "g": 3}


def test_the_number_of_figures_is_bounded() -> None:
    figures = ClientFigures(limit=5, limit_of_instance=3)
    figures.take(b"1", "a", [point(f"x{n}") for n in range(4)])
    figures.take(b"2", "a", [point(f"x{n}") for n in range(4)])
    assert (len(figures), figures.dropped) == (5, 3)
    # Known ones are still replaced, and others come where some go.
    figures.take(b"1", "a", [point("x0", 7)])
    assert samples(figures)["x0", "a", b"1".hex()] == 7
    figures.forget([b"1", b"3"])
    assert len(figures) == 2
    figures.take(b"2", "a", [point("y")])
    assert len(figures) == 3


def test_texts_and_labels_are_bounded() -> None:
    figures = ClientFigures()
    labels: dict[str, Any] = {f"l{n:02}": "v" * 1000 for n in range(100)}
    figures.take(b"1", "c" * 1000, [point("n" * 1000, **labels)])
    ((name, *values),) = samples(figures)
    assert len(name) == TEXT_MAX
    assert [len(value) for value in values] == [TEXT_MAX, 2, *[TEXT_MAX] * LABELS_MAX]


def test_a_name_has_one_type() -> None:
    figures = ClientFigures()
    figures.take(b"1", "a", [point("x.total"), counter("x.total", 2), point("nan", math.nan)])
    assert (len(figures), figures.dropped) == (1, 2)
    figures.forget([b"1"])
    figures.take(b"2", "a", [counter("x.total", 2), point("inf", math.inf)])
    found = {name: value for (name, *_), value in samples(figures).items()}
    assert found == {"x_total": 2, "inf": math.inf}
