"""The matrix of rights: users are refused what Apache Kafka refuses, in the same places."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers import api_versions
from broker.requests.context import RequestContext
from protocol.api.api_versions import ApiVersionsRequest
from protocol.api_keys import ApiKey
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


def test_every_advertised_api_is_in_the_matrix_and_in_its_recorded_part() -> None:
    request = RequestContext(ApiKey.API_VERSIONS, 0, 1, None, "", 1)
    context: Any = SimpleNamespace(config=SimpleNamespace(workers=1))
    answer = api_versions.handle(context, request, ApiVersionsRequest())
    advertised = {row.api_key for row in answer.api_keys}
    assert {cell.api for cell in cells()} == advertised - NOT_ASKED
    assert {cell.api for cell in small()} == advertised - NOT_ASKED


def test_the_matrix_is_large_and_every_cell_is_another_one() -> None:
    made = cells()
    assert len(made) >= LEAST_CELLS
    names = {(*c.request_name, c.condition.name) for c in made}
    assert len(names) == len(made)
    rules = [condition.rules for condition in conditions()[2:]]
    assert len(set(rules)) == len(rules)
