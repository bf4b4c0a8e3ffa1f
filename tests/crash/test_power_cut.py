"""Power cuts on a real file system, few of them; `POWER_CUT_CYCLES=100` makes it a campaign."""

import os

import pytest

from tests.crash.loop_disk import why_unavailable
from tests.crash.power_cut import run_batch

CYCLES = int(os.environ.get("POWER_CUT_CYCLES", "3"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120 + 30 * CYCLES),
    pytest.mark.skipif(why_unavailable() is not None, reason=why_unavailable() or ""),
]


def test_what_clients_were_answered_survives_power_cuts() -> None:
    tally = run_batch(CYCLES)
    assert tally.acked > 100 * CYCLES
    assert tally.seen > 0
    assert tally.examples == []
    assert tally.problems == 0


def test_broker_that_does_not_sync_is_found_out() -> None:
    """The negative control: a cut that takes nothing from it would prove nothing above."""
    assert run_batch(1, control="unsynced").acked_lost > 100
