"""The cells of the comparison: one load with its parameters each.

A cell is run against a broker by `Cell.run`, which prepares a topic (filling it where the load
reads), drives the load and deletes the topic again; only the load itself is watched.
`higher_is_better` says how to read its value.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.harness import loads

Kind = Literal["produce", "consume", "paced", "end-to-end", "librdkafka", "librdkafka-read", "raw"]

KIB_BATCH = 16_384
MIB_BATCH = 1_000_000

PACED_RATE = 10_000
PACED_WARM_UP = 4
"""One part in so many of a paced load is not counted: connecting, the JVM's first requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load. `records` of `size` bytes, in batches of `batch_bytes` at most."""

    kind: Kind
    records: int
    size: int = 1_024
    batch_bytes: int = KIB_BATCH
    codec: str = "none"
    partitions: int = 1

    @property
    def title(self) -> str:
        """The cell in words; the same for every run, so that results can be matched."""
        size = "100 B" if self.size == 100 else f"{self.size // 1_024} KB"
        batch = "16 KB" if self.batch_bytes == KIB_BATCH else "1 MB"
        many = f", {self.partitions} partitions" if self.partitions > 1 else ""
        return {
            "produce": f"produce {size}, {batch} batches, {self.codec}{many}",
            "consume": f"consume {size}{many}",
            "paced": f"p99 of produce at 10,000/s, {size}",
            "end-to-end": f"p99 end to end, one at a time, {size}",
            "librdkafka": f"librdkafka produce {size}, {self.codec}",
            "librdkafka-read": f"librdkafka consume {size}{many}",
            "raw": f"raw requests of {batch}",
        }[self.kind]

    @property
    def unit(self) -> str:
        """What its value counts."""
        if self.kind == "raw":
            return "MB/s"
        return "records/s" if self.higher_is_better else "ms"

    @property
    def higher_is_better(self) -> bool:
        """False for latencies."""
        return self.kind not in {"paced", "end-to-end"}

    @property
    def needs_protocol(self) -> bool:
        """False where a server that speaks no Kafka can be driven too."""
        return self.kind != "raw"

    def shortened(self, factor: int) -> "Cell":
        """The same cell with fewer records, for a smoke run; its title stays."""
        return replace(self, records=max(200, self.records // factor))

    def run(
        self, bootstrap: str, cpu_seconds: Callable[[], float], *, speaks_kafka: bool = True
    ) -> tuple[float, float]:
        """Its value for the broker at an address, and the CPU seconds that the load took there.

        `cpu_seconds` gives what the broker has used so far.

        Raises:
            loads.LoadFailed: the load did not get through.
        """
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        if not speaks_kafka:
            begun = cpu_seconds()
            value = self._raw(bootstrap, topic, checked=False)
            return value, cpu_seconds() - begun
        loads.create_topic(bootstrap, topic, self.partitions)
        try:
            if self.kind in {"consume", "librdkafka-read"}:
                self._fill(bootstrap, topic)
            begun = cpu_seconds()
            value = self._drive(bootstrap, topic)
            return value, cpu_seconds() - begun
        finally:
            loads.delete_topic(bootstrap, topic)

    def _drive(self, bootstrap: str, topic: str) -> float:
        match self.kind:
            case "produce":
                return self._java_produce(bootstrap, topic).rate
            case "paced":
                return self._java_produce(bootstrap, topic, records_per_second=PACED_RATE).p99_ms
            case "consume":
                return loads.java_consume(bootstrap, topic, records=self.records)
            case "end-to-end":
                found = loads.java_end_to_end(
                    bootstrap, topic, records=self.records, size=self.size
                )
                return found["p99_ms"]
            case "librdkafka":
                return loads.librdkafka_produce(
                    bootstrap, topic, records=self.records, size=self.size, codec=self.codec
                )
            case "librdkafka-read":
                return loads.librdkafka_consume(bootstrap, topic, records=self.records)
            case "raw":
                return self._raw(bootstrap, topic, checked=True)

    def _java_produce(
        self, bootstrap: str, topic: str, records_per_second: int = -1
    ) -> loads.Produced:
        return loads.java_produce(
            bootstrap,
            topic,
            records=self.records,
            size=self.size,
            batch_bytes=self.batch_bytes,
            codec=self.codec,
            records_per_second=records_per_second,
            warm_up_records=self.records // PACED_WARM_UP if self.kind == "paced" else 0,
        )

    def _fill(self, bootstrap: str, topic: str) -> None:
        loads.librdkafka_produce(bootstrap, topic, records=self.records, size=self.size)

    def _raw(self, bootstrap: str, topic: str, *, checked: bool) -> float:
        rate = loads.raw_produce(
            bootstrap,
            topic,
            total_bytes=self.records * self.size,
            batch_bytes=self.batch_bytes,
            checked=checked,
        )
        return rate / 1e6


def standard_cells() -> Iterator[Cell]:
    """The cells of `make bench`: both record sizes, both batch sizes, none and lz4, and more.

    The number of records keeps a run between one second and a few, the start of the tool included:
    the whole comparison has to fit into three quarters of an hour.
    """
    yield from _throughput_cells(partitions=1)
    yield from (
        Cell(kind="raw", records=300_000),
        Cell(kind="raw", records=400_000, batch_bytes=MIB_BATCH),
        Cell(kind="paced", records=80_000),
        Cell(kind="end-to-end", records=2_000),
        Cell(kind="librdkafka", records=500_000, size=100),
        Cell(kind="librdkafka", records=150_000),
        Cell(kind="librdkafka-read", records=2_000_000, size=100),
        Cell(kind="librdkafka-read", records=2_000_000, size=100, partitions=16),
    )
    yield from _throughput_cells(partitions=16)


def _throughput_cells(*, partitions: int) -> Iterator[Cell]:
    sizes = ((100, 800_000), (1_024, 120_000))
    for (size, records), batch, codec in itertools.product(
        sizes, (KIB_BATCH, MIB_BATCH), ("none", "lz4")
    ):
        yield Cell(
            kind="produce",
            records=records,
            size=size,
            batch_bytes=batch,
            codec=codec,
            partitions=partitions,
        )
    for size, records in ((100, 2_500_000), (1_024, 500_000)):
        yield Cell(kind="consume", records=records, size=size, partitions=partitions)


def smoke_cells() -> Iterator[Cell]:
    """One short cell of every kind."""
    seen: set[Kind] = set()
    for cell in standard_cells():
        if cell.kind not in seen:
            seen.add(cell.kind)
            yield cell.shortened(100)
