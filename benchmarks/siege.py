"""Brokers under attack: how long a bystander waits, and how much memory the broker takes.

Each attack of `tests.support.attacks` meets a fresh broker with 709 topics and 120 MB of data. A
process of its own asks for an offset every few milliseconds all the while; the table has its
longest wait and the broker's largest resident memory. A wait counts from question to answer, so it
contains what the machine itself makes late: `nothing` is the row to compare with.
`python -m benchmarks.siege [--checkouts before=DIR,after=.] [--attacks NAME,...] [--idle N]`

A checkout is a directory of this repository with a `.venv` of its own; the frames are always those
of the checkout that runs this.
"""

import argparse
import contextlib
import multiprocessing
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.harness import loads, machine, report, wire
from protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.attacks import ATTACKS, TOPIC, TOPICS, Attack, framed

FILL_BYTES = 120_000_000
BATCH_BYTES = 1_000_000
PROBE_INTERVAL_S = 0.005
QUIET_S = 1.0
"""How long the broker is watched before and after an attack."""

OTHER_CONNECTIONS = 1_000
"""Connections that the broker allows beside the idle ones: the attack's and the bystander's."""

ATTACK_MAX_S = 120.0
UNREAD_S = 5.0
"""How long answers are left unread."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A copy of this repository to measure."""

    name: str
    path: Path

    @property
    def python(self) -> str:
        """The interpreter that has its dependencies."""
        own = self.path / ".venv" / "bin" / "python"
        return str(own) if own.exists() else sys.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one attack did to one broker."""

    worst_s: float
    asked: int
    peak_bytes: int
    before_bytes: int
    took_s: float

    @property
    def shown(self) -> list[str]:
        """The cells of the table."""
        return [
            f"{self.worst_s * 1e3:,.0f} ms",
            f"{self.before_bytes // MIB} to {self.peak_bytes // MIB} MiB",
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.siege", description=__doc__)
    parser.add_argument("--checkouts", default="here=.", help="NAME=DIR, separated by commas")
    parser.add_argument("--attacks", default=",".join(["nothing", *ATTACKS]))
    parser.add_argument("--idle", type=int, default=0, help="idle connections beside the attack")
    options = parser.parse_args(arguments)
    checkouts = [
        Checkout(name=name, path=Path(path).resolve())
        for name, _, path in (text.partition("=") for text in options.checkouts.split(","))
    ]
    rows = []
    for name in options.attacks.split(","):
        attack = ATTACKS.get(name)
        outcomes = [besiege(checkout, attack, options.idle) for checkout in checkouts]
        title = "nothing" if attack is None else attack.title
        rows.append([title, *(cell for outcome in outcomes for cell in outcome.shown)])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-siege-") as folder:
        facts = machine.markdown(machine.describe(Path(folder)))
    head = ["attack"]
    for checkout in checkouts:
        head += [f"{checkout.name}: longest wait", f"{checkout.name}: memory"]
    print(f"{facts}\n\n{report.table(head, rows)}")
    return 0


def besiege(checkout: Checkout, attack: Attack | None, idle: int = 0) -> Outcome:
    """Start the checkout's broker, attack it, and report the outcome."""
    data = b"" if attack is None else attack.data()
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-siege-")))
        process, port = stack.enter_context(_broker(checkout, folder, idle))
        _fill(f"127.0.0.1:{port}")
        for _ in range(idle):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        stop, begun = context.Event(), context.Event()
        receiving, sending = context.Pipe(duplex=False)
        bystander = context.Process(target=_watch, args=(port, begun, stop, sending))
        bystander.start()
        begun.wait(60)
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
        before_bytes = _status_bytes(process.pid, "VmRSS")
        time.sleep(QUIET_S)
        started = time.perf_counter()
        if attack is not None:
            _attack(port, attack, data)
        took_s = time.perf_counter() - started
        time.sleep(QUIET_S)
        stop.set()
        worst_s, asked = receiving.recv() if receiving.poll(ATTACK_MAX_S) else (ATTACK_MAX_S, 0)
        bystander.kill()
        bystander.join()
        peak_bytes = _status_bytes(process.pid, "VmHWM")
    return Outcome(
        worst_s=worst_s,
        asked=asked,
        peak_bytes=peak_bytes,
        before_bytes=before_bytes,
        took_s=took_s,
    )


