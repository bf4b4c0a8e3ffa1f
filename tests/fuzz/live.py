"""Wrong frames for a live broker by the million: `python -m tests.fuzz.live --frames 2000000`.

Good requests of every API and version are cut at any byte, get wrong lengths, counts, enums and
varints at any place, keys and versions that there are not, headers of another form, tags without
end, a size that is not theirs, and the end of another request. Frames go over connections that stay
as long as the broker keeps them. `tests.support.siege` holds the broker to the rest: every log has
the same bytes, no handler stumbles, a bystander gets the same answer all the time, nothing is held
in the end. Broker and attackers share one process and one loop, uvloop as in `tidelog serve`: the
bystander's times are those of all of them together. Prints one line of JSON; another end than that
is a finding.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from protocol.api_keys import SUPPORTED, ApiKey
from protocol.headers import flexible_since
from tests.support.attacks import sized
from tests.support.siege import Siege, request_bytes, siege

MAY_WAIT = frozenset(
    {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH}
)
"""What an honest client waits for as well, or gets no answer to: Produce whose acks became 0.
Silence is no sign of a hang there."""

ATTACKERS = 24
SILENT_S, WAIT_S = 10.0, 0.02
HEADER_BYTES = 8
EXTREMES = (
    *(value.to_bytes(4, "big", signed=True) for value in (-(2**31), -2, -1, 0, 1, 2**31 - 1)),
    *(value.to_bytes(2, "big", signed=True) for value in (-(2**15), -1, 0, 2**15 - 1)),
    *(bytes([value]) for value in (0, 1, 2, 0x7F, 0x80, 0xFF)),
    b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 5,
)  # fmt: skip

Known = dict[tuple[ApiKey, int], bytes]


def good_requests() -> Known:
    return {
        (key, version): request_bytes(key, version)
        for key, versions in SUPPORTED.items()
        for version in range(versions.min, versions.max + 1)
    }


class Frames:
    """Wrong frames without end, each with its kind and whether its answer may be late."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._known = good_requests()
        self._keys = list(self._known)
        self._kinds: tuple[tuple[str, Callable[[ApiKey, int, bytes], bytes]], ...] = (
            ("cut", self._cut),
            ("extreme", self._extreme),
            ("inserted", self._inserted),
            ("field against its rest", self._rest),
            ("key or version", self._head),
            ("other header", self._other_header),
            ("tags", self._tags),
            ("spliced", self._spliced),
            ("flipped", self._flipped),
            ("size", self._size),
        )

    def __iter__(self) -> Iterator[tuple[str, bytes, bool]]:
        while True:
            key, version = self._source.choice(self._keys)
            kind, change = self._source.choice(self._kinds)
            frame = change(key, version, self._known[key, version])
            may_wait = kind == "size" or frame[5:6] == b"" or frame[5] in MAY_WAIT
            yield kind, frame, may_wait

    def _place(self, request: bytes) -> int:
        return self._source.randrange(min(HEADER_BYTES, len(request)), len(request) + 1)

    def _cut(self, key: ApiKey, version: int, request: bytes) -> bytes:
        return sized(request[: self._source.randrange(1, len(request))])

    def _extreme(self, key: ApiKey, version: int, request: bytes) -> bytes:
        at, wrong = self._place(request), self._source.choice(EXTREMES)
        return sized(request[:at] + wrong + request[at + len(wrong) :])

    def _inserted(self, key: ApiKey, version: int, request: bytes) -> bytes:
        at = self._place(request)
        return sized(request[:at] + self._source.choice(EXTREMES) + request[at:])

    def _rest(self, key: ApiKey, version: int, request: bytes) -> bytes:
        """A number that is just what is left, one less or one more."""
        at = self._place(request)
        width = self._source.choice((1, 2, 4))
        value = max(0, len(request) - at - width + self._source.choice((-1, 0, 1)))
        number = (value % 256**width).to_bytes(width, "big")
        return sized(request[:at] + number + request[at + width :])

    def _head(self, key: ApiKey, version: int, request: bytes) -> bytes:
        other = self._source.choice((key, self._source.randrange(-(2**15), 2**15)))
        number = self._source.choice((-1, version, SUPPORTED[key].max + 1, SUPPORTED[key].max + 2))
        head = other.to_bytes(2, "big", signed=True) + number.to_bytes(2, "big", signed=True)
        return sized(head + request[4:])

    def _other_header(self, key: ApiKey, version: int, request: bytes) -> bytes:
        """With tags where there are none, and the reverse."""
        end = HEADER_BYTES + 2 + int.from_bytes(request[HEADER_BYTES : HEADER_BYTES + 2], "big")
        if version >= flexible_since(key):
            return sized(request[:end] + request[end + 1 :])
        return sized(request[:end] + b"\0" + request[end:])

    def _tags(self, key: ApiKey, version: int, request: bytes) -> bytes:
        """At the end, where a flexible version has its count of tags."""
        count = self._source.choice((1, 2, 100, 3000))
        tag = self._source.choice((b"\x63\0", b"\0\0", b"\0\x05hello", b"\x01\xff\xff\xff\xff\x0f"))
        number = bytes([count]) if count < 128 else bytes([count & 127 | 128, count >> 7])
        return sized(request[:-1] + number + tag * count)

    def _spliced(self, key: ApiKey, version: int, request: bytes) -> bytes:
        other = self._known[self._source.choice(self._keys)]
        return sized(request[: self._place(request)] + other[self._place(other) :])

    def _flipped(self, key: ApiKey, version: int, request: bytes) -> bytes:
        changed = bytearray(request)
        for _ in range(self._source.choice((1, 2, 8))):
            changed[self._place(request) - 1] ^= 1 << self._source.randrange(8)
        return sized(bytes(changed))

    def _size(self, key: ApiKey, version: int, request: bytes) -> bytes:
        claim = self._source.choice(
            (-(2**31), -1, 0, 1, len(request) - 1, len(request) + 1, 2**31 - 1)
        )
        return claim.to_bytes(4, "big", signed=True) + request


