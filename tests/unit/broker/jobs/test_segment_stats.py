"""The job that measures segments: all logs, in steps, and past what fails."""

from collections.abc import Iterator

import pytest

from broker.jobs.segment_stats import Measuring
from storage.log.log import Log
from tests.support.logs import LogHarness
from tests.support.simulated_disk import Fault, Operation


def crashed(*timestamps: int) -> LogHarness:
    log = LogHarness()
    for timestamp in timestamps:
        log.append(timestamp)
        log.log.roll(log.now_ms)
    log.crash()
    return log


def run(job: Measuring) -> list[int]:
    return list(job.run())


def test_every_closed_segment_of_every_log_is_measured() -> None:
    logs = [crashed(50, 20), crashed(7)]
    run(Measuring(lambda: [one.log for one in logs]))
    found = [[s.min_timestamp for s in list(one.log.segments)[:-1]] for one in logs]
    assert found == [[50, 20], [7]]


def test_failing_log_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = crashed(50), crashed(7)
    bad.files.fault = Fault(at=bad.files._eligible, kinds=frozenset({Operation.READ}))

    def logs() -> Iterator[Log]:
        yield bad.log
        yield good.log

    job = Measuring(logs)
    run(job)
    assert "could not be measured" in caplog.text
    assert good.log.segments.first.min_timestamp == 7
    bad.files.fault = None
    run(job)
    assert bad.log.segments.first.min_timestamp == 50
