"""What the arithmetic of quotas costs: `python -m benchmarks.quota_cost [--rounds N]`.

A handler that does nothing is called without quotas and behind a `Throttle`, in turns, for clients
with limits that they never reach. The difference is what a request of a limited client costs beside
the work of its handler: looking up its limits, counting its bytes and its time, and comparing both.
CPU of this process, the median of the rounds; another load on the machine changes each side alike.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks.harness import report
from broker.clocks.clock import SystemClock
from broker.metrics import Metrics
from broker.quotas.book import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaBook,
    checked_entity,
)
from broker.quotas.throttle import Mutes, Throttle, Windows
from broker.requests.context import RequestContext
from broker.security.session import Session
from protocol.api_keys import ApiKey

CALLS = 4_000
MUCH = 1e12
WINDOWS = Windows(count=11, size_ms=1_000, controller_count=11, controller_size_ms=1_000)
NONE: dict[str, float] = {}
BYTES = {PRODUCER_BYTE_RATE: MUCH, CONSUMER_BYTE_RATE: MUCH}
TIME = {REQUEST_PERCENTAGE: MUCH}
ROWS = (
    ("Produce, a limit of bytes", ApiKey.PRODUCE, BYTES),
    ("Produce, limits of bytes and time", ApiKey.PRODUCE, BYTES | TIME),
    ("Heartbeat, limits of bytes", ApiKey.HEARTBEAT, BYTES),
    ("Heartbeat, limits of bytes and time", ApiKey.HEARTBEAT, BYTES | TIME),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quota_cost")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args(arguments)
    lines = []
    for title, api_key, limits in ROWS:
        plain, behind = _pair(api_key, limits)
        found = [(_cpu_us(plain), _cpu_us(behind)) for _ in range(options.rounds)]
        without = statistics.median(one for one, _ in found)
        more = statistics.median(other - one for one, other in found)
        lines.append([title, f"{without:.3f}", f"{more:.3f}"])
    print(report.table(["request", "handler alone, µs", "quotas, µs more"], lines))
    return 0


def _pair(api_key: ApiKey, limits: dict[str, float]) -> tuple[Callable[[], object], ...]:
    """The same request without and behind a throttle."""
    clock = SystemClock()
    book = QuotaBook({})
    book.put(checked_entity([(USER, "ANONYMOUS")]), limits)
    throttle = Throttle(book, WINDOWS, Mutes(clock), clock=clock, metrics=Metrics())
    answer = SimpleNamespace(throttle_time_ms=0)
    request = RequestContext(api_key, 9, 0, "client", "127.0.0.1", 1, Session())
    context: Any = None
    now_ns = time.perf_counter_ns

    def handler(_context: object, _request: object, _message: object) -> object:
        return answer

    def plain() -> None:
        for _ in range(CALLS):
            started_ns = now_ns()
            handler(context, request, None)
            assert now_ns() >= started_ns  # both are read without quotas too, for metrics

    def behind() -> None:
        for _ in range(CALLS):
            started_ns = now_ns()
            throttle.serve(handler, context, request, None, 1_000, started_ns)
            throttle.count_encoding(now_ns())

    return plain, behind


def _cpu_us(work: Callable[[], object]) -> float:
    begun_ns = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun_ns) / CALLS / 1_000


if __name__ == "__main__":
    sys.exit(main())
