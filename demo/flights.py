"""A year of flights becomes a topic, and "when" becomes a question that any client can ask.

`make demo` starts a broker of its own on a free port, writes the 336,776 flights that left New
York in 2013 into four partitions in the order of their file (`demo.flight_data` describes a
record), and asks which flight left first at or after noon of 4 July. Five clients look the
place up by time; a brute-force scan of everything that can be consumed says whether they are
right. Then one hour is read by time. Nothing is left behind.

A lookup by time answers the first *offset* whose record is not older than the asked moment. The
file is not in order of time, so the flight found there is not yet the answer; but everything
before it is older, so a reader who starts there misses nothing.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.answerers import ANSWERERS, WARNINGS, Answer, CannotAsk, Question, read_between
from demo.flight_data import DataMissing, Flight, describe, load_flights
from demo.stage import PARTITIONS, Disagreement, console, own_broker, step

TOPIC = "flights"
NEW_YORK = ZoneInfo("America/New_York")
ASKED = datetime(2013, 7, 4, 12, 0, tzinfo=NEW_YORK)
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A record as it was consumed."""

    partition: int
    offset: int
    timestamp: int
    value: bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; 0 when every answer agreed with the brute-force scan."""
    parser = argparse.ArgumentParser(prog="python -m demo.flights", description=__doc__)
    parser.add_argument("--broker", help="host:port of a running broker instead of a new one")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    try:
        with contextlib.ExitStack() as stack:
            bootstrap = options.broker or stack.enter_context(own_broker())
            tell_story(bootstrap)
    except (DataMissing, Disagreement, RuntimeError) as problem:
        console.print(f"[bold red]✗[/] {problem}")
        return 1
    console.print(f"\n[bold]Done in {time.perf_counter() - started:.1f} s.[/]")
    return 0


def tell_story(bootstrap: str) -> None:
    """Produces, asks, checks, consumes.

    Raises:
        Disagreement: an answer differs from the brute-force scan.
    """
    with step("read the flights") as done:
        flights = load_flights()
        cancelled = sum(flight.departed_ms < 0 for flight in flights)
        done(f"{len(flights):,} flights, {cancelled:,} never left")
    create_topic(bootstrap)
    produce(bootstrap, flights)
    with step("brute force: read everything") as done:
        seen = consume(bootstrap, dict.fromkeys(range(PARTITIONS), 0))
        if len(seen) != len(flights):
            raise Disagreement(f"{len(flights)} flights went in, {len(seen)} came out")
        done(f"{len(seen):,} records")
    question = Question(
        bootstrap=bootstrap,
        topic=TOPIC,
        partitions=PARTITIONS,
        at_ms=int(ASKED.timestamp() * 1000),
        at_text=ASKED.isoformat(),
    )
    offsets = look_up(question, seen)
    with step("read on from there") as done:
        later = consume(bootstrap, offsets)
        done(f"{len(later):,} records, {len(seen) - len(later):,} skipped")
    answer_question(question, flights, later)
    consume_hour(question, flights)


def create_topic(bootstrap: str) -> None:
    """The topic, kept for ever: retention goes by record time, and 2013 is long ago."""
    with step("create the topic") as done:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        config = {"retention.ms": "-1"}
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=config)
        admin.create_topics([new])[TOPIC].result(20)
        done(f"{TOPIC}, {PARTITIONS} partitions")


def produce(bootstrap: str, flights: Sequence[Flight]) -> None:
    """All flights in the order of the file, with acks=all."""
    with step("produce, acks=all, lz4") as done:
        started = time.perf_counter()
        _produce_all(bootstrap, flights)
        rate = len(flights) / (time.perf_counter() - started)
        done(f"{len(flights):,} records, {rate:,.0f} a second")


def _produce_all(bootstrap: str, flights: Sequence[Flight]) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "compression.type": "lz4",
        "log_level": WARNINGS,
    }
    producer = Producer({**settings, "partitioner": "murmur2_random", "acks": "all"})
    failures: list[object] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn())
    quiet = not console.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=quiet
    ) as progress:
        task = progress.add_task("produce", total=len(flights))
        for count, flight in enumerate(flights):
            while True:
                try:
                    producer.produce(
                        TOPIC,
                        flight.value,
                        flight.tail_number,
                        timestamp=flight.departed_ms,
                        on_delivery=on_delivery,
                    )
                    break
                except BufferError:  # librdkafka's queue is full: let it deliver
                    producer.poll(0.1)
            if count % 5_000 == 0:
                producer.poll(0)
                progress.update(task, completed=count)
        producer.flush(60)
    if failures:
        raise RuntimeError(f"{len(failures)} flights were not accepted: {failures[0]}")


def consume(bootstrap: str, starts: dict[int, int] | Answer) -> list[Seen]:
    """Every record from the given offsets to the end; a None reads nothing of its partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "flights-demo", "log_level": WARNINGS}
    )
    ends = {}
    for partition, start in starts.items():
        _, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)
        if start is not None and start < high:
            ends[partition] = high
    consumer.assign([TopicPartition(TOPIC, part, starts[part] or 0) for part in ends])
    seen = []
    quiet_since = time.monotonic()
    while ends:
        for message in consumer.consume(5_000, 0.2):
            if message.error():
                raise RuntimeError(f"consuming failed: {message.error()}")
            quiet_since = time.monotonic()
            seen.append(_seen(message))
            partition = seen[-1].partition
            if seen[-1].offset + 1 >= ends.get(partition, 0):
                ends.pop(partition, None)
        if time.monotonic() - quiet_since > 30:
            raise RuntimeError(f"no record for 30 s, partitions {sorted(ends)} not at their end")
    consumer.close()
    return seen


