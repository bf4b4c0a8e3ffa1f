"""``tidelog produce``: lines or JSON records from stdin or files into a topic."""

import asyncio
import os
import select
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from cli.broker_options import TIME, TOPIC, BrokerOptions, ask_admin, broker_options, run_async
from cli.failures import CommandFailed
from cli.options import WholeNumber, check_contradiction, now_ms
from cli.output import Progress, format_size, note
from cli.record_format import Outgoing, field_of, from_json, read_time, unescape
from cli.records.template import line_reader
from client.admin import Admin
from client.errors import BrokerRefused, InvalidUse, NotThere
from client.producer import Producer
from client.times import format_duration, format_time
from protocol.error_codes import ErrorCode
from values.dataclasses import dataclass
from values.words import format_count

RAW: Final = "raw"
JSON: Final = "json"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_CHUNK_BYTES = 256 * 1024

_LIMITS = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""Refusals whose message needs the topic's limit, which the broker does not send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """How a line of input becomes a record."""

    form: Callable[[bytes], Outgoing] | None
    """What reads a line that is more than a key and a value."""
    key_separator: bytes | None
    null: bytes | None
    timestamp_ms: int | None
    timestamp_field: str | None
    key_field: str | None
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]

    def record(self, line: bytes) -> Outgoing:
        """The record of a line.

        Raises:
            InvalidUse: the line is not of the chosen form.
        """
        if self.form is not None:
            given = self.form(line)
            key, value, headers = given.key, given.value, (*given.headers, *self.headers)
            timestamp_ms, partition = given.timestamp_ms, given.partition
        else:
            key, value = self._split(line)
            headers, timestamp_ms, partition = self.headers, None, None
        if self.key_field is not None:
            key = str(field_of(value or b"", self.key_field)).encode()
        if self.timestamp_field is not None:
            timestamp_ms = read_time(field_of(value or b"", self.timestamp_field))
        return Outgoing(
            key=key,
            value=value,
            timestamp_ms=timestamp_ms if self.timestamp_ms is None else self.timestamp_ms,
            partition=partition if self.partition is None else self.partition,
            headers=headers,
        )

    def _split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        if self.key_separator is None:
            return None, self._or_null(line)
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise InvalidUse(f"there is no key separator {self.key_separator.decode()!r} in it")
        return self._or_null(key), self._or_null(value)

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null else text


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    help="What is between key and value; \\t, \\0 and \\xNN are escapes.",
)
@click.option("--null", metavar="TEXT", help="A key or value of exactly this text is null.")
@click.option(
    "--end",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="What ends a record; if empty, the whole input, or each file, is one.",
)
@click.option(
    "--format",
    "form",
    metavar="raw|json|TEMPLATE",
    default=RAW,
    show_default=True,
    shell_complete=lambda _, __, begun: [word for word in (RAW, JSON) if word.startswith(begun)],
    help="raw: a line is a value; json: it is a record, as consume --json writes it; "
    "'{time}\\t{key}\\t{value}': it has these parts, as consume --format writes them.",
)
@click.option("--timestamp", "timestamp_ms", type=TIME, help="For all records.")
@click.option("--timestamp-field", metavar="FIELD", help="A field of the JSON value with the time.")
@click.option("--key-field", metavar="FIELD", help="A field of the JSON value to use as key.")
@click.option(
    "-H",
    "--header",
    "header_texts",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of all records; repeatable.",
)
@click.option("-p", "--partition", type=WholeNumber(min=0), help="For all records.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="When a record counts as written: all: on disk; 1: in memory; 0: when sent.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary, no progress, no warning.")
@broker_options
def command(
    *,
    topic: str,
    files: tuple[Path, ...],
    key_separator: str | None,
    null: str | None,
    end: str,
    form: str,
    timestamp_ms: int | None,
    timestamp_field: str | None,
    key_field: str | None,
    header_texts: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    quiet: bool,
    broker: BrokerOptions,
) -> None:
    """Write each line of stdin, or of files, as a record.

    \b
    Examples:
      seq 3 | tidelog produce hello
      echo 'N14228:took off' | tidelog produce flights -K : --timestamp 2013-01-01T05:17-05:00
      tidelog produce events log.jsonl --timestamp-field event.time --key-field user
      tidelog produce flights log.tsv --format '{time}\\t{key}\\t{value}'
    """
    check_contradiction(
        timestamp=timestamp_ms is not None, timestamp_field=timestamp_field is not None
    )
    check_contradiction(key_separator=key_separator is not None, key_field=key_field is not None)
    null_text = None if null is None else unescape(null, "--null")
    is_end_given = (
        click.get_current_context().get_parameter_source("end") is ParameterSource.COMMANDLINE
    )
    _check_form(
        form,
        {
            "--key-separator": key_separator is not None,
            "--null": null is not None,
            "--end": is_end_given,
            "--key-field": key_field is not None,
            "--timestamp-field": timestamp_field is not None,
        },
    )
    separator = b"\n" if form == JSON else unescape(end, "--end")
    rules = LineRules(
        form=_reader(form, null_text),
        key_separator=_key_separator(key_separator),
        null=null_text,
        timestamp_ms=timestamp_ms,
        timestamp_field=timestamp_field,
        key_field=key_field,
        partition=partition,
        headers=_headers(header_texts),
    )
    if not files and sys.stdin.isatty() and not quiet:
        note("Reading records from the terminal, one on each line; Ctrl-D ends.")
    producer = Producer(**broker, acks=acks, compression=compression, linger_ms=20)
    try:
        oldest_ms = run_async(
            _produce(producer, topic, _Input(files, separator), rules, is_quiet=quiet)
        )
    except BrokerRefused as error:
        setting = _LIMITS.get(error.code)
        if setting is None:
            raise
        limit = ask_admin(broker, lambda admin: _topic_config(admin, topic, setting))
        raise CommandFailed(f"{error} ({setting} of {topic} is {limit})") from None
    if oldest_ms is not None and not quiet:
        ask_admin(broker, lambda admin: _warn_of_retention(admin, topic, oldest_ms))


def _reader(form: str, null: bytes | None) -> Callable[[bytes], Outgoing] | None:
    """What reads a line of ``--format``; None for raw lines.

    Raises:
        click.UsageError: it is none of the words, and no template.
    """
    if form == RAW:
        return None
    if form == JSON:
        return from_json
    if "{" not in form:
        raise click.UsageError(
            f"--format {form}: write raw, json, or a template such as '{{key}}\\t{{value}}'"
        )
    return line_reader(form, null)


def _check_form(form: str, given: Mapping[str, bool]) -> None:
    """Refuse options that say what the lines say.

    Raises:
        click.UsageError: a given option contradicts the form.
    """
    contradicting: dict[str, str] = {}
    if form == JSON:
        says = "each line of JSON is a record, and says its key and what is null"
        contradicting = dict.fromkeys(("--key-separator", "--null", "--end"), says)
    elif form != RAW:
        contradicting["--key-separator"] = "the template says what is between the parts of a line"
        if "{key}" in form:
            contradicting["--key-field"] = "the template says where the key is"
        if "{time}" in form or "{timestamp}" in form:
            contradicting["--timestamp-field"] = "the template says where the time is"
    for option, reason in contradicting.items():
        if given[option]:
            raise click.UsageError(f"{option} and --format {form} contradict each other: {reason}")


def _key_separator(text: str | None) -> bytes | None:
    """The bytes of ``-K``.

    Raises:
        click.UsageError: none; every line begins with them.
    """
    if text == "":
        raise click.UsageError("--key-separator is empty: write for example : or \\t")
    return None if text is None else unescape(text, "--key-separator")


def _headers(texts: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--header {text}: write NAME=VALUE")
        headers.append((name, value.encode()))
    return tuple(headers)


async def _produce(
    producer: Producer, topic: str, given: "_Input", rules: LineRules, *, is_quiet: bool
) -> int | None:
    """Send all records; returns the oldest timestamp of the input, None where it had none."""
    started = time.monotonic()
    count = size_bytes = 0
    oldest_ms: int | None = None
    total = sum(path.stat().st_size for path in given.files) if given.files else None
    async with producer:
        if rules.partition is not None:
            numbers = await producer.partitions(topic)
            if rules.partition not in numbers:
                raise NotThere.partition(topic, rules.partition, len(numbers))
        is_silent = is_quiet or not given.files
        with Progress(f"producing to {topic}", total, is_quiet=is_silent) as progress:
            async for name, number, line in given.lines(progress):
                try:
                    record = rules.record(line)
                    await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=record.headers,
                    )
                except InvalidUse as error:
                    await producer.flush()
                    raise CommandFailed(
                        f"{name}, line {number}: {error} "
                        f"({format_count(count, 'record')} sent before it)"
                    ) from None
                count += 1
                size_bytes += len(line)
                if record.timestamp_ms is not None:
                    oldest_ms = min(record.timestamp_ms, oldest_ms or record.timestamp_ms)
                producer.raise_failure()
        await producer.flush()
    if not is_quiet:
        seconds = time.monotonic() - started
        note(
            f"{format_count(count, 'record')}, {format_size(size_bytes)} to {topic} "
            f"in {seconds:.1f} s"
        )
    return oldest_ms


async def _topic_config(admin: Admin, topic: str, name: str) -> str | None:
    return (await admin.topic_configs(topic))[name].value


async def _warn_of_retention(admin: Admin, topic: str, oldest_ms: int) -> None:
    """Warn when records are old enough to be deleted: retention goes by their timestamps."""
    configs = await admin.topic_configs(topic)
    retention_ms = int(configs["retention.ms"].value or -1)
    is_deleting = "delete" in (configs["cleanup.policy"].value or "")
    is_own_time = configs["message.timestamp.type"].value == "CreateTime"
    age_ms = now_ms() - oldest_ms
    if is_deleting and is_own_time and 0 <= retention_ms < age_ms:
        note(
            f"Warning: the oldest record is of {format_time(oldest_ms)}, and {topic} keeps "
            f"{format_duration(retention_ms)} (retention.ms = {retention_ms}): what is older will "
            f"soon be deleted. To keep it: tidelog topic alter {topic} --set retention.ms=-1"
        )


@dataclass(frozen=True, slots=True)
class _Input:
    """Where the records come from (no files: standard input), and what ends each."""

    files: tuple[Path, ...]
    end: bytes

    async def lines(self, progress: Progress) -> AsyncIterator[tuple[str, int, bytes]]:
        """(source, line number, line without its end) of all input, in order."""
        if not self.files:
            chunks = read_chunks(sys.stdin.fileno())
            async for number, line in split_lines(chunks, self.end, progress):
                yield "stdin", number, line
        for path in self.files:
            with path.open("rb") as stream:
                chunks = read_chunks(stream.fileno())
                async for number, line in split_lines(chunks, self.end, progress):
                    yield str(path), number, line


async def split_lines(
    chunks: AsyncIterator[bytes], end: bytes, progress: Progress
) -> AsyncIterator[tuple[int, bytes]]:
    """The numbered parts of the input that `end` separates; all of it where that is empty."""
    number, rest = 0, bytearray()
    async for chunk in chunks:
        # An end of several bytes may lie across two chunks.
        searched = max(0, len(rest) - len(end) + 1)
        rest += chunk
        if end and rest.find(end, searched) >= 0:
            *lines, tail = bytes(rest).split(end)
            rest = bytearray(tail)
            for line in lines:
                number += 1
                yield number, line.removesuffix(b"\r") if end == b"\n" else line
        progress.advance(len(chunk))
    if rest:
        yield number + 1, bytes(rest)


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """The bytes of a file descriptor, as they arrive; the event loop continues meanwhile.

    Without threads, so that Ctrl-C never waits for a line of input. Regular files cannot be polled
    and need not be: they are read directly.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            yield chunk
            await asyncio.sleep(0)
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        while True:
            await readable.wait()
            readable.clear()
            # The loop may call twice for one chunk: a read for the second would block it.
            if not poll.poll(0):
                continue
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    finally:
        loop.remove_reader(descriptor)
