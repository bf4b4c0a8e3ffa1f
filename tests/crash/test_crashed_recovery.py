"""Recoveries that are crashed themselves, in states that chance alone would seldom find."""

from contextlib import suppress

import pytest

from tests.support.logs import DIRECTORY, LogHarness
from tests.support.power_loss import Survival
from tests.support.simulated_disk import CHANGES, Operation, PowerCut


def headless_log() -> LogHarness:
    """Three segments under `flush.policy=os`, the head damaged, and the log's start in the head.

    Consumers had seen offset 0, and one of them deleted it: that is durable. Nothing else is.
    """
    harness = LogHarness(flush_policy="os", segment_bytes=150)
    for _ in range(6):
        harness.append(5, flush=False)
    harness.log.delete_before(1)
    assert harness.bases() == [0, 2, 4]
    harness.files = harness.files.power_cut(0, Survival.KEPT)
    harness.files.damage(f"{DIRECTORY}/{0:020d}.log", 20, b"torn")
    return harness


@pytest.mark.parametrize("survival", Survival)
def test_a_log_that_begins_again_begins_at_its_start_whenever_that_is_cut_off(
    survival: Survival,
) -> None:
    """What lay after the lost head must not become the log, however far its removal had come."""
    crashed = 0
    while True:
        harness = headless_log()
        left = crashed

        def cut(operation: Operation, path: str) -> None:
            nonlocal left
            left -= operation in CHANGES
            if left < 0:
                raise PowerCut

        harness.files.before_operation = cut
        with suppress(PowerCut):
            harness.open(is_clean=False)
            break
        harness.files.before_operation = None
        for seed in range(10):
            again = LogHarness.after_power_cut(harness, seed, survival)
            found = again.log.log_start_offset, again.log.log_end_offset
            assert found == (1, 1), (crashed, seed)
        crashed += 1
    assert crashed > 8, "every operation of the recovery was a crash once"
