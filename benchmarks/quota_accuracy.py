"""How exactly quotas hold: `python -m benchmarks.quota_accuracy`.

For each limit a client asks as fast as it may, on several connections. What it gets is compared
with what Kafka's formula gives to such a client (`broker.quotas.rates`, in a simulation without a
broker): the formula lets a client use the unused ten windows at once, after which it waits until
that burst leaves the windows, so over a short time the use is not the limit.

    metric   the mean of `tidelog_quota_rate`, the rate that the delays are computed from
    seen     bytes that the client itself counted, per second
    CPU      what the broker's process used, in percent of a core; with scrapes once a second

With `--kafka` the same client asks an Apache Kafka, whose own metric `request-time` is read by JMX.

Exits with 1 when live and computed figures differ by more than 5 % of the limit.
"""

import argparse
import asyncio
import contextlib
import heapq
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import loads, wire
from broker.quotas.rates import Rate
from client.admin import Admin
from tests.compat.brokers import TidelogProcess
from tests.support.kafka_peer import KafkaPeer, cpu_seconds, free_ports, tool_command

CONNECTIONS = 4
TOLERANCE = 0.05
WINDOWS, WINDOW_MS = 11, 1000
_FILL_S = 12.0
_SAMPLE_S = 1.0
_SERVICE_MS = 0.3
"""About what a request takes; the computed figures hardly depend on it."""

_RATE = re.compile(r"^tidelog_quota_rate\{[^}]*\} (\S+)$", re.MULTILINE)
_RECORDS = 15
_MS_PER_PERCENT = 10


def main() -> int:
    """Measures every limit and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=33.0, help="after the windows are full")
    parser.add_argument("--percent", default="5,10,20")
    parser.add_argument("--bytes", default="1000000,5000000")
    parser.add_argument("--kafka", action="store_true", help="request_percentage of Apache Kafka")
    options = parser.parse_args()
    measure = _measure_kafka if options.kafka else _measure
    limits = [("request_percentage", options.percent), ("producer_byte_rate", options.bytes)]
    print(f"{'limit':<28} {'what':<7} {'live':>14} {'computed':>14} {'apart':>7} {'CPU %':>6}")
    worst = 0.0
    for key, bounds in limits[:1] if options.kafka else limits:
        for text in bounds.split(","):
            bound = float(text)
            *live, cpu = measure(key, bound, options.seconds)
            computed = formula(key, bound, options.seconds)
            for what, own, other in zip(("metric", "seen"), live, computed, strict=True):
                if what == "seen" and key == "request_percentage":
                    continue
                apart = (own - other) / bound
                worst = max(worst, abs(apart))
                print(
                    f"{f'{key}={text}':<28} {what:<7} {own:>14,.2f} {other:>14,.2f} "
                    f"{apart:>+7.1%} {cpu:>6.1f}",
                    flush=True,
                )
    return int(worst > TOLERANCE)


def formula(key: str, bound: float, seconds: float) -> tuple[float, float]:
    """The mean of the metric, and bytes per second, of an ideal client and broker."""
    is_time = key == "request_percentage"
    size = len(_frame(key)) - 4
    amount = _SERVICE_MS / _MS_PER_PERCENT if is_time else size
    rate = Rate(WINDOWS, WINDOW_MS, 0)
    ready_ms = [0.0] * CONNECTIONS
    free_ms, sample_ms, seen, rates = 0.0, _FILL_S * 1000, 0, []
    end_ms = (_FILL_S + seconds) * 1000
    while (due_ms := heapq.heappop(ready_ms)) < end_ms:
        free_ms = now_ms = max(free_ms, due_ms) + _SERVICE_MS
        while sample_ms <= now_ms:
            rates.append(rate.measure(int(sample_ms)))
            sample_ms += _SAMPLE_S * 1000
        rate.record(amount, int(now_ms))
        delay_ms = rate.delay_ms(bound, int(now_ms))
        if now_ms >= _FILL_S * 1000:
            seen += size
        heapq.heappush(ready_ms, now_ms + (min(delay_ms, WINDOW_MS) if is_time else delay_ms))
    return statistics.fmean(rates), seen / seconds


def _measure(key: str, bound: float, seconds: float) -> tuple[float, float, float]:
    """The mean of the metric, bytes per second that were acknowledged, and CPU in percent."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = {"metrics.listener": "127.0.0.1:0", "log.flush.policy": "os"}
        broker = stack.enter_context(TidelogProcess(Path(folder, "data"), settings=settings))
        metrics_port = broker.ready["metrics_port"]
        load = stack.enter_context(_load(broker.bootstrap, key, bound))
        used, counted, begun = cpu_seconds(broker.pid), len(load), time.monotonic()
        rates = []
        while time.monotonic() - begun < seconds:
            rates.append(_rate(metrics_port))
            time.sleep(_SAMPLE_S)
        elapsed = time.monotonic() - begun
        cpu = (cpu_seconds(broker.pid) - used) / elapsed
        return statistics.fmean(rates), sum(load[counted:]) / elapsed, 100 * cpu


def _measure_kafka(key: str, bound: float, seconds: float) -> tuple[float, float, float]:
    """The same of an Apache Kafka; its metric is what it limits."""
    (port,) = free_ports(1)
    jmx = "-Dcom.sun.management.jmxremote"
    os.environ["JAVA_TOOL_OPTIONS"] = (
        f"{jmx}.port={port} {jmx}.rmi.port={port} {jmx}.host=127.0.0.1 {jmx}.authenticate=false "
        f"{jmx}.ssl=false -Djava.rmi.server.hostname=127.0.0.1"
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        broker = stack.enter_context(KafkaPeer(Path(folder, "kafka")))
        del os.environ["JAVA_TOOL_OPTIONS"]
        assert broker.process is not None
        pid = broker.process.pid
        load = stack.enter_context(_load(broker.bootstrap, key, bound))
        used, counted, begun = cpu_seconds(pid), len(load), time.monotonic()
        command = tool_command(
            *("org.apache.kafka.tools.JmxTool", "--attributes", "request-time", "--object-name"),
            f"kafka.server:type=Request,client-id={wire.CLIENT_ID.decode()}",
            *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"),
            *("--reporting-interval", str(int(_SAMPLE_S * 1000))),
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
            time.sleep(seconds)
            tool.terminate()
            lines, _ = tool.communicate()
        elapsed = time.monotonic() - begun
        cpu = (cpu_seconds(pid) - used) / elapsed
        rates = [float(line.rpartition(",")[2]) for line in lines.splitlines()[1:]]
        return statistics.fmean(rates), sum(load[counted:]) / elapsed, 100 * cpu


@contextlib.contextmanager
def _load(bootstrap: str, key: str, bound: float) -> Iterator[list[int]]:
    """A limit, and a client that asks as fast as it may; the sizes of its requests, growing."""
    loads.create_topic(bootstrap, "t", 1)
    asyncio.run(_limit(bootstrap, key, bound))
    sent: list[int] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=_ask, args=(bootstrap, _frame(key), sent, stop.is_set))
        for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(_FILL_S)
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()


async def _limit(bootstrap: str, key: str, bound: float) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_quotas({"client-id": wire.CLIENT_ID.decode()}, {key: bound})


def _frame(key: str) -> bytes:
    if key == "request_percentage":
        return wire.list_offsets_request("t", 0, [5] * 10)
    batch = wire.record_batch([b"x" * 1_024] * _RECORDS, [1] * _RECORDS)
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
