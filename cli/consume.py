"""``tidelog consume``: records of a topic from an offset or a time, once or following.

Where reading stops, by what was asked:

=================  =========================================================================
given              stops
=================  =========================================================================
nothing            never: it follows, until Ctrl-C
``--max N``        after N records
``--exit-at-end``  at the ends that the partitions had at the start
``--until TIME``   when no record of the window can follow, see below
=================  =========================================================================

``--until`` closes a window: only records from ``--from`` (if that is a time) to before TIME are
shown. Records lie in the order of their arrival, and CreateTime may be out of order, so an old
record can still follow a new one: reading goes on to the end that the partition had at the
start (for a TIME in the future: until that time). Where the broker stamps the records, times
only rise, and the first record behind the window ends a partition.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import click

from cli.options import TimeType, bootstrap_option, now_ms, run_async
from cli.output import Progress
from cli.record_format import DEFAULT_FORMAT, check_format, format_line, to_json
from client.consumer import Consumer
from client.errors import InvalidTime, InvalidUse
from client.times import parse_time
from client.types import ConsumerRecord, TopicPartition
from protocol.records.layout import TimestampType

_OFFSETS_BELOW = 10**8
"""A bare number below this is an offset, above it a time (1970-01-02 in milliseconds)."""

_POLL_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to begin: an end of the log, an offset in every partition, or a time."""

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None


class StartType(click.ParamType[Start]):
    """``--from``: earliest, latest, an offset, or a time."""

    name = "TIME|earliest|latest|OFFSET"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """The start that a text means; mistakes are usage errors that say what was meant."""
        if isinstance(value, Start):
            return value
        text = str(value).strip()
        if text in ("earliest", "latest"):
            return Start(word=text)
        number = text.removeprefix("offset:")
        if number.isdigit() and (number != text or int(number) < _OFFSETS_BELOW):
            return Start(offset=int(number))
        try:
            return Start(time_ms=parse_time(text, now_ms=now_ms()))
        except InvalidTime as error:
            hint = f"; for an offset write offset:{text}" if text.isdigit() else ""
            self.fail(f"{error}{hint}", param, ctx)


