"""kcat, driven as a person would from a shell (see README.md).

kcat cannot set a record's timestamp, so what it produces carries the time of sending. It produces
to one partition per run, from lines of standard input; it has no admin commands.
"""

# mypy: ignore-errors
# It runs under other interpreters and with other releases of its library than mypy sees.

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from contract import Arguments, emit, main, wants_more

_FORMAT = '[%p,%o,%T,"%k","%s"]\n'


def _kcat(arguments: Arguments, *options: str) -> list:
    security = arguments.librdkafka_security.items()
    settings = [word for key, value in security for word in ("-X", f"{key}={value}")]
    return ["kcat", "-q", "-b", arguments["bootstrap"], *settings, *options]


def produce(arguments: Arguments) -> None:
    for wanted in range(arguments.partitions):
        lines = []
        for i in range(wanted, arguments.count, arguments.partitions):
            _, _, key, value, _ = arguments.record(i)
            lines.append(key + b"\t" + value + b"\n")
        command = _kcat(arguments, "-P", "-t", arguments["topic"], "-p", str(wanted), "-K", "\t")
        command += ["-z", arguments.codec, "-X", "acks=all", "-H", "n=kcat"]
        subprocess.run(command, input=b"".join(lines), check=True, timeout=arguments.timeout_s)
    emit(acked=arguments.count)


def consume(arguments: Arguments) -> None:
    """One balanced consumer (`-G`); it commits by itself when it ends."""
    settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-u"]
    if "isolation" in arguments:
        settings += ["-X", "isolation.level=" + arguments["isolation"]]
    if "stop" not in arguments:
        settings += ["-c", arguments["count"]]
    command = _kcat(arguments, "-f", _FORMAT, *settings, "-G", arguments["group"])
    command[1:2] = ["-v"]
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(
            [*command, arguments["topic"]], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        threading.Thread(target=_report_assignments, args=(child.stderr, log)).start()
        records = []
        reader = threading.Thread(target=_collect, args=(child.stdout, records))
        reader.start()
        started = time.monotonic()
        while child.poll() is None and wants_more(arguments, len(records), started):
            time.sleep(0.05)
        if "stop" in arguments:
            child.send_signal(signal.SIGINT)
        child.wait(20)
        reader.join(5)
    emit(records=records)


def _collect(stream: object, records: list) -> None:
    records.extend(json.loads(line) for line in stream if line.startswith(b"["))


def _report_assignments(stream: object, log: object) -> None:
    for raw in stream:
        line = raw.decode()
        log.write(line)
        if "assigned:" in line and "rebalanced" in line:
            parts = line.split("assigned:", 1)[1].split(",")
            emit(assigned=sorted(int(part.split("[")[1].split("]")[0]) for part in parts))


def times(arguments: Arguments) -> None:
    found = {}
    for timestamp in arguments.timestamps:
        asked = []
        for partition in range(arguments.partitions):
            asked += ["-t", "{}:{}:{}".format(arguments["topic"], partition, timestamp)]
        answer = subprocess.run(
            _kcat(arguments, "-Q", *asked), stdout=subprocess.PIPE, check=True, timeout=20
        )
        found[timestamp] = {}
        for line in answer.stdout.decode().splitlines():
            place, _, offset = line.partition(" offset ")
            partition = place.rsplit("[", 1)[1].rstrip("]")
            found[timestamp][partition] = int(offset) if int(offset) >= 0 else None
    emit(found=found)


def transact(arguments: Arguments) -> None:
    """kcat commits one transaction per run, and aborts it when it is interrupted."""
    for first in (0, 10):
        values = "".join(f"committed-{i}\n" for i in range(first, first + 10))
        command = _kcat(arguments, "-P", "-t", arguments["topic"], "-p", "0")
        command += ["-X", "transactional.id=" + arguments["id"]]
        subprocess.run(command, input=values.encode(), check=True, timeout=arguments.timeout_s)
    emit(committed=20, aborted=0)


if __name__ == "__main__":
    os.environ.pop("KCAT_CONFIG", None)
    sys.stderr.flush()
    main(
        {
            "produce": produce,
            "consume": consume,
            "member": consume,
            "times": times,
            "transact": transact,
        }
    )
