"""How exactly quotas hold: `python -m benchmarks.quota_accuracy`.

For each limit a client asks as fast as it may, on several connections, for `--seconds` after a
time in which the windows fill. What it gets is compared with the limit in three ways:

    metric   the mean of `tidelog_quota_rate`, the rate that the delays are computed from
    seen     bytes that the client itself counted, per second
    CPU      what the broker's process used beyond what it uses idle, in percent of a core; more
             than the metric, which counts no system calls for sockets

Exits with 1 when a metric, or bytes that were seen, differ from the limit by more than 5 %.
"""

import argparse
import asyncio
import contextlib
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from benchmarks import loads, wire
from client.admin import Admin
from tests.compat.brokers import TidelogProcess
from tests.support.kafka_peer import cpu_seconds

CONNECTIONS = 4
TOLERANCE = 0.05
_FILL_S = 14.0
_IDLE_S = 5.0
_SAMPLE_S = 1.0
_RATE = re.compile(r"^tidelog_quota_rate\{[^}]*\} (\S+)$", re.MULTILINE)
_BATCH_BYTES = 16_384


def main() -> int:
    """Measures every limit and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--percent", default="5,10,20")
    parser.add_argument("--bytes", default="1000000,5000000")
    options = parser.parse_args()
    print(f"{'limit':<32} {'metric':>12} {'':>7} {'seen':>12} {'':>7} {'CPU %':>7}")
    worst = 0.0
    for key, bounds in (
        ("request_percentage", options.percent),
        ("producer_byte_rate", options.bytes),
    ):
        for text in bounds.split(","):
            bound = float(text)
            metric, seen, cpu = _measure(key, bound, options.seconds)
            errors = [metric / bound - 1]
            shown = f"{'-':>12} {'':>7}"
            if key != "request_percentage":
                errors.append(seen / bound - 1)
                shown = f"{seen:>12,.1f} {errors[1]:>+7.1%}"
            print(f"{key}={text:<14} {metric:>12,.2f} {errors[0]:>+7.1%} {shown} {cpu:>7.1f}")
            worst = max(worst, *map(abs, errors))
    return int(worst > TOLERANCE)


def _measure(key: str, bound: float, seconds: float) -> tuple[float, float, float]:
    """The mean of the metric, bytes per second that were acknowledged, and CPU in percent."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = {"metrics.listener": "127.0.0.1:0", "log.flush.policy": "os"}
        broker = stack.enter_context(TidelogProcess(Path(folder, "data"), settings=settings))
        loads.create_topic(broker.bootstrap, "t", 1)
        asyncio.run(_limit(broker.bootstrap, key, bound))
        idle_from = cpu_seconds(broker.pid)
        time.sleep(_IDLE_S)
        idle = (cpu_seconds(broker.pid) - idle_from) / _IDLE_S
        sent: list[int] = []
        stop = threading.Event()
        threads = [
            threading.Thread(target=_ask, args=(broker.bootstrap, _frame(key), sent, stop.is_set))
            for _ in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(_FILL_S)
        used, counted, begun = cpu_seconds(broker.pid), len(sent), time.monotonic()
        rates = []
        while time.monotonic() - begun < seconds:
            rates.append(_rate(broker.ready["metrics_port"]))
            time.sleep(_SAMPLE_S)
        elapsed = time.monotonic() - begun
        cpu = (cpu_seconds(broker.pid) - used) / elapsed - idle
        seen = sum(sent[counted:]) / elapsed
        stop.set()
        for thread in threads:
            thread.join()
        return statistics.fmean(rates), seen, 100 * cpu


async def _limit(bootstrap: str, key: str, bound: float) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_quotas({"client-id": wire.CLIENT_ID.decode()}, {key: bound})


def _frame(key: str) -> bytes:
    if key == "request_percentage":
        return wire.list_offsets_request("t", 0, [5] * 10)
    batch = wire.record_batch(
        [b"x" * 1_024] * (_BATCH_BYTES // 1_100), [1] * (_BATCH_BYTES // 1_100)
    )
    return wire.produce_request("t", 0, batch)


def _ask(bootstrap: str, frame: bytes, sent: list[int], is_over: Callable[[], bool]) -> None:
    connection = wire.Connection(bootstrap, timeout_s=120)
    while not is_over():
        connection.ask(frame)
        sent.append(len(frame) - 4)
    connection.close()


def _rate(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = _RATE.search(answer.read().decode())
    assert found is not None
    return float(found[1])


if __name__ == "__main__":
    sys.exit(main())
