"""``tidelog dump-segment``: the content of a segment or index file, and whether it is correct.

Reads files in place, without a broker: a ``.log``, or an index next to one. For a log it checks
every entry's checksum and order, and then the indexes next to it; for an index it lists the entries
with their verdict. Formats are those of Apache Kafka, so its files can be dumped too. The file is
mapped, not loaded; a segment of any size takes little memory.

What an index entry must satisfy:

=============  ================================================================================
offset index   the position starts an entry of the log, which ends with the offset (entries that
               point beyond a damage are not judged)
time index     no record up to the offset is newer than the timestamp; both only rise
auxiliary      the rules of `storage.audit.auxiliary`: a lookup may start there, or counts add up
=============  ================================================================================
"""

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

import click

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import json_line, say
from cli.record_format import text_of
from client.times import format_time
from protocol.errors import ProtocolError
from protocol.records.layout import CODEC_MASK, MAGIC_V2, NO_PRODUCER_ID, Codec
from protocol.records.scan import Entry, Stop, iter_records, scan_checked
from storage.audit.auxiliary import AUXILIARY_READERS
from storage.audit.findings import IndexProblem
from storage.disk.file_names import (
    AUXILIARY_SUFFIXES,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_segment_file_name,
)
from storage.segment.offset_index import OffsetIndex
from storage.segment.time_index import TimeIndex
from storage.segment.txn_index import ENTRY as TXN_ENTRY
from values.dataclasses import dataclass
from values.words import format_count

_WINDOW_BYTES = 4 * 1024 * 1024
"""How much of a log is scanned at a time."""

_CODEC_NAMES = {codec.value: codec.name.lower() for codec in Codec}

_LINES = {
    "batch": "{position:>12} {size:>9} {offsets:>23} {records:>8}  {codec:<6} {time:<29}  {notes}",
    "record": "{offset:>46}  {time:<38}  {key}  {value}",
    "index": "{slot:>8} {entry:<60} {verdict}",
    "side-file": "{words}",
}
_LOG_HEADING = _LINES["batch"].format(
    position="POSITION",
    size="SIZE",
    offsets="OFFSETS",
    records="RECORDS",
    codec="CODEC",
    time="NEWEST",
    notes="NOTES",
)


@dataclass(slots=True, kw_only=True)
class LogFacts:
    """The result of the walk over a log; indexes must agree with `positions` and `maxima`."""

    positions: dict[int, int] = field(default_factory=dict)
    """Position of an entry -> its last offset."""
    maxima: list[tuple[int, int]] = field(default_factory=list)
    """(last offset, largest timestamp up to there), in order."""
    records_count: int = 0
    sound_bytes: int = 0
    """How far the log could be read; bytes after it are not judged."""
    problems: list[str] = field(default_factory=list)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-r", "--records", "with_records", is_flag=True, help="Show the records too.")
@click.option("-s", "--summary", is_flag=True, help="Check everything, list nothing.")
@json_option
def command(*, file: Path, with_records: bool, summary: bool, as_json: bool) -> int:
    """Show and check what a segment file (.log) or an index file holds.

    With --json one object per line: entries, then a last one with the problems found.
    Exit code 6 says that there are problems.
    """
    if not file.exists():
        raise CommandFailed(f"{file} does not exist", ExitCode.NOT_FOUND)
    parsed = parse_segment_file_name(file.name)
    if parsed is None:
        raise CommandFailed(
            f"{file} is no segment file: its name is 20 digits and {LOG_SUFFIX}, "
            f"{', '.join(INDEX_SUFFIXES[:-1])} or {INDEX_SUFFIXES[-1]}",
            ExitCode.USAGE,
        )
    show = _Show(is_json=as_json, is_quiet=summary)
    suffix = parsed.kind
    if suffix == LOG_SUFFIX:
        facts = _dump_log(file, show, with_records=with_records)
        problems = [*facts.problems, *_check_siblings(file, facts, parsed.base_offset)]
        show.end(
            file,
            problems,
            f"{format_count(len(facts.positions), 'batch', 'batches')}, "
            f"{format_count(facts.records_count, 'record')}",
        )
    else:
        problems, count = _dump_index(file, suffix, parsed.base_offset, show)
        show.end(file, problems, format_count(count, "entry", "entries"))
    return ExitCode.DAMAGED if problems else ExitCode.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Show:
    """Prints entries as they are found, as lines for people or objects for programs."""

    is_json: bool
    is_quiet: bool

    def heading(self, text: str) -> None:
        if not self.is_json and not self.is_quiet:
            click.echo(click.style(text.rstrip(), bold=True))

    def line(self, kind: str, facts: dict[str, Any], words: dict[str, Any]) -> None:
        if self.is_quiet:
            return
        if self.is_json:
            click.echo(json_line({"kind": kind, **facts}))
        else:
            say(_LINES[kind].format(**words).rstrip())

    def end(self, file: Path, problems: Sequence[str], counted: str) -> None:
        if self.is_json:
            click.echo(
                json_line({"kind": "summary", "file": str(file), "problems": list(problems)})
            )
            return
        for problem in problems:
            click.echo(f"{click.style('problem', fg='red')}: {problem}")
        count = len(problems)
        verdict = "no problem found" if not count else f"{count} problem{'s' * (count > 1)}"
        click.echo(f"{file.name}: {counted}, {verdict}")


