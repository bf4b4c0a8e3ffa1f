"""A process that sends to a store what a broker with tiered storage would send, and is none.

`python -m benchmarks.harness.stranger PARTITION URL REPORT` watches the directory of a partition.
Each closed segment is sent, read back and compared; what is in no closed segment is sent after
`remote.flush.ms` or `remote.flush.bytes`, read back and compared, as the bucket's journal does. The
store gets the same bytes in the same order, from outside of the broker: beside such a process, a
broker without tiered storage shows what the store itself takes away from this machine.

REPORT gets how many bytes wait and how many were sent, as JSON. Ends when it is killed.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from protocol.records.checksums import crc32c
from storage.remote.engine import open_store
from storage.remote.object_store import ObjectStore
from storage.remote.upload import VERIFY_BYTES

SLICE_BYTES = 1 << 20
FLUSH_S = 5.0
FLUSH_BYTES = 8 * 1024 * 1024
PAUSE_S = 0.2


class Stranger:
    """One partition and what the store has of it; each method's loop has a thread."""

    def __init__(self, partition: Path, store: ObjectStore, report: Path) -> None:
        self._partition = partition
        self._store = store
        self._report = report
        self._sent: set[str] = set()
        self._shipped: dict[str, int] = {}
        self._total = self._uploaded = self._entries = 0

    def run(self) -> None:
        """Send until the process ends."""
        Thread(target=self._ship, daemon=True).start()
        while True:
            for log in self._logs()[:-1]:
                if log.name not in self._sent:
                    self._upload(log)
                    self._sent.add(log.name)
            self._write_report()
            time.sleep(PAUSE_S)

    def _logs(self) -> list[Path]:
        return sorted(self._partition.glob("*.log"))

    def _upload(self, log: Path) -> None:
        size, crc, found = log.stat().st_size, 0, 0
        upload = self._store.begin_put(log.name, size)
        for part in _parts(log, 0, size):
            crc = crc32c(part, crc)
            upload.write(part)
        upload.finish()
        for start in range(0, size, VERIFY_BYTES):
            end = min(start + VERIFY_BYTES, size)
            found = self._store.crc32c_of(log.name, start, end, found)
        if crc != found:
            raise RuntimeError(f"{log.name} is not what was sent")
        self._uploaded += size
        self._write_report()

    def _ship(self) -> None:
        since_s = time.monotonic()
        while True:
            time.sleep(PAUSE_S)
            waiting = self._waiting()
            size = sum(end - start for _, start, end in waiting)
            if not waiting:
                since_s = time.monotonic()
            elif size >= FLUSH_BYTES or time.monotonic() - since_s >= FLUSH_S:
                parts: list[bytes] = []
                for log, start, end in waiting:
                    end = min(end, start + FLUSH_BYTES - sum(map(len, parts)))
                    if start < end:
                        parts += _parts(log, start, end)
                        self._shipped[log.name] = end
                key = f"journal-{self._entries}"
                self._entries += 1
                self._store.put_new(key, *parts)
                if not self._store.has(key, parts):
                    raise RuntimeError(f"{key} is not what was sent")
                since_s = time.monotonic()

    def _waiting(self) -> list[tuple[Path, int, int]]:
        found = []
        for log in self._logs():
            start, end = self._shipped.get(log.name, 0), log.stat().st_size
            if log.name not in self._sent and start < end:
                found.append((log, start, end))
        return found

    def _write_report(self) -> None:
        waiting = sum(log.stat().st_size for log in self._logs()[:-1] if log.name not in self._sent)
        waiting += sum(end - start for _, start, end in self._waiting())
        text = json.dumps({"waiting": waiting, "uploaded": self._uploaded})
        fresh = self._report.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self._report)


def _parts(log: Path, start: int, end: int) -> Iterator[bytes]:
    with log.open("rb") as file:
        file.seek(start)
        while start < end:
            part = file.read(min(SLICE_BYTES, end - start))
            start += len(part)
            yield part


if __name__ == "__main__":
    Stranger(Path(sys.argv[1]), open_store(sys.argv[2], "stranger"), Path(sys.argv[3])).run()
