"""The clock of a broker that has the system's: it cannot be set, and says so."""

import pytest

from tidelog.testing import running_broker


def test_a_clock_that_cannot_be_set_says_how_to_get_one() -> None:
    with (
        running_broker() as broker,
        pytest.raises(ValueError, match=r'running_broker\(clock="settable"\)'),
    ):
        broker.clock.advance("8d")