@contextmanager
def _mapped(file: Path) -> Iterator[memoryview]:
    """The bytes of a file, borrowed while the block runs."""
    with file.open("rb") as stream:
        if file.stat().st_size == 0:
            yield memoryview(b"")
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            view = memoryview(mapping)
            try:
                yield view
            finally:
                view.release()


# The log.


def _dump_log(file: Path, show: _Show, *, with_records: bool) -> LogFacts:
    facts = LogFacts()
    show.heading(_LOG_HEADING)
    newest = -1
    expected = -1
    with _mapped(file) as view:
        for entry in _entries(view, facts.problems):
            if entry.base_offset < expected and entry.magic == MAGIC_V2:
                facts.problems.append(
                    f"at byte {entry.position}: offset {entry.base_offset} comes after "
                    f"{expected - 1}"
                )
            expected = entry.last_offset + 1
            if entry.records_count:
                # Batches that compaction left without records count for no lookup.
                newest = max(newest, entry.max_timestamp)
            facts.positions[entry.position] = entry.last_offset
            facts.sound_bytes = entry.position + entry.size
            facts.maxima.append((entry.last_offset, newest))
            facts.records_count += max(1, entry.records_count)
            show.line("batch", *_entry_facts(entry))
            if with_records:
                _dump_records(view, entry, facts.problems, show)
    return facts


def _entries(view: memoryview, problems: list[str]) -> Iterator[Entry]:
    """All valid entries in order; a problem if the file does not end with one."""
    position, window = 0, _WINDOW_BYTES
    while position < len(view):
        end = min(position + window, len(view))
        found = scan_checked(view, position, end)
        yield from found.entries
        if found.stop == Stop.CORRUPT:
            problems.append(
                f"at byte {found.end_position}: no sound entry starts there (check sum, size or "
                f"magic); {len(view) - found.end_position:,} bytes from there on were not read"
            )
            return
        if found.end_position == position:
            if end == len(view):
                problems.append(
                    f"at byte {position}: the last entry is cut off, {end - position:,} bytes of "
                    "it are there"
                )
                return
            window *= 2
        position = found.end_position


def _entry_facts(entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    number = entry.attributes & CODEC_MASK
    codec = _CODEC_NAMES.get(number, f"?{number}")
    facts = {
        "position": entry.position,
        "size": entry.size,
        "magic": entry.magic,
        "base_offset": entry.base_offset,
        "last_offset": entry.last_offset,
        "records": entry.records_count,
        "codec": codec,
        "timestamp_type": entry.timestamp_type.name,
        "max_timestamp_ms": entry.max_timestamp,
        "leader_epoch": entry.partition_leader_epoch,
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "base_sequence": entry.base_sequence,
        "is_transactional": entry.is_transactional,
        "is_control": entry.is_control,
    }
    notes = [f"v{entry.magic}"] if entry.magic != MAGIC_V2 else []
    if entry.timestamp_type.value == 1:
        notes.append("append time")
    if entry.producer_id != NO_PRODUCER_ID:
        notes.append(
            f"producer {entry.producer_id} epoch {entry.producer_epoch} "
            f"sequence {entry.base_sequence}"
        )
    notes += [word for word, is_on in _flags(entry) if is_on]
    words = {
        "position": entry.position,
        "size": entry.size,
        "offsets": f"{entry.base_offset}..{entry.last_offset}",
        "records": entry.records_count if entry.records_count >= 0 else "",
        "codec": codec,
        "time": format_time(entry.max_timestamp),
        "notes": ", ".join(notes),
    }
    return facts, words


def _flags(entry: Entry) -> tuple[tuple[str, bool], ...]:
    return (("transactional", entry.is_transactional), ("control", entry.is_control))


def _dump_records(view: memoryview, entry: Entry, problems: list[str], show: _Show) -> None:
    try:
        for record in iter_records(view, entry.position):
            facts = {
                "offset": record.offset,
                "timestamp_ms": record.timestamp,
                "key": text_of(record.key),
                "value": text_of(record.value),
                "headers": [[name, text_of(content)] for name, content in record.headers],
            }
            words = {**facts, "time": format_time(record.timestamp)}
            show.line("record", facts, words)
    except ProtocolError as error:
        problems.append(f"at byte {entry.position}: its records cannot be read: {error}")


# The indexes.


def _check_siblings(log: Path, facts: LogFacts, base_offset: int) -> list[str]:
    problems = []
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, *AUXILIARY_SUFFIXES):
        index = log.with_suffix(suffix)
        if index.exists():
            verdicts = _verdicts(index, suffix, base_offset, facts)
            problems += [f"{index.name}, entry {slot}: {bad}" for slot, _, bad in verdicts if bad]
    return problems