def _seen(message: Any) -> Seen:
    return Seen(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        value=message.value(),
    )


def look_up(question: Question, seen: Sequence[Seen]) -> Answer:
    """The offsets that every client answers, compared with a scan.

    Raises:
        Disagreement: a client's offsets differ from the scan's.
    """
    scan: Answer = dict.fromkeys(range(PARTITIONS))
    for record in sorted(seen, key=lambda record: record.offset, reverse=True):
        if record.timestamp >= question.at_ms:
            scan[record.partition] = record.offset
    console.print(f"\n[bold]First record at or after {question.at_text}, by partition[/]")
    table = Table("asked by", *(str(part) for part in range(PARTITIONS)), "time", "")
    table.add_row("brute-force scan", *(str(scan[part]) for part in range(PARTITIONS)))
    wrong = []
    for name, ask in ANSWERERS:
        started = time.perf_counter()
        try:
            answer = ask(question)
        except CannotAsk as reason:
            table.add_row(name, *["-"] * PARTITIONS, "", f"[yellow]not asked: {reason}[/]")
            continue
        elapsed = f"{(time.perf_counter() - started) * 1000:,.0f} ms"
        if answer != scan:
            wrong.append(name)
        verdict = "[green]equal[/]" if answer == scan else "[bold red]different[/]"
        cells = (str(answer.get(part)) for part in range(PARTITIONS))
        table.add_row(name, *cells, elapsed, verdict)
    console.print(table)
    console.print("[dim]The time is that of the whole client: start, connect, ask, close.[/]\n")
    if wrong:
        raise Disagreement(f"{', '.join(wrong)} answered differently from the brute-force scan")
    return scan


def answer_question(question: Question, flights: Sequence[Flight], later: Sequence[Seen]) -> None:
    """The flight that left first, from the records at the found offsets.

    Raises:
        Disagreement: the table of flights says otherwise.
    """
    first = min(
        (record for record in later if record.timestamp >= question.at_ms),
        key=lambda record: record.timestamp,
    )
    truth = min(flight.departed_ms for flight in flights if flight.departed_ms >= question.at_ms)
    if first.timestamp != truth:
        raise Disagreement(f"the topic says {first.timestamp}, the table says {truth}")
    tied = [record for record in later if record.timestamp == first.timestamp]
    left = local_time(first.timestamp)
    console.print(f"\n[bold]First to leave at or after noon of 4 July:[/] at {left}")
    for record in tied:
        place = f"partition {record.partition}, offset {record.offset:,}"
        console.print(f"  {describe(record.value):<36} [dim]{place}[/]")
    console.print()


def consume_hour(question: Question, flights: Sequence[Flight]) -> None:
    """The departures of one hour, consumed by time and counted in the table.

    Raises:
        Disagreement: the two counts differ.
    """
    end_ms = question.at_ms + HOUR_MS
    with step("tidelog consume --from --until") as done:
        hour = read_between(question, end_ms)
        truth = sum(question.at_ms <= flight.departed_ms < end_ms for flight in flights)
        if len(hour) != truth:
            raise Disagreement(f"{len(hour)} departures in the topic, {truth} in the table")
        done(f"{len(hour)} departures in that hour")


def local_time(timestamp_ms: int) -> str:
    """A timestamp on New York's clocks."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone(NEW_YORK).isoformat()


if __name__ == "__main__":
    sys.exit(main())
