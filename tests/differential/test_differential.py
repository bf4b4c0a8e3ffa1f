"""Every release that is a peer, the whole catalogue: no difference without an explanation."""

from pathlib import Path

import pytest

from tests.differential.catalogue import cases
from tests.differential.intended import INTENDED, unexplained
from tests.differential.run import REACHES, Difference, compare

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

_seen: dict[str, list[Difference]] = {}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", REACHES)
def test_only_intended_differences(tmp_path: Path, version: str) -> None:
    found = _seen[version] = compare(version, tmp_path)
    left = unexplained(found)
    shown = [f"{d.topic}: {d.case}: {d.aspect}: {d.ours!r:.150} / {d.theirs!r:.150}" for d in left]
    assert shown == []


def test_every_explanation_is_still_needed() -> None:
    if set(_seen) != set(REACHES):
        pytest.skip("only after all releases in the same run")
    everything = [difference for found in _seen.values() for difference in found]
    idle = [row.case for row in INTENDED if not any(row.covers(d) for d in everything)]
    assert idle == []


def test_catalogue_is_large_and_its_names_are_unique() -> None:
    names = [case.name for case in cases()]
    assert len(names) == len(set(names)) > 300
