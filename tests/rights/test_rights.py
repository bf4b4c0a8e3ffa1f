"""The matrix of rights: users are refused what Apache Kafka refuses, in the same places."""

import json
from pathlib import Path

import pytest

from protocol.api_keys import SUPPORTED
from tests.rights.conditions import conditions
from tests.rights.matrix import NOT_ASKED, cells, small
from tests.rights.run import RECORDED, codes, from_tidelog

LEAST_CELLS = 20_000


@pytest.mark.timeout(300)
def test_refusals_are_those_that_were_recorded_of_apache_kafka(tmp_path: Path) -> None:
    chosen = small()
    recorded = {
        name: answer for answer, names in json.loads(RECORDED.read_text()).items() for name in names
    }
    ours = dict(map(codes, chosen, from_tidelog(chosen, tmp_path)))
    assert ours.keys() == recorded.keys()
    assert {name: pair for name, pair in _pairs(ours, recorded) if pair[0] != pair[1]} == {}


def _pairs(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, tuple[str, str]]]:
    return [(name, (answer, theirs[name])) for name, answer in ours.items()]


def test_the_matrix_is_large_and_every_cell_is_another_one() -> None:
    made = cells()
    assert len(made) >= LEAST_CELLS
    assert {cell.api for cell in made} == set(SUPPORTED) - NOT_ASKED
    names = {(*c.request_name, c.condition.name) for c in made}
    assert len(names) == len(made)
    rules = [condition.rules for condition in conditions()[2:]]
    assert len(set(rules)) == len(rules)
