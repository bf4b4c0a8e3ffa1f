"""Moving groups in time: the options, the offsets they mean, and what is shown.

What ``tidelog group reset`` and ``tidelog share reset`` have in common.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import TIME, check_contradiction
from cli.output import RIGHT, note, print_json, print_table
from client.admin import Admin
from client.core.offsets import EARLIEST, LATEST
from client.errors import BrokerRefused, InvalidUse
from client.times import format_time
from client.types import TopicPartition
from protocol.error_codes import ErrorCode

Moved = tuple[TopicPartition, int | None, int]
"""A partition, the position before, and the one after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where a group is to be moved.

    Attributes:
        target: a time in ms, or one of the special offsets.
        topics: only these; none: all that the group has read.
        execute: whether to do it.
        may_be_new: whether the group may be made.
    """

    target: int
    topics: tuple[str, ...]
    execute: bool
    may_be_new: bool

    async def offsets(
        self, admin: Admin, group_id: str, known: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset of the target in each partition: the known ones, or those of the topics.

        Raises:
            InvalidUse: there is none.
        """
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
        found = await admin.first_records(dict.fromkeys(ends, self.target))
        return {tp: hit.offset if (hit := found[tp]) else ends[tp] for tp in ends}

    def check_absence(self, error: BrokerRefused, what: str) -> None:
        """Pass over a group that does not exist if it may be made.

        Raises:
            BrokerRefused: `error` says something else.
            CommandFailed: there is no such group.
        """
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
        if not self.may_be_new:
            raise CommandFailed(
                f"there is no {what}: see tidelog group list, or give --new --topic NAME to make "
                "it",
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
        places = {EARLIEST: "the beginning", LATEST: "its ends"}
        place = places.get(self.target) or format_time(self.target)
        click.echo(f"{'Moved' if self.execute else 'Would move'} {group_id} to {place}:")
        headings = ["TOPIC", f"{RIGHT}PARTITION", f"{RIGHT}FROM", f"{RIGHT}TO"]
        print_table(headings, [(tp.topic, str(tp.partition), old, new) for tp, old, new in moves])
        if not self.execute:
            note("Nothing was changed; add --execute to do it.")


async def ends_of_existing(
    admin: Admin, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The ends of those partitions whose topic still exists: positions outlive topics."""
    topics = await admin.topics(internal=True)
    existing = [
        tp
        for tp in partitions
        if tp.topic in topics and tp.partition in topics[tp.topic].partitions
    ]
    found = await admin.list_offsets(dict.fromkeys(existing, LATEST))
    return {tp: hit.offset for tp, hit in found.items() if hit is not None}


_OPTIONS: tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...] = (
    click.argument("group_id", metavar="GROUP"),
    click.option("--to-time", "to_ms", type=TIME, help="The first record at or after it."),
    click.option("--to-earliest", is_flag=True, help="The first record there is."),
    click.option("--to-latest", is_flag=True, help="After the last record."),
    click.option("-t", "--topic", "topics", multiple=True, help="Default: all the group has read."),
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
        topics: tuple[str, ...],
        execute: bool,
        dry_run: bool,
        may_be_new: bool,
        **others: Any,
    ) -> Any:
        check_contradiction(to_time=to_ms is not None, to_earliest=to_earliest, to_latest=to_latest)
        check_contradiction(execute=execute, dry_run=dry_run)
        if may_be_new and not topics:
            raise click.UsageError("--new needs --topic: a new group has read nothing yet")
        target = EARLIEST if to_earliest else LATEST if to_latest else to_ms
        if target is None:
            raise click.UsageError(
                "say where to: give one of --to-time, --to-earliest, --to-latest"
            )
        move = Move(target=target, topics=topics, execute=execute, may_be_new=may_be_new)
        return function(move=move, **others)

    with_options: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options
