"""Moving groups, for example in time: the options, the offsets they mean, and what is shown.

What ``tidelog group reset`` and ``tidelog share reset`` have in common.
"""

import json
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from cli.broker_options import GROUP, TIME, TOPIC
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import WholeNumber, check_contradiction
from cli.output import note, print_json, print_table, say
from client.admin import Admin
from client.checks import check_number, check_offset
from client.core.offsets import EARLIEST, LATEST
from client.errors import BrokerRefused, InvalidUse
from client.times import format_time
from client.types import TopicPartition
from protocol.error_codes import ErrorCode
from protocol.records.layout import INT64_MAX
from values.dataclasses import dataclass

Moved = tuple[TopicPartition, int | None, int]
"""A partition, the position before, and the one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where a group is moved: one of the four is set, and `place` says it in words.

    Attributes:
        timestamp: a time in ms, or one of the special offsets.
        offset: this one in every partition.
        shift: offsets on from the position, or back if negative.
        positions: an offset for each partition.
    """

    place: str
    timestamp: int | None = None
    offset: int | None = None
    shift: int | None = None
    positions: Mapping[TopicPartition, int] | None = None

    async def offsets(
        self,
        admin: Admin,
        known: Mapping[TopicPartition, int | None],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The offset for each partition of `ends`, its new position; none lies outside of the log.

        Raises:
            InvalidUse: a shift of partitions in which the group has no position.
        """
        if self.timestamp is not None:
            hits = await admin.first_records(dict.fromkeys(ends, self.timestamp))
            return {tp: hit.offset if (hit := hits[tp]) else ends[tp] for tp in ends}
        if self.positions is not None:
            wanted = {tp: self.positions[tp] for tp in ends}
        elif self.shift is not None:
            at = {tp: offset for tp in ends if (offset := known.get(tp)) is not None}
            wanted = {tp: offset + self.shift for tp, offset in at.items()}
            if not wanted:
                raise InvalidUse("the group has no position there that could be shifted")
        else:
            assert self.offset is not None
            wanted = dict.fromkeys(ends, self.offset)
        first = await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
        starts = {tp: hit.offset if (hit := first[tp]) else 0 for tp in wanted}
        return {tp: min(max(offset, starts[tp]), ends[tp]) for tp, offset in wanted.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where a group is to be moved.

    Attributes:
        aim: where to.
        topics: only these; none: all that the group has read, or that the aim names.
        execute: whether to do it.
        may_be_new: whether the group may be made.
    """

    aim: Aim
    topics: tuple[str, ...]
    execute: bool
    may_be_new: bool

    async def offsets(
        self, admin: Admin, group_id: str, known: Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, int]:
        """The offset of the aim in each partition: the known ones, or those of the topics.

        Args:
            admin: who is asked.
            group_id: the group, for the message.
            known: the partitions that the group has read, and its positions there.

        Raises:
            InvalidUse: there is none.
        """
        if self.aim.positions is not None:
            partitions = list(self.aim.positions)
        else:
            partitions = list(known)
            for topic in self.topics:
                numbers = (await admin.describe_topic(topic)).partitions
                partitions += [TopicPartition(topic, number) for number in numbers]
        if self.topics:
            partitions = sorted({tp for tp in partitions if tp.topic in self.topics})
        ends = await ends_of_existing(admin, partitions)
        if not ends:
            raise InvalidUse(f"group {group_id} has no positions to move: name a topic with -t")
        gone = sorted({str(tp) for tp in partitions if tp not in ends})
        if gone:
            note(f"Left as they are, because they do not exist any more: {', '.join(gone)}")
        return await self.aim.offsets(admin, known, ends)

    async def check_absence(self, admin: Admin, error: BrokerRefused, group_id: str) -> None:
        """Pass over a group that does not exist if it may be made.

        Raises:
            BrokerRefused: `error` says something else.
            CommandFailed: there is no such group.
        """
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
        if not self.may_be_new:
            known = [group.group_id for group in await admin.groups()]
            near = get_close_matches(group_id, known, n=1)
            cure = f"did you mean {near[0]}? Or" if near else "see tidelog group list, or"
            raise CommandFailed(
                f"there is no group {group_id}: {cure} give --new --topic NAME to make it",
                ExitCode.NOT_FOUND,
            ) from None

    def show(self, group_id: str, moves: list[Moved], *, as_json: bool) -> None:
        """Print what was moved, or would be."""
        if as_json:
            names = ("topic", "partition", "from", "to")
            rows = [(tp.topic, tp.partition, old, new) for tp, old, new in moves]
            document: dict[str, Any] = {"group": group_id, "dry_run": not self.execute}
            document["positions"] = [dict(zip(names, row, strict=True)) for row in rows]
            print_json(document)
            return
        say(f"{'Moved' if self.execute else 'Would move'} {group_id} {self.aim.place}:")
        headings = "TOPIC,>PARTITION,>FROM,>TO"
        print_table(headings, [(tp.topic, str(tp.partition), old, new) for tp, old, new in moves])
        if not self.execute:
            note("Nothing was changed; add --execute to do it.")


async def ends_of_existing(
    admin: Admin, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends of those partitions whose topic or window exists: positions outlive topics."""
    topics = await admin.topics(internal=True)
    topics |= await admin.served_windows({tp.topic for tp in partitions} - topics.keys())
    existing = [
        tp
        for tp in partitions
        if tp.topic in topics and tp.partition in topics[tp.topic].partitions
    ]
    found = await admin.list_offsets(dict.fromkeys(existing, LATEST))
    return {tp: hit.offset for tp, hit in found.items() if hit is not None}


_POSITIONS: Final = ("to", "position", "start")
"""The names of a position in what ``reset``, ``group describe`` and ``share describe`` print."""


def _positions_in(name: str) -> dict[TopicPartition, int]:
    """The positions in a file (- is standard input) that ``--json`` of describe or reset printed.

    Raises:
        OSError: the file cannot be read.
        click.UsageError: it is none of these.
        InvalidUse: a partition or a position is not a number, or negative.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        rows = json.loads(data)["positions"]
        found = [
            (str(row["topic"]), row["partition"], row[next(filter(row.__contains__, _POSITIONS))])
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise click.UsageError(
            f"--from-file {name}: write what `tidelog group describe --json` prints: "
            '{"positions": [{"topic": "t", "partition": 0, "position": 5}]}'
        ) from None
    for topic, partition, offset in found:
        check_number(f"partition of {topic}", partition, 0)
        if offset is not None:
            check_offset(f"position in {topic}-{partition}", offset)
    return {TopicPartition(t, number): offset for t, number, offset in found if offset is not None}


def _aim(**given: Any) -> Aim:
    """Where to, by the one option of `given` that is set.

    Raises:
        click.UsageError: none is set, or several are.
    """
    check_contradiction(**{name: value is not None for name, value in given.items()})
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"say where to: give one of {options}")
    ((name, value),) = chosen.items()
    if name == "from_file":
        return Aim(place="to the positions of the file", positions=_positions_in(value))
    if name == "to_offset":
        return Aim(place=f"to offset {value}", offset=value)
    if name == "shift_by":
        return Aim(place=f"by {value:+,} offsets", shift=value)
    places = {"to_earliest": "to the beginning", "to_latest": "to its ends"}
    return Aim(place=places.get(name) or f"to {format_time(value)}", timestamp=value)


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.argument("group_id", type=GROUP, metavar="GROUP"),
    click.option("--to-time", "to_ms", type=TIME, help="The first record at or after it."),
    click.option("--to-earliest", is_flag=True, help="The first record there is."),
    click.option("--to-latest", is_flag=True, help="After the last record."),
    click.option("--to-offset", type=WholeNumber(min=0), help="This offset in every partition."),
    click.option(
        "--shift-by",
        type=WholeNumber(min=-INT64_MAX, max=INT64_MAX),
        metavar="N",
        help="N offsets on, or back if negative.",
    ),
    click.option(
        "--from-file",
        type=click.Path(allow_dash=True),
        help="What --json printed, of this command (its `to`) or of describe.",
    ),
    click.option(
        *("-t", "--topic", "topics"),
        type=TOPIC,
        multiple=True,
        help="Default: all the group has read.",
    ),
    click.option("--execute", is_flag=True, help="Move it; without this nothing is changed."),
    click.option(
        "-n", "--dry-run", is_flag=True, help="Only show what would change (the default)."
    ),
    click.option("--new", "may_be_new", is_flag=True, help="Make the group if there is none."),
)


def move_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The argument GROUP and where to move it; the command gets them as `group_id` and `move`.

    A command line that means no move is a usage error.
    """

    @wraps(function)
    def command(
        *,
        to_ms: int | None,
        to_earliest: bool,
        to_latest: bool,
        to_offset: int | None,
        shift_by: int | None,
        from_file: str | None,
        topics: tuple[str, ...],
        execute: bool,
        dry_run: bool,
        may_be_new: bool,
        **others: Any,
    ) -> Any:
        check_contradiction(execute=execute, dry_run=dry_run)
        if may_be_new and not topics and from_file is None:
            raise click.UsageError("--new needs --topic: a new group has read nothing yet")
        aim = _aim(
            to_time=to_ms,
            to_earliest=EARLIEST if to_earliest else None,
            to_latest=LATEST if to_latest else None,
            to_offset=to_offset,
            shift_by=shift_by,
            from_file=from_file,
        )
        move = Move(aim=aim, topics=topics, execute=execute, may_be_new=may_be_new)
        return function(move=move, **others)

    with_options: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