async def attack(
    besieged: Siege, frames: Iterator[tuple[str, bytes, bool]], seen: Counter[str]
) -> None:
    """One attacker: frames over one connection until the broker closes it, then over the next."""
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    for kind, frame, may_wait in frames:
        if connection is None:
            connection = await asyncio.open_connection(besieged.broker.host, besieged.broker.port)
        reader, writer = connection
        seen[kind] += 1
        outcome = "answered"
        try:
            writer.write(frame)
            async with asyncio.timeout(WAIT_S if may_wait else SILENT_S):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            outcome = "closed"
        except TimeoutError:
            outcome = "waits" if may_wait else "silent"
            if not may_wait:
                seen[f"silent: {frame[:40].hex()}"] += 1
        seen[outcome] += 1
        if outcome != "answered":
            writer.transport.abort()
            connection = None
    if connection is not None:
        connection[1].transport.abort()


async def besiege(directory: Path, count: int, seed: int) -> dict[str, Any]:
    """Send `count` frames; what became of them, and how the bystander fared."""
    frames = iter(Frames(random.Random(seed)))
    limited = (next(frames) for _ in range(count))
    seen: Counter[str] = Counter()
    async with siege(directory) as besieged:
        assert besieged.bystander is not None
        await asyncio.sleep(1)
        alone = list(besieged.bystander.times_s)
        besieged.bystander.times_s.clear()
        begun_s, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(attack(besieged, limited, seen) for _ in range(ATTACKERS)))
        lasted_s, cpu_s = time.monotonic() - begun_s, time.process_time() - cpu_s
        besieged.answered = seen["answered"]
        times = besieged.bystander.times_s
        return {
            "frames": count,
            "seed": seed,
            **dict(seen.most_common()),
            "seconds": round(lasted_s, 1),
            "cpu_seconds": round(cpu_s, 1),
            "bystander_median_alone_ms": round(statistics.median(alone) * 1000, 2),
            "bystander_median_ms": round(statistics.median(times) * 1000, 2),
            "bystander_p99_ms": round(_p99(times) * 1000, 2),
        }


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(besiege(Path(folder), options.frames, options.seed))
        print(json.dumps(found))
        raise SystemExit(int(found.get("silent", 0) > 0))


if __name__ == "__main__":
    main()
