"""What every fuzzer here does: change good messages, give them to a target, note what is wrong.

Two ways to make inputs. `drive` changes good messages at random, knows nothing of the code, and
repeats a run by its seed. `drive_guided` has libFuzzer (the package atheris, `make fuzz-guided`)
keep the inputs that reach code no other has reached.
"""

import contextlib
import gc
import math
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType

EXAMPLES_MAX = 5
CHANGES = (1, 1, 1, 2, 3, 8)
"""How many changes a good message gets."""

LENGTHS = (1, 1, 2, 5, 50)
"""How many bytes a change may take away."""

LOOKS_EVERY = 500
"""Inputs between two looks at the clock of CPU, which is a call of the kernel."""

CPU_MS_MAX = 50.0
"""The most that one input may cost; asked three times, as a collection of garbage costs more."""

GUIDED_BYTES_MAX = 4096
OWN = frozenset({"broker", "config", "protocol", "storage", "values"})
"""What guides: the packages under test."""

Target = Callable[[bytes], object]
"""Reads an input; raises a refusal, or returns what it made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One reader of bytes from elsewhere.

    Attributes:
        target: gives an input to it.
        seeds: good inputs to begin from.
        refusals: what it may raise; another exception is a finding.
        pieces: what is put into good inputs.
        share: how many of the inputs of others it gets; less if it is slow.
    """

    target: Target
    seeds: Sequence[bytes]
    refusals: tuple[type[Exception], ...]
    pieces: Sequence[bytes]
    share: float = 1.0


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one machine made of its inputs."""

    inputs: int = 0
    refused: int = 0
    accepted: int = 0
    asked_for_more: int = 0
    slowest_cpu_ms: float = 0.0
    findings: list[str] = field(default_factory=list)

    def note(self, finding: str) -> None:
        if len(self.findings) < EXAMPLES_MAX:
            self.findings.append(finding)


def mutated(source: random.Random, machine: Machine) -> bytes:
    """Random bytes, or a good message with a few changes.

    `int(part() * n)` chooses out of n in a third of the time of `randrange` and `choice`.
    """
    part, seeds, pieces = source.random, machine.seeds, machine.pieces
    if part() < 0.05:
        return source.randbytes(int(part() * 200))
    message = bytearray(seeds[int(part() * len(seeds))])
    for _ in range(CHANGES[int(part() * len(CHANGES))]):
        at = int(part() * (len(message) + 1))
        end = min(len(message), at + LENGTHS[int(part() * len(LENGTHS))])
        match int(part() * 6):
            case 0:
                message[at:at] = pieces[int(part() * len(pieces))]
            case 1:
                message[at:end] = pieces[int(part() * len(pieces))]
            case 2:
                del message[at:end]
            case 3:
                message[at:at] = message[at:end]
            case 4:
                message[at:end] = source.randbytes(end - at)
            case 5:
                other = seeds[int(part() * len(seeds))]
                message[at:] = other[int(part() * (len(message) + 1)) :]
    return bytes(message)


def drive(
    machine: Machine,
    inputs: int,
    seed: int,
    *,
    expected: Sequence[object] | None = None,
    cpu_s: float = math.inf,
) -> Tally:
    """Give one machine its inputs, or as many of them as `cpu_s` seconds of CPU are enough for.

    With `expected`, a result that is none of these is a finding.
    """
    source, tally = random.Random(seed), Tally()
    first = machine.target(machine.seeds[0])  # a good message
    assert expected is None or first in expected
    clock_ns, until_s = time.perf_counter_ns, time.process_time() + cpu_s
    for number in range(inputs):
        if number % LOOKS_EVERY == 0 and time.process_time() > until_s:
            break
        tally.inputs += 1
        message = mutated(source, machine)
        begun_ns = clock_ns()
        try:
            result = machine.target(message)
        except machine.refusals:
            tally.refused += 1
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            tally.note(f"{message!r}: {traceback.format_exception_only(error)[-1].strip()}")
        else:
            tally.accepted += result is not None
            tally.asked_for_more += result is None
            if expected is not None and result not in expected:
                tally.note(f"{message!r} gives {result}")
        # The clock of the thread is a call of the kernel, which costs more than most readers. Time
        # on the wall bounds it from above, so that only the slowest inputs so far need it.
        if (clock_ns() - begun_ns) / 1e6 > tally.slowest_cpu_ms:
            spent_ms = _least_cpu_ms(machine, message)
            if spent_ms > CPU_MS_MAX:
                tally.note(f"{message!r} takes {spent_ms:.0f} ms")
            tally.slowest_cpu_ms = max(tally.slowest_cpu_ms, spent_ms)
    return tally


def _least_cpu_ms(machine: Machine, message: bytes) -> float:
    def once() -> float:
        begun_s = time.thread_time()
        with contextlib.suppress(Exception):  # it was judged before
            machine.target(message)
        return (time.thread_time() - begun_s) * 1000

    return min(once() for _ in range(3))


def drive_guided(machine: Machine, inputs: int, seed: int) -> None:
    """Give one machine inputs that follow the code; ends the process, with a code if one is wrong.

    libFuzzer writes the input, the exception, how many inputs there were and what they cover.
    """
    import atheris  # type: ignore[import-untyped, unused-ignore]

    def one(message: bytes) -> None:
        with contextlib.suppress(*machine.refusals):
            machine.target(message)

    for good in machine.seeds:
        one(good)  # so that what is imported or written late is there to be instrumented
    for function in [one for one in gc.get_objects() if isinstance(one, FunctionType)]:
        is_written = function.__code__.co_filename.startswith("<protocol.")  # from declarations
        if is_written or (function.__module__ or "").partition(".")[0] in OWN:
            atheris.instrument_func(function)
    with tempfile.TemporaryDirectory() as corpus:
        for number, good in enumerate(machine.seeds):
            Path(corpus, str(number)).write_bytes(good)
        words = [f"-runs={inputs}", f"-seed={seed % 2**31 or 1}", f"-max_len={GUIDED_BYTES_MAX}"]
        words += ["-timeout=10", "-print_final_stats=1", "-verbosity=0", corpus]
        atheris.Setup([sys.argv[0], *words], one)
        atheris.Fuzz()
