"""The whole matrix and every flow against Apache Kafka: only intended differences."""

from pathlib import Path

import pytest

from tests.rights.flows import of_kafka, of_tidelog
from tests.rights.intended import BY_CHANCE, INTENDED, unintended
from tests.rights.matrix import cells
from tests.rights.run import compare, report


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_both_brokers_refuse_the_same(tmp_path: Path) -> None:
    chosen = cells()
    found = compare(chosen, tmp_path / "first").found
    names = {(d.api, d.version, d.sent, condition) for condition, d in unintended(found)}
    # A busy machine may be late for a member's session: what differs is sent once more.
    again = [c for c in chosen if (*c.request_name, c.condition.name) in names]
    assert report(unintended(compare(again, tmp_path / "again").found if again else [])) == []
    lasting = [row for row in INTENDED if row is not BY_CHANCE]
    idle = [row.reason for row in lasting if not any(row.covers(d) for _, d in found)]
    assert idle == []


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_brokers_take_the_same_course_when_rights_change(tmp_path: Path) -> None:
    assert of_tidelog(tmp_path) == of_kafka(tmp_path)
