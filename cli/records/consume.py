"""``tidelog consume``: records of a topic from an offset or a time, once or following.

Where reading stops, by option:

| given             | stops                                              |
|-------------------|----------------------------------------------------|
| nothing           | never: it follows, until Ctrl-C                    |
| ``--max N``       | after N records                                    |
| ``--exit-at-end`` | at the ends that the partitions had at the start   |
| ``--until TIME``  | when no record of the window can follow, see below |

``--until`` closes a window: only records from ``--from`` (if that is a time) to before TIME are
shown. Records are in order of arrival, and CreateTime may be out of order, so an old record can
still follow a new one. Reading therefore continues to the end that the partition had at the start
(for a TIME in the future: until that time). Where the broker stamps the records, times only rise,
and the first record after the window ends a partition.

A group (`cli.records.consume_group`) commits the records it has shown, so it must skip none: with
``--until`` it stops in each partition before the first record of TIME or later.
"""

import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli.broker_options import (
    GROUP,
    TIME,
    TOPIC,
    BrokerOptions,
    broker_options,
    read_password,
    run_async,
)
from cli.options import WholeNumber, check_contradiction, now_ms
from cli.output import note
from cli.record_format import DEFAULT_FORMAT, RAW_FORMAT, line_format, to_json, unescape
from cli.records.consume_alone import read_alone
from cli.records.consume_group import read_as_group
from cli.records.reading import Reading, Start
from client.consumer import Consumer
from client.core.membership.options import CLASSIC, GROUP_PROTOCOLS
from client.errors import InvalidTime
from client.times import format_time, parse_time
from console.data.conditions import parse_condition

if TYPE_CHECKING:
    from cli.records.schemas import Schemas

_OFFSETS_BELOW = 10**8
"""A bare number below this is an offset, above it a time (1970-01-02 in milliseconds)."""

_HINTS = {
    **dict.fromkeys(("beginning", "begin", "start", "oldest", "first", "smallest"), "earliest"),
    **dict.fromkeys(("end", "newest", "last", "largest", "head", "tail"), "latest"),
}
"""Other tools' names for the ends of a log."""


