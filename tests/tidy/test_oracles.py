"""Nothing is advertised whose bytes no independent codec has judged, in either direction.

The comparing itself is `tests/unit/protocol/test_api_oracles.py`; this fails when a version is put
into the table of what is served and the judges of that module do not reach it.
"""

from protocol.api_keys import SUPPORTED, ApiKey
from protocol.declare.primitives import Direction
from tests.unit.protocol.samples import LAYOUTS, Layout
from tests.unit.protocol.test_api_oracles import KAFKA_PYTHON_LAYOUTS, KIO_LAYOUTS, SHAPES

ADVERTISED = {
    (key, version, direction)
    for key, served in SUPPORTED.items()
    for version in range(served.min, served.max + 1)
    for direction in Direction
}


def of(layouts: list[Layout] | tuple[Layout, ...]) -> set[tuple[ApiKey, int, Direction]]:
    return {(layout.key, layout.version, layout.direction) for layout in layouts}


def named(missing: set[tuple[ApiKey, int, Direction]]) -> list[str]:
    return sorted(f"{key.name} v{version} {direction.name}" for key, version, direction in missing)


def test_every_advertised_version_has_samples_both_ways() -> None:
    assert named(ADVERTISED - of(LAYOUTS)) == []


def test_every_advertised_version_is_judged_both_ways() -> None:
    assert named(ADVERTISED - of(KAFKA_PYTHON_LAYOUTS) - of(KIO_LAYOUTS)) == []


def test_most_are_judged_twice() -> None:
    """One judge may have our misunderstanding; two that were made differently hardly.

    kafka-python does not know the newest APIs, those of share groups among them, nor what brokers
    send each other.
    """
    twice = ADVERTISED & of(KAFKA_PYTHON_LAYOUTS) & of(KIO_LAYOUTS)
    assert len(twice) > 0.78 * len(ADVERTISED)


def test_samples_have_values_nulls_and_empty_arrays() -> None:
    assert {(shape["nulls"], shape["length"]) for shape in SHAPES.values()} == {
        (False, 2),
        (True, 1),
        (False, 0),
    }
