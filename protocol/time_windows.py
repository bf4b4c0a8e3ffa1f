"""Names of time windows: `TOPIC.__t__FROM__TO` stands for the records of TOPIC in [FROM, TO).

Owns the grammar of these names, in both directions. Whether a broker serves them is its setting
`time.windows.enable`.

    flights.__t__20261101T100000Z__20261101T110000Z      an hour
    flights.__t__20261101T100000.250Z__                  from then on, without an end
    flights.__t__1793527200000__1793530800000            the same in ms since 1970

A number whose size shows that it counts seconds, microseconds or nanoseconds is refused, as the
command line refuses it.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

MARK: Final = ".__t__"
"""Between the topic and the times; no other part of a window's name contains it."""

NO_END_MS: Final = 2**63
"""The end of a window without one: above every timestamp."""

_BETWEEN: Final = "__"
_WRITTEN: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{3}))?Z", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,19}", re.ASCII)
_FORMAT: Final = "%Y%m%dT%H%M%S"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = range(10**8, 10**11)
_CALENDAR_END_MS: Final = 253_402_300_800_000
_MILLISECONDS_END: Final = _CALENDAR_END_MS + 86_400_000
_FORMS: Final = "write 20261101T100000Z, 20261101T100000.250Z or milliseconds since 1970"


class MalformedWindow(ValueError):
    """A name with `MARK` whose times cannot be used; the message names them and the cure."""


class TimeWindow(NamedTuple):
    """The records of a topic with `start_ms <= timestamp < end_ms`."""

    topic: str
    start_ms: int
    end_ms: int


def parse_window(name: str) -> TimeWindow | None:
    """The window that `name` stands for; None for a name without `MARK`.

    Raises:
        MalformedWindow: the name has the mark, but no topic or no pair of times.
    """
    topic, mark, times = name.rpartition(MARK)
    if not mark:
        return None
    start, between, end = times.partition(_BETWEEN)
    if not topic or not between:
        raise MalformedWindow(f"{name!r} is no window; write TOPIC{MARK}FROM{_BETWEEN}TO")
    window = TimeWindow(topic, _parse(start, "FROM"), _parse(end, "TO") if end else NO_END_MS)
    if window.start_ms >= window.end_ms:
        raise MalformedWindow(f"FROM is {start} and TO is {end} in {name!r}; FROM must be earlier")
    return window


def topic_of(name: str) -> str:
    """The topic of the window that `name` stands for, else the name itself."""
    try:
        window = parse_window(name)
    except MalformedWindow:
        return name
    return name if window is None else window.topic


def window_name(topic: str, start_ms: int, end_ms: int | None = None) -> str:
    """The name of [start_ms, end_ms) of `topic`; without an end the window is open."""
    end = "" if end_ms is None else _format(end_ms)
    return f"{topic}{MARK}{_format(start_ms)}{_BETWEEN}{end}"


def _parse(text: str, field: str) -> int:
    written = _WRITTEN.fullmatch(text)
    if written is not None:
        try:
            time = datetime.strptime(written[1], _FORMAT).replace(tzinfo=UTC)
        except ValueError:
            raise MalformedWindow(f"{field} is {text!r}, which is no time; {_FORMS}") from None
        seconds = (time - _EPOCH).days * 86_400 + (time - _EPOCH).seconds
        if seconds < 0:
            raise MalformedWindow(f"{field} is {text!r}; times before 1970 are not stored")
        return seconds * 1000 + int(written[2] or 0)
    if _NUMBER.fullmatch(text) is None:
        raise MalformedWindow(f"{field} is {text[:40]!r}, which is no time; {_FORMS}")
    number = int(text)
    if number in _SECONDS or number >= _MILLISECONDS_END:
        raise MalformedWindow(f"{field} is {text}, which is not in milliseconds; {_FORMS}")
    return number


def _format(time_ms: int) -> str:
    if not 0 <= time_ms < _CALENDAR_END_MS:
        return str(time_ms)
    seconds, ms = divmod(time_ms, 1000)
    time = datetime.fromtimestamp(seconds, UTC)
    return f"{time:%Y%m%dT%H%M%S}" + (f".{ms:03}Z" if ms else "Z")