@click.command()
@click.argument("topic")
@click.option("-f", "--from", "start", type=StartType(), help="Where to begin; default latest.")
@click.option("-u", "--until", "until_ms", type=TimeType(), help="Only records before this time.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@click.option("-n", "--max", "limit", type=click.IntRange(min=1), help="Stop after so many.")
@click.option("-p", "--partition", "numbers", type=click.IntRange(min=0), multiple=True)
@click.option("-g", "--group", help="Share the topic with this group, and commit.")
@click.option("--format", "template", default=DEFAULT_FORMAT, show_default=True, metavar="TEXT")
@click.option("--json", "as_json", is_flag=True, help="One JSON record per line.")
@click.option("--read-committed", is_flag=True, help="Hide aborted and open transactions.")
@bootstrap_option
def command(
    *,
    topic: str,
    start: Start | None,
    until_ms: int | None,
    exit_at_end: bool,
    limit: int | None,
    numbers: tuple[int, ...],
    group: str | None,
    template: str,
    as_json: bool,
    read_committed: bool,
    bootstrap: str,
) -> None:
    """Show the records of a topic, one line each; follows it until Ctrl-C.

    Fields of --format: topic, partition, offset, timestamp, time, key, value, headers.

    \b
    Examples:
      tidelog consume hello --from earliest
      tidelog consume flights --from 2013-07-04T12:00-04:00 --until 2013-07-04T13:00-04:00
      tidelog consume hello --from -15m --format '{value}'
    """
    if group is not None and numbers:
        raise click.UsageError("--partition and --group contradict each other: a group assigns")
    if group is not None and (until_ms is not None or exit_at_end):
        raise click.UsageError("a group reads its share for ever: stop it with --max or Ctrl-C")
    check_format(template)
    reading = Reading(
        start=start or Start(word="latest"),
        until_ms=until_ms,
        exit_at_end=exit_at_end,
        limit=limit,
        render=to_json if as_json else lambda record: format_line(record, template),
    )
    consumer = Consumer(
        *([topic] if group is not None else []),
        bootstrap=bootstrap,
        group_id=group,
        start=_policy(reading.start),
        isolation="read_committed" if read_committed else "read_uncommitted",
    )
    if group is not None:
        if reading.start.offset is not None:
            raise click.UsageError("with --group, --from is for new groups: a time or an end")
        run_async(_follow_group(consumer, reading))
    else:
        run_async(_read(consumer, topic, numbers, reading))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to show, and how."""

    start: Start
    until_ms: int | None
    exit_at_end: bool
    limit: int | None
    render: Callable[[ConsumerRecord], str]

    def is_shown(self, record: ConsumerRecord) -> bool:
        """Whether a record lies in the window; without ``--until`` there is none."""
        if self.until_ms is None:
            return True
        from_ms = self.start.time_ms or 0
        return from_ms <= record.timestamp_ms < self.until_ms


def _policy(start: Start) -> str | int:
    if start.time_ms is not None:
        return start.time_ms
    return start.word or "earliest"


async def _follow_group(consumer: Consumer, reading: Reading) -> None:
    shown = 0
    async with consumer:
        while reading.limit is None or shown < reading.limit:
            left = 500 if reading.limit is None else min(500, reading.limit - shown)
            found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=left)
            for records in found.values():
                _write(records, reading)
                shown += len(records)
        await consumer.commit()


async def _read(consumer: Consumer, topic: str, numbers: tuple[int, ...], reading: Reading) -> None:
    async with consumer:
        everything = await consumer.partitions(topic)
        partitions = [TopicPartition(topic, n) for n in numbers] if numbers else everything
        missing = set(partitions) - set(everything)
        if missing:
            raise InvalidUse(
                f"{topic} has no partition {min(missing).partition}: "
                f"it has 0 to {len(everything) - 1}"
            )
        consumer.assign(partitions)
        if reading.start.offset is not None:
            for partition in partitions:
                consumer.seek(partition, reading.start.offset)
        elif reading.start.time_ms is not None:
            await consumer.seek_to_time(reading.start.time_ms)
        elif reading.start.word == "earliest":
            await consumer.seek_to_beginning()
        else:
            await consumer.seek_to_end()
        await _Reader(consumer, reading, await _ends(consumer, partitions, reading)).run()


async def _ends(
    consumer: Consumer, partitions: list[TopicPartition], reading: Reading
) -> dict[TopicPartition, int] | None:
    """Where to stop, by partition; None to follow."""
    is_past = reading.until_ms is not None and reading.until_ms <= now_ms()
    if not reading.exit_at_end and not is_past:
        return None
    return await consumer.end_offsets(partitions)


class _Reader:
    """One run over the assigned partitions."""

    def __init__(
        self, consumer: Consumer, reading: Reading, ends: dict[TopicPartition, int] | None
    ) -> None:
        self._consumer = consumer
        self._reading = reading
        self._ends = ends
        self._shown = 0
        self._done: set[TopicPartition] = set()

    async def run(self) -> None:
        """Read until there is nothing more to show."""
        total = None
        if self._ends is not None:
            total = sum(self._left(tp) for tp in self._ends)
        # Records on a terminal and a bar on the same one would fight for it.
        is_quiet = total is None or sys.stdout.isatty()
        with Progress("reading", total, is_quiet=is_quiet) as progress:
            while not self._is_over():
                found = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=2000)
                for partition, records in found.items():
                    self._show(partition, records)
                    progress.advance(len(records))

    def _left(self, partition: TopicPartition) -> int:
        assert self._ends is not None
        return max(0, self._ends[partition] - (self._consumer.position(partition) or 0))

    def _is_over(self) -> bool:
        reading = self._reading
        if reading.limit is not None and self._shown >= reading.limit:
            return True
        if self._ends is not None:
            return all(tp in self._done or self._left(tp) == 0 for tp in self._ends)
        return reading.until_ms is not None and now_ms() > reading.until_ms

    def _show(self, partition: TopicPartition, records: list[ConsumerRecord]) -> None:
        if partition in self._done:
            return
        end = None if self._ends is None else self._ends[partition]
        wanted = [
            record
            for record in records
            if self._reading.is_shown(record) and (end is None or record.offset < end)
        ]
        if self._reading.limit is not None:
            wanted = wanted[: self._reading.limit - self._shown]
        _write(wanted, self._reading)
        self._shown += len(wanted)
        until_ms = self._reading.until_ms
        last = records[-1]
        if (
            until_ms is not None
            and last.timestamp_type == TimestampType.LOG_APPEND_TIME
            and last.timestamp_ms >= until_ms
        ):
            self._done.add(partition)
            self._consumer.pause(partition)


def _write(records: list[ConsumerRecord], reading: Reading) -> None:
    """All lines at once, and out at once: whoever follows wants to see them now."""
    if records:
        sys.stdout.write("".join(f"{reading.render(record)}\n" for record in records))
        sys.stdout.flush()
