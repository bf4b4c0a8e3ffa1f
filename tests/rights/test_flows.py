"""Rights that come and go in the middle: users are answered as by Apache Kafka."""

import json

import pytest

from tests.rights.flows import FLOWS, RECORDED_FLOWS, of_tidelog


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flow", FLOWS)
def test_flows_go_as_was_recorded_of_apache_kafka(
    flow: str, flows_of_tidelog: dict[str, list[str]]
) -> None:
    assert flows_of_tidelog[flow] == json.loads(RECORDED_FLOWS.read_text())[flow]


@pytest.fixture(scope="module")
def flows_of_tidelog(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return of_tidelog(tmp_path_factory.mktemp("flows"))
