"""What a figure must be read with: the machine, the disk and the versions."""

import importlib.metadata
import mmap
import multiprocessing
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

from tests.support.kafka_peer import NEWEST

TOUCH_SECONDS = 120.0
PIECE_BYTES = 256 * 2**20
SPARED_BYTES = 2**30
"""What `touch_memory` leaves to others."""


def describe(folder: Path) -> dict[str, str]:
    """Facts about this machine and the disk that holds `folder`, as labels and texts."""
    return {
        "processor": f"{_cpu_model()}, {os.cpu_count()} logical cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "disk": _file_system(folder),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "Java": _java_version(),
        "Apache Kafka": NEWEST,
        "Tidelog": f"{importlib.metadata.version('tidelog')} ({_revision()})",
        "librdkafka": _librdkafka_version(),
    }


def touch_memory(seconds: float = TOUCH_SECONDS) -> None:
    """Write to the memory that is free, for at most `seconds`, and give it back.

    A virtual machine gets much of its memory from the host at the first write to it, at 11 us for
    4 KiB where it was measured; later allocations cost 1.3 us. The first to fill the page cache
    pays for that: up to two thirds of the CPU of an append of 16 KB, with any broker.
    """
    child = multiprocessing.get_context("spawn").Process(target=_touch, args=(seconds,))
    child.start()
    child.join()


def _touch(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    room_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") - SPARED_BYTES
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    pieces = []
    for _ in range(room_bytes // PIECE_BYTES):
        if time.monotonic() > deadline:
            break
        pieces.append(mmap.mmap(-1, PIECE_BYTES, flags=flags))


def markdown(facts: dict[str, str]) -> str:
    """The facts as a Markdown list."""
    return "\n".join(f"* {label}: {text}" for label, text in facts.items())


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _file_system(folder: Path) -> str:
    folder = folder.resolve()
    best = ("", "", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, place, kind = line.split()[:3]
        if folder.is_relative_to(place) and len(place) > len(best[1]):
            best = (device, place, kind)
    return f"{best[2]} on {Path(best[0]).name}"


def _java_version() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition('"')[2].partition('"')[0]


def _librdkafka_version() -> str:
    import confluent_kafka

    return confluent_kafka.libversion()[0]


def _revision() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "not from a checkout"
