"""Microseconds per batch of the produce path's record work, beside a bare CRC-32C of the bytes.

    python benchmarks/bench_records.py             the loops as they are loaded
    python benchmarks/bench_records.py --plain     the loops as plain Python

Prints one line per (batch size, record size, codec): best of several rounds, since what disturbs a
run only ever makes it slower.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

if "--plain" in sys.argv:

    class _PlainLoops:
        """Finds the loop modules by their source, whatever extension lies beside it."""

        @staticmethod
        def find_spec(
            name: str, path: object = None, target: object = None
        ) -> importlib.machinery.ModuleSpec | None:
            """The source's spec for a loop module, None for everything else."""
            if not (name.startswith("protocol.records.") and name.endswith("_loops")):
                return None
            source = Path(__file__).parents[1].joinpath(*name.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(name, source)

    sys.meta_path.insert(0, _PlainLoops)

from protocol.records import record_loops
from protocol.records.builder import build_batch
from protocol.records.checksums import crc32c
from protocol.records.layout import ATTRIBUTES_AT, RECORDS_AT, Codec, TimestampType
from protocol.records.record import Record
from storage.append.plan import AppendRules, plan_append

NOW_MS = 1_700_000_000_000


def best_us(call: Callable[[], object], budget_s: float = 0.25) -> float:
    """The best time of one `call`, in microseconds, spending about `budget_s`."""
    call()
    started = time.perf_counter()
    call()
    once = max(time.perf_counter() - started, 1e-7)
    repeats = max(1, int(budget_s / 7 / once))
    best = once
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - started) / repeats)
    return best * 1e6


def records_of(total: int, size: int) -> list[Record]:
    """Records with `size` bytes of half-compressible value, about `total` bytes in all."""
    source = random.Random(7)
    words = [source.randbytes(6).hex().encode() for _ in range(300)]
    made = []
    for offset in range(total // (size + 9)):
        value = b" ".join(source.choice(words) for _ in range(size // 13 + 1))[:size]
        made.append(Record(offset, NOW_MS + offset, None, value))
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true", help="run the loops as plain Python")
    parser.parse_args()
    print(f"loops compiled: {record_loops.COMPILED}; microseconds per batch, best of 7")
    print(f"{'batch':>8} {'record':>6} {'codec':>7} {'stored':>8} {'crc32c':>8} {'plan':>9} "
          f"{'stamped':>9} {'ns/record':>9}")  # fmt: skip
    create_time = AppendRules(max_message_bytes=1 << 21)
    stamping = replace(create_time, timestamp_type=TimestampType.LOG_APPEND_TIME)
    for total in (16 * 1024, 1 << 20):
        for size in (100, 1000):
            records = records_of(total, size)
            for codec in Codec:
                measure((total, size), records, codec, (create_time, stamping))


def measure(
    sizes: tuple[int, int],
    records: list[Record],
    codec: Codec,
    rules: tuple[AppendRules, AppendRules],
) -> None:
    """Print one line: in place on a CreateTime topic, and on a LogAppendTime one with a new CRC."""
    data = build_batch(records, codec=codec)
    buffer = bytearray(data)
    view = memoryview(buffer)
    covered = view[ATTRIBUTES_AT:]

    def plan(with_rules: AppendRules) -> None:
        # The base offset was stamped by the previous round; a client sends 0.
        buffer[:RECORDS_AT] = data[:RECORDS_AT]
        plan_append(
            view,
            rules=with_rules,
            now_ms=NOW_MS,
            next_offset=123_456,
            leader_epoch=0,
            produce_version=9,
        )

    crc = best_us(lambda: crc32c(covered))
    create = best_us(lambda: plan(rules[0]))
    stamped = best_us(lambda: plan(rules[1]))
    print(
        f"{sizes[0]:>8} {sizes[1]:>6} {codec.name.lower():>7} {len(data):>8} {crc:>8.2f} "
        f"{create:>9.2f} {stamped:>9.2f} {(create - crc) / len(records) * 1000:>9.1f}"
    )


if __name__ == "__main__":
    main()
