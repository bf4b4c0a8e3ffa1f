"""Every crash state in reach: nothing promised is lost, nothing broken is left.

`CRASH_STATES=100000` makes the campaign longer; `python -m tests.crash.campaign` is the
same without pytest.
"""

import os

import pytest

from tests.crash.campaign import Tally, crash_states, fault_run, faults
from tests.crash.seeded_bugs import BUGS
from tests.support.simulated_disk import Fault, Operation

STATES = int(os.environ.get("CRASH_STATES", "600"))
STATES_PER_SEED = 300
FAULTS_PER_SEED = 25

_SYNC = frozenset({Operation.SYNC, Operation.SYNC_DIRECTORY})


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(max(1, STATES // STATES_PER_SEED)))
def test_every_crash_state_keeps_what_was_promised(seed: int) -> None:
    tally = Tally()
    crash_states(tally, seed=seed, states=STATES_PER_SEED)
    assert tally.states > STATES_PER_SEED // 2
    assert tally.examples == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(max(1, STATES // STATES_PER_SEED)))
def test_every_failing_operation_keeps_what_was_promised(seed: int) -> None:
    tally = Tally()
    for fault in faults(seed, FAULTS_PER_SEED):
        fault_run(tally, seed=seed, fault=fault)
    assert tally.faults_raised > FAULTS_PER_SEED // 2
    assert tally.examples == []


@pytest.mark.parametrize("name", BUGS)
def test_seeded_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: with any of these mistakes the same campaign finds something wrong."""
    BUGS[name](monkeypatch)
    tally = Tally()
    for seed in range(12):
        crash_states(tally, seed=seed, states=60, until_found=True)
        for number in range(0 if tally.examples else 6):
            kinds = _SYNC if number % 2 else frozenset({Operation.APPEND})
            fault = Fault(at=seed + 7 * number, short_write=True, kinds=kinds)
            fault_run(tally, seed=seed, fault=fault)
        if tally.examples:
            return
    pytest.fail(f"{name} was not found in {tally.states} states")
