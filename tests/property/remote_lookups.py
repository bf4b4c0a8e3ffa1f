"""Lookups by time over local and remote segments, compared with a list of all records.

    python -m tests.property.remote_lookups --lookups 1000000

Each log has records out of order, of any codec and index interval; all but its last segment are in
a simulated store, and no byte of them is in memory when a lookup begins. Prints one line of JSON:
wrong answers, GETs per lookup whose answer is remote, the most of one lookup.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass, field
from itertools import accumulate

from protocol.records.layout import Codec
from tests.support.tiered import TieredHarness, forget_all, look_up, with_store

_EXAMPLES_MAX = 10


@dataclass(slots=True, kw_only=True)
class LookupTally:
    """Counts of many lookups."""

    lookups: int = 0
    remote: int = 0
    gets: int = 0
    gets_max: int = 0
    got_bytes: int = 0
    wrong: list[str] = field(default_factory=list)


def compare_lookups(tally: LookupTally, *, seed: int, lookups: int) -> None:
    """Compare `lookups` lookups in one log."""
    rng = random.Random(seed)
    tiered, newest = _filled(rng)
    every = tiered.all_records()
    # The first record at or after T is the first whose running maximum reaches T.
    maxima = list(accumulate((at for _, at in every), max))
    tiered.tier()
    local = tiered.log.segments.first_local.base_offset
    assert tiered.log.segments.first_local is tiered.log.segments.active
    for _ in range(lookups):
        timestamp = rng.randrange(5_000, newest + 5_000)
        forget_all(tiered.log)
        before = tiered.store.count_gets
        found = look_up(tiered.log, tiered.store, timestamp)
        spent = tiered.store.count_gets - before
        expected = _first_reaching(every, maxima, timestamp)
        if (None if found is None else found.offset) != expected:
            tally.wrong.append(f"seed {seed} at {timestamp}: {found}, expected {expected}")
        tally.lookups += 1
        tally.gets += spent
        tally.gets_max = max(tally.gets_max, spent)
        tally.remote += found is not None and found.offset < local
    forget_all(tiered.log)
    largest = with_store(tiered.store, tiered.log.offset_for_max_timestamp)
    if largest is None or largest.offset != _first_reaching(every, maxima, maxima[-1]):
        tally.wrong.append(f"seed {seed}: the largest timestamp is at {largest}")
    tally.got_bytes += tiered.store.got_bytes


def _filled(rng: random.Random) -> tuple[TieredHarness, int]:
    """A log of some segments, and its newest time as far as the clock goes."""
    codec = rng.choice([Codec.NONE, Codec.GZIP])
    tiered = TieredHarness(
        segment_bytes=40_000 if codec is Codec.NONE else 15_000,
        index_interval_bytes=rng.choice([0, 300, 2_000]),
    )
    now = 10_000
    for _ in range(600):
        now += rng.randrange(30)
        times = [max(0, now + rng.randrange(-4_000, 400)) for _ in range(rng.randrange(1, 12))]
        if rng.random() < 0.01:
            times[0] += 3_000
        tiered.append(*times, codec=codec, value=b"x" * rng.randrange(200), flush=False)
    tiered.log.flush()
    return tiered, now


def _first_reaching(every: list[tuple[int, int]], maxima: list[int], timestamp: int) -> int | None:
    """By looking at one record after the other."""
    for (offset, _), maximum in zip(every, maxima, strict=True):
        if maximum >= timestamp:
            return offset
    return None


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lookups", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tally, seed, per_log = LookupTally(), arguments.seed, 5_000
    started = time.perf_counter()
    while tally.lookups < arguments.lookups:
        compare_lookups(tally, seed=seed, lookups=min(per_log, arguments.lookups - tally.lookups))
        seed += 1
    print(
        json.dumps(
            {
                "lookups": tally.lookups,
                "wrong": len(tally.wrong),
                "remote": tally.remote,
                "gets_per_remote_lookup": round(tally.gets / max(1, tally.remote), 4),
                "gets_max": tally.gets_max,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
    )
    for example in tally.wrong[:_EXAMPLES_MAX]:
        print(example, file=sys.stderr)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