@contextlib.contextmanager
def _broker(
    checkout: Checkout, folder: Path, idle: int
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={folder}", "metrics.listener="]
    settings += ["auto.create.topics.enable=false", "log.flush.policy=os"]
    room = idle + OTHER_CONNECTIONS
    settings += [f"max.connections={room}", f"max.connections.per.ip={room}"]
    settings += ["socket.listen.backlog.size=4096"]
    command = [checkout.python, "-m", "broker", *settings]
    with subprocess.Popen(
        command, cwd=checkout.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield process, int(line.split()[1].rpartition(":")[2])
        finally:
            process.kill()


def _fill(bootstrap: str) -> None:
    names = [TOPIC, *(f"{TOPIC}-{number}" for number in range(TOPICS))]
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    connection = wire.Connection(bootstrap)
    connection.ask(framed(CreateTopicsRequest(topics=new, timeout_ms=60_000), 4))
    connection.close()
    loads.raw_produce(bootstrap, TOPIC, total_bytes=FILL_BYTES, batch_bytes=BATCH_BYTES)


def _watch(port: int, begun: Event, stop: Event, sending: "object") -> None:
    """A process of its own: ask until stopped, then send the longest wait (s) and a count."""
    connection = wire.Connection(f"127.0.0.1:{port}", timeout_s=ATTACK_MAX_S)
    question = wire.list_offsets_request(TOPIC, 0, [-1])
    worst_s, asked = 0.0, 0
    connection.ask(question)
    begun.set()
    while not stop.is_set():
        started = time.perf_counter()
        try:
            connection.ask(question)
        except OSError:
            worst_s = ATTACK_MAX_S
            break
        worst_s = max(worst_s, time.perf_counter() - started)
        asked += 1
        time.sleep(PROBE_INTERVAL_S)
    sending.send((worst_s, asked))  # type: ignore[attr-defined]


def _attack(port: int, attack: Attack, data: bytes) -> None:
    """Send `data` on every connection; read what comes back until there is no more, or do not."""
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(attack.connections)]
    if not attack.reads:
        for peer in peers:
            peer.sendall(data)
        time.sleep(UNREAD_S)
    else:
        for peer in peers:
            _converse(peer, data)
    for peer in peers:
        peer.close()


def _converse(peer: socket.socket, data: bytes) -> None:
    """Send all, reading meanwhile, and end when the broker closes or has nothing more to say."""
    peer.setblocking(False)
    left = memoryview(data)
    end = time.monotonic() + ATTACK_MAX_S
    expected = _frames(data)
    received, answered, pending = 0, 0, b""
    poll = select.poll()  # beside 10,000 idle connections the descriptor is beyond select()
    while time.monotonic() < end and answered < expected:
        poll.register(peer, select.POLLIN | (select.POLLOUT if left else 0))
        ready = sum(events for _, events in poll.poll(1_000))
        writable, readable = ready & select.POLLOUT, ready & ~select.POLLOUT
        try:
            if writable:
                left = left[peer.send(left[:MIB]) :]
            if readable:
                chunk = peer.recv(MIB)
                if not chunk:
                    return
                received += len(chunk)
                answered, pending = _count(answered, pending + chunk)
        except BlockingIOError:
            continue
        except OSError:
            return


def _frames(data: bytes) -> int:
    """How many requests there are."""
    count, position = 0, 0
    while position < len(data):
        position += 4 + int.from_bytes(data[position : position + 4], "big")
        count += 1
    return count


def _count(answered: int, data: bytes) -> tuple[int, bytes]:
    """The answers that are whole, and what of the next is there."""
    position = 0
    while len(data) - position >= 4:
        size = int.from_bytes(data[position : position + 4], "big")
        if len(data) - position < 4 + size:
            break
        position += 4 + size
        answered += 1
    return answered, data[position:]


def _status_bytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())