class StartType(click.ParamType[Start]):
    """``--from``: earliest, latest, an offset, or a time; words in any case."""

    name = "TIME|earliest|latest|OFFSET"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """The start that a text names; a mistake is a usage error that lists the valid forms."""
        if isinstance(value, Start):
            return value
        text = str(value).strip()
        word = text.lower()
        if word in ("earliest", "latest"):
            return Start(word=word)
        if word in _HINTS:
            self.fail(f"'{text}' is not a place to begin: did you mean {_HINTS[word]}?", param, ctx)
        number = word.removeprefix("offset:")
        if number.isdigit() and (number != text or int(number) < _OFFSETS_BELOW):
            return Start(offset=int(number))
        try:
            return Start(time_ms=parse_time(text, now_ms=now_ms()))
        except InvalidTime as error:
            offset = text if text.isdigit() else "N"
            words = f"or write earliest or latest; for an offset write offset:{offset}"
            self.fail(f"{error}, {words}", param, ctx)


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("-f", "--from", "start", type=StartType(), help="Where to begin; default latest.")
@click.option("-u", "--until", "until_ms", type=TIME, help="Only records before this time.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@click.option("-n", "--max", "limit", type=WholeNumber(min=1), help="Stop after so many.")
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=WholeNumber(min=0),
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option("-g", "--group", type=GROUP, help="Share the topic with this group, and commit.")
@click.option(
    "--group-protocol",
    type=click.Choice(GROUP_PROTOCOLS),
    help="Who shares the partitions: the members (classic, the default) or the broker (consumer).",
)
@click.option(
    "-w",
    "--where",
    "filter_text",
    metavar="FILTER",
    default="",
    help="Only records that fulfil it, such as 'key = a and value.user.id > 7'.",
)
@click.option(
    "--format",
    "template",
    default=DEFAULT_FORMAT,
    show_default=True,
    metavar="TEXT",
    help="What is shown of a record; the fields are listed above.",
)
@click.option("--raw", "is_raw", is_flag=True, help="Bytes as they are stored; {value} alone.")
@click.option(
    "--end",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="What follows each record; may be empty.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON record per line.")
@click.option("--read-committed", is_flag=True, help="Hide aborted and open transactions.")
@click.option(
    "--schema-registry",
    "registry_url",
    metavar="URL",
    help="Show keys and values that name a schema of this registry as JSON.",
)
@click.option(
    "--schema-registry-user",
    "registry_user",
    metavar="NAME",
    default="",
    help="Ask the registry as this user.",
)
@click.option(
    "--schema-registry-password-file",
    "registry_file",
    metavar="FILE",
    help="The password of that user is its only line.",
)
@broker_options
def command(
    *,
    topic: str,
    start: Start | None,
    until_ms: int | None,
    exit_at_end: bool,
    limit: int | None,
    numbers: tuple[int, ...],
    group: str | None,
    group_protocol: str | None,
    filter_text: str,
    template: str,
    is_raw: bool,
    end: str,
    as_json: bool,
    read_committed: bool,
    registry_url: str | None,
    registry_user: str,
    registry_file: str | None,
    broker: BrokerOptions,
) -> None:
    """Show the records of a topic, one line each; follows it until Ctrl-C.

    Fields of --format: topic, partition, offset, timestamp, time, key, value, headers, size,
    header.NAME, and paths into JSON such as value.user.id; \\t, \\n, \\0 and \\xNN are escapes.
    --where compares key, value, time, partition, offset, size, header.NAME and such paths by
    = != < <= > >= and ~ (contains), joined by and, or, not.

    \b
    Examples:
      tidelog consume hello --from earliest
      tidelog consume flights --from 2013-07-04T12:00-04:00 --until 2013-07-04T13:00-04:00
      tidelog consume hello --from -15m --format '{key}\\t{value.user.id}'
      tidelog consume images -f earliest -n 1 --raw --end '' > image.png
    """
    if group is not None and numbers:
        raise click.UsageError("--partition and --group contradict each other: a group assigns")
    if group is not None and start is not None and start.offset is not None:
        raise click.UsageError("with --group, --from is for new groups: a time or an end")
    if group_protocol is not None and group is None:
        raise click.UsageError("--group-protocol needs --group")
    is_formatted = (
        click.get_current_context().get_parameter_source("template") is ParameterSource.COMMANDLINE
    )
    check_contradiction(json=as_json, format=is_formatted)
    check_contradiction(json=as_json, raw=is_raw)
    _check_window(start, until_ms, is_group=group is not None)
    render = line_format(RAW_FORMAT if is_raw and not is_formatted else template, is_raw=is_raw)
    reading = Reading(
        start=start or Start(word="latest"),
        until_ms=until_ms,
        exit_at_end=exit_at_end,
        limit=limit,
        render=(lambda record: to_json(record).encode()) if as_json else render,
        end=b"\n" if as_json else unescape(end, "--end"),
        condition=parse_condition(filter_text, now_ms=now_ms()),
        schemas=_schemas(registry_url, registry_user, registry_file),
    )
    options: dict[str, Any] = {
        **broker,
        "group_id": group,
        "start": _policy(reading.start),
        "group_protocol": group_protocol or CLASSIC,
        "isolation": "read_committed" if read_committed else "read_uncommitted",
    }
    if group is not None:
        run_async(read_as_group(topic, reading, options))
    else:
        if start is None:
            _note_the_end(exit_at_end=exit_at_end)
        run_async(read_alone(Consumer(**options), topic, numbers, reading))


def _note_the_end(*, exit_at_end: bool) -> None:
    """Say why nothing is shown, to a user who has not chosen to begin at the end."""
    if exit_at_end:
        note("Reading begins at the end, where it stops too: --from earliest shows what is there.")
    elif sys.stdout.isatty():
        note("Waiting for new records; --from earliest shows what is there. Ctrl-C ends.")


def _schemas(url: str | None, user: str, password_file: str | None) -> "Schemas | None":
    """The schemas of a registry, if one is given.

    Raises:
        click.UsageError: one of user and password is missing.
        InvalidUse: the address cannot be asked, or would send the password readable.
        OSError: the password cannot be read.
    """
    if url is None and (user or password_file):
        raise click.UsageError("--schema-registry-user and its password need --schema-registry")
    if url is None:
        return None
    if bool(user) != (password_file is not None):
        raise click.UsageError(
            "--schema-registry-user and --schema-registry-password-file need each other: give both"
        )
    from cli.records.schemas import Schemas  # with the HTTP client, which most runs do not need
    from client.serde.registry import RegistryAddress

    password = read_password(password_file) if password_file else ""
    return Schemas(RegistryAddress(url=url, username=user, password=password))


def _check_window(start: Start | None, until_ms: int | None, *, is_group: bool) -> None:
    """Refuse a window in which no record can be.

    Raises:
        click.UsageError: it ends before it begins.
    """
    if until_ms is None:
        return
    from_ms = None if start is None else start.time_ms
    if from_ms is not None and until_ms <= from_ms:
        raise click.UsageError(
            f"--until ({format_time(until_ms)}) is not after --from ({format_time(from_ms)}), so "
            "no record can be shown: give a later --until or an earlier --from"
        )
    is_at_end = start is None or start.word == "latest"
    if is_at_end and not is_group and until_ms <= now_ms():
        raise click.UsageError(
            f"--until ({format_time(until_ms)}) lies in the past, and reading begins at the end: "
            "give --from, for example --from earliest"
        )


def _policy(start: Start) -> str | int:
    if start.time_ms is not None:
        return start.time_ms
    # An offset that has left the log meanwhile is an error; no other offset is read instead.
    return start.word or "none"