def _dump_index(file: Path, suffix: str, base_offset: int, show: _Show) -> tuple[list[str], int]:
    log = file.with_name(file.name.removesuffix(suffix) + LOG_SUFFIX)
    facts = None
    problems: list[str] = []
    if log.exists() and suffix != TXN_INDEX_SUFFIX:
        facts = _dump_log(log, _Show(is_json=False, is_quiet=True), with_records=False)
    if suffix in AUXILIARY_READERS:
        auxiliary = AUXILIARY_READERS[suffix](file.read_bytes())
        if not isinstance(auxiliary, IndexProblem):
            about, words = auxiliary.describe()
            show.line("side-file", about, {"words": words})
    count = 0
    for slot, entry, bad in _verdicts(file, suffix, base_offset, facts):
        count += 1
        words = ", ".join(
            f"{name} {format_time(value) if name == 'time' else value}"
            for name, value in entry.items()
        )
        verdict = bad or ("ok" if facts is not None else "")
        show.line(
            "index",
            {"slot": slot, **entry, "problem": bad},
            {"slot": slot, "entry": words, "verdict": verdict},
        )
        if bad:
            problems.append(f"entry {slot}: {bad}")
    return problems, count


def _verdicts(
    file: Path, suffix: str, base_offset: int, facts: LogFacts | None
) -> Iterator[tuple[int, dict[str, int], str | None]]:
    """(slot, entry, its problem) of every entry of an index file."""
    with _mapped(file) as view:
        if suffix == TXN_INDEX_SUFFIX:
            names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
            whole = len(view) - len(view) % TXN_ENTRY.size
            for slot, values in enumerate(TXN_ENTRY.iter_unpack(view[:whole])):
                yield slot, dict(zip(names, values, strict=True)), None
        elif suffix == OFFSET_INDEX_SUFFIX:
            yield from _offset_verdicts(view, base_offset, facts)
        elif suffix in AUXILIARY_READERS:
            yield from _auxiliary_verdicts(bytes(view), suffix, base_offset, facts)
        else:
            yield from _time_verdicts(view, base_offset, facts)


def _offset_verdicts(
    view: memoryview, base_offset: int, facts: LogFacts | None
) -> Iterator[tuple[int, dict[str, int], str | None]]:
    unpack = OffsetIndex.ENTRY
    for slot, (relative, position) in enumerate(unpack.iter_unpack(_used(view, unpack.size))):
        offset = base_offset + relative
        bad = None
        if facts is not None and (last := facts.positions.get(position)) != offset:
            if last is not None:
                bad = f"the entry at byte {position} ends with offset {last}, not {offset}"
            elif position < facts.sound_bytes or not facts.problems:
                bad = f"no entry of the log starts at byte {position}"
        yield slot, {"offset": offset, "position": position}, bad


def _time_verdicts(
    view: memoryview, base_offset: int, facts: LogFacts | None
) -> Iterator[tuple[int, dict[str, int], str | None]]:
    maxima = iter(facts.maxima if facts is not None else ())
    upcoming = next(maxima, None)
    newest = previous = -1
    unpack = TimeIndex.ENTRY
    for slot, (timestamp, relative) in enumerate(unpack.iter_unpack(_used(view, unpack.size))):
        offset = base_offset + relative
        while upcoming is not None and upcoming[0] <= offset:
            newest = upcoming[1]
            upcoming = next(maxima, None)
        bad = None
        if newest > timestamp:
            bad = f"a record of {format_time(newest)} lies at or before offset {offset}"
        elif timestamp <= previous:
            bad = "its timestamp is not above the one before"
        previous = timestamp
        yield slot, {"time": timestamp, "offset": offset}, bad


def _auxiliary_verdicts(
    content: bytes, suffix: str, base_offset: int, facts: LogFacts | None
) -> Iterator[tuple[int, dict[str, int], str | None]]:
    index = AUXILIARY_READERS[suffix](content)
    if isinstance(index, IndexProblem):
        yield 0, {}, f"the file cannot be read: expected {index.expected}, found {index.found}"
        return
    maxima = () if facts is None else facts.maxima
    for slot, (entry, bad) in enumerate(index.verdicts(base_offset, maxima)):
        yield slot, entry, bad


def _used(view: memoryview, entry_size: int) -> memoryview:
    """The entries of an index without the zeros that Kafka fills an open index up with."""
    count = len(view) // entry_size
    while count > 0 and not any(view[(count - 1) * entry_size : count * entry_size]):
        count -= 1
    return view[: count * entry_size]
