"""Times as people write them, turned into milliseconds since the epoch, and back.

Owns the one grammar of times that the command line and the client accept. It knows nothing of
brokers and reads no clock of its own: the present is an argument, so every answer is repeatable.

The accepted forms:

==========================  ====================================================================
text                        meaning
==========================  ====================================================================
2013-07-04T12:00            ISO 8601; without a zone it is local time (see `zone`)
2013-07-04T12:00Z           ISO 8601 with ``Z`` or an offset such as ``-04:00``
2013-07-04T12:00[Asia/Tokyo]  ISO 8601 in a named zone (a blank instead of brackets will do)
2013-07-04                  midnight at the start of that local day
1372953600000               milliseconds since 1970-01-01T00:00:00Z
1372953600s                 the epoch with its unit spelled: s, ms, us or ns
-15m, -1h30m, +2d           relative to now; units ms, s, m, h, d (24 hours), w; no capital M
now, today, yesterday       also tomorrow, and with a distance: ``today+9h``
==========================  ====================================================================

A bare number whose size shows that it is not in milliseconds (seconds, microseconds, nanoseconds)
is refused. The message names the unit and gives the right value: guessing would be convenient today
and silently wrong for data of 1971. A local time that a clock change skips or repeats is refused as
well, for the same reason.
"""

import functools
import os
import re
from datetime import date, datetime, timedelta, timezone, tzinfo

from client.errors import InvalidTime, InvalidType
from protocol.records.layout import NO_TIMESTAMP

UTC = timezone.utc  # noqa: UP017 - the alias datetime.UTC reads worse next to timezone(...)

NO_TIME = -1
"""The timestamp of a record that carries none."""

MS_PER_SECOND = 1000
MS_PER_DAY = 86_400_000

# Between these bounds a number counts as milliseconds. The lower one is 1973-03-03, the upper one a
# day after the calendar's end, 9999-12-31, so that every time which can be written may also be
# given as a number; the neighbouring ranges are the present in other units.
_SECONDS_MIN = 10**8
_MILLISECONDS_MIN = 10**11
_MICROSECONDS_MIN = 253_402_387_200_000
_NANOSECONDS_MIN = 10**17
_NUMBER_MAX = 10**20

PLAIN_MS = range(_MILLISECONDS_MIN, _MICROSECONDS_MIN)
"""Numbers that can only be milliseconds since the epoch."""

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": MS_PER_DAY, "w": 7 * MS_PER_DAY}
_EPOCH_UNIT_PER_MS = {"ms": (1, 1), "s": (1000, 1), "us": (1, 1000), "ns": (1, 1_000_000)}

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_EPOCH_WITH_UNIT = re.compile(r"(\d+)(s|ms|us|ns)")
_RELATIVE = re.compile(r"(now|today|yesterday|tomorrow)?((?:[+-](?:\d+(?:ms|[smhdw]))+)*)", re.I)
_DISTANCE = re.compile(r"([+-])((?:\d+(?:ms|[smhdw]))+)", re.I)
_STEP = re.compile(r"(\d+)(ms|[smhdw])", re.I)
_NAMED_ZONE = re.compile(
    r"(?P<time>\S.*?)(?:\s*\[(?P<brackets>[^\]]+)\]|\s+(?P<word>[A-Za-z][\w+/-]*))"
)

_ZONE_RULE = re.compile(r"(<[\w+-]{3,}>|[A-Za-z]{3,})[+-]?\d")
"""A zone that TZ states by itself (POSIX), such as CET-1CEST."""

_TEXT_MAX = 200
"""Longer texts are not times; Python refuses to parse numbers of several thousand digits."""

_CALENDAR_EDGE = timedelta(days=2)
"""So near to the calendar's ends the system's conversion fails; no clock changes there."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MS_MAX = 2**63 - 1
"""The largest timestamp that the wire holds."""

_EXAMPLES = "2013-07-04T12:00Z, 2013-07-04, 1372939200000, -15m, now, today or yesterday"
_EXAMPLES_OF_DATA = "2013-07-04T12:00Z, 2013-07-04 or 1372939200000"
"""What `parse_time` takes where times relative to the present are refused."""


def parse_time(
    text: str, *, now_ms: int | None, zone: tzinfo | None = None, before_1970: bool = False
) -> int:
    """The instant that `text` names, in milliseconds since the epoch.

    `now_ms` None refuses times relative to the present: stored data must mean the same tomorrow.
    `zone` is where times without a zone are; None means this machine's local zone. Times before
    1970 are refused unless `before_1970` says that the caller accepts negative numbers: no request
    can look them up, although records may have them.

    Raises:
        InvalidTime: the text is not a time, its unit is wrong, or a clock change makes it
            ambiguous; the message says which and what to write instead.
    """
    word = text.strip()
    examples = _EXAMPLES_OF_DATA if now_ms is None else _EXAMPLES
    if not word:
        raise InvalidTime(f"an empty text is no time: write for example {examples}")
    if len(word) > _TEXT_MAX:
        raise InvalidTime(f"a text of {len(word)} characters is no time: write {examples}")
    timestamp_ms = _parse_word(word, now_ms, zone)
    if timestamp_ms > TIMESTAMP_MS_MAX:
        raise InvalidTime(f"'{word}' is beyond the largest timestamp, {TIMESTAMP_MS_MAX} ms")
    if timestamp_ms < -TIMESTAMP_MS_MAX:
        raise InvalidTime(f"'{word}' is before the smallest timestamp, {-TIMESTAMP_MS_MAX} ms")
    if timestamp_ms < 0 and not before_1970:
        raise InvalidTime(
            f"'{word}' lies before 1970, which a broker cannot be asked for: "
            "use 'earliest' for the oldest record"
        )
    return timestamp_ms


def _parse_word(word: str, now_ms: int | None, zone: tzinfo | None) -> int:
    if _NUMBER.fullmatch(word):
        return _parse_number(word)
    if spelled := _EPOCH_WITH_UNIT.fullmatch(word):
        multiply, divide = _EPOCH_UNIT_PER_MS[spelled[2]]
        return int(spelled[1]) * multiply // divide
    if relative := _RELATIVE.fullmatch(word):
        if now_ms is None:
            raise InvalidTime(
                f"'{word}' is relative to the present, and a record needs a time of its own: "
                "write ISO 8601 or milliseconds, such as 2013-07-04T12:00Z or 1372939200000"
            )
        return _parse_relative(relative[1], relative[2], now_ms, zone)
    return _parse_calendar(word, zone, _EXAMPLES_OF_DATA if now_ms is None else _EXAMPLES)


def to_ms(when: int | str | datetime, *, now_ms: int) -> int:
    """The instant in milliseconds that a number, a text or an aware `datetime` names.

    Raises:
        InvalidType: `when` is of another type.
        InvalidTime: it is not a usable time: the wrong unit, before 1970, or without a zone.
    """
    if isinstance(when, str):
        return parse_time(when, now_ms=now_ms)
    if isinstance(when, datetime):
        return datetime_to_ms(when)
    if isinstance(when, bool) or not isinstance(when, int):
        raise InvalidType(
            f"{when!r} is not a time: give whole milliseconds since the epoch (for time.time() "
            "write int(time.time() * 1000)), an aware datetime, or text such as -15m"
        )
    if when < 0:
        raise InvalidTime(f"{when} ms lies before 1970, where no record can be: give 0 or more")
    if mistake := find_unit_mistake(when):
        raise InvalidTime(mistake)
    if when > TIMESTAMP_MS_MAX:
        raise InvalidTime(f"{when} ms is beyond the largest timestamp, {TIMESTAMP_MS_MAX}")
    return when


def datetime_to_ms(moment: datetime) -> int:
    """Whole milliseconds of an aware `datetime`; parts of one are cut off.

    Raises:
        InvalidTime: it has no zone, or is before 1970.
    """
    if moment.utcoffset() is None:
        raise InvalidTime(
            f"the datetime {moment.isoformat()} has no zone, so it may be anywhere: give an aware "
            "one, such as datetime.now(timezone.utc) or moment.astimezone()"
        )
    timestamp_ms = _epoch_ms(moment)
    if timestamp_ms < 0:
        raise InvalidTime(
            f"'{moment.isoformat()}' lies before 1970, which a broker cannot be asked for: "
            "use 'earliest' for the oldest record"
        )
    return timestamp_ms


def datetime_of(timestamp_ms: int) -> datetime | None:
    """The timestamp of a record as an aware `datetime` in UTC.

    None where a record carries no time (-1), and beyond the calendar's end, the year 9999.
    """
    if timestamp_ms == NO_TIMESTAMP:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def format_time(timestamp_ms: int, zone: tzinfo | None = None) -> str:
    """ISO 8601 with milliseconds and the offset of `zone` (None: this machine's zone).

    -1 means that a record carries none, and reads ``-``; a number beyond the calendar's ends is
    given as it is.
    """
    if timestamp_ms == NO_TIME:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // MS_PER_SECOND, UTC).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    text = moment.isoformat(timespec="seconds")
    seconds, offset = text[:19], text[19:]
    return f"{seconds}.{timestamp_ms % MS_PER_SECOND:03d}{'Z' if offset == '+00:00' else offset}"


def format_duration(duration_ms: int) -> str:
    """A length of time in its two largest units, such as ``2h 15m`` or ``350ms``."""
    if duration_ms < 0:
        return "-" + format_duration(-duration_ms)
    if duration_ms < MS_PER_SECOND:
        return f"{duration_ms}ms"
    parts = []
    rest = duration_ms // MS_PER_SECOND
    for seconds, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def parse_duration(text: str) -> int:
    """A length of time in ms from text such as ``8d``, ``1h30m`` or ``-500ms``.

    Raises:
        InvalidTime: it is none; the message shows the form.
    """
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    steps = _STEP.findall(digits)
    if not steps or "".join(number + unit for number, unit in steps) != digits:
        raise InvalidTime(
            f"{text!r} is not a duration: write 500ms, 90s, 15m, 8d or 1h30m "
            f"(units {', '.join(_UNIT_MS)})"
        )
    return sign * sum(int(number) * _UNIT_MS[unit.lower()] for number, unit in steps)


def find_unit_mistake(number: int) -> str | None:
    """A sentence that names the apparent unit of `number`, if that is not milliseconds.

    Numbers below 100,000,000 pass: they come from a clock near zero, as in tests.
    """
    guess = _unit_of(number)
    if guess is None:
        return None
    unit, suffix = guess
    right = _to_ms(number, suffix)
    return (
        f"{number} looks like {unit}, and milliseconds since the epoch are expected: "
        f"for {format_time(right, UTC)} write {right} (or {number}{suffix})"
    )


def _unit_of(number: int) -> tuple[str, str] | None:
    if _SECONDS_MIN <= number < _MILLISECONDS_MIN:
        return "seconds", "s"
    if _MICROSECONDS_MIN <= number < _NANOSECONDS_MIN:
        return "microseconds", "us"
    if _NANOSECONDS_MIN <= number < _NUMBER_MAX:
        return "nanoseconds", "ns"
    return None


def _to_ms(number: int, suffix: str) -> int:
    multiply, divide = _EPOCH_UNIT_PER_MS[suffix]
    return number * multiply // divide


def _parse_number(word: str) -> int:
    if "." in word:
        milliseconds = round(float(word) * MS_PER_SECOND)
        raise InvalidTime(
            f"{word} has a fraction, so it looks like seconds, and whole milliseconds since the "
            f"epoch are expected: for {format_time(milliseconds, UTC)} write {milliseconds}"
        )
    number = int(word)
    if word[0] in "+-" and number != 0:
        raise InvalidTime(
            f"{word} lacks a unit: for a time relative to now write {word}m or {word}s "
            f"(units: ms, s, m, h, d, w); a time before 1970 is written as a date"
        )
    if mistake := find_unit_mistake(number):
        raise InvalidTime(mistake)
    if number >= _NUMBER_MAX:
        raise InvalidTime(f"{word} is beyond every calendar: write for example {_EXAMPLES}")
    if calendar := _calendar_guess(word):
        raise InvalidTime(
            f"{word} can be a date or milliseconds since the epoch: write {calendar} or {word}ms"
        )
    return number


def _calendar_guess(word: str) -> str | None:
    if len(word) == 4 and 1970 <= int(word) <= 2100:
        return f"{word}-01-01"
    if len(word) == 8 and 1900 <= int(word[:4]) <= 2100:
        try:
            return date(int(word[:4]), int(word[4:6]), int(word[6:])).isoformat()
        except ValueError:
            return None
    return None


def _parse_relative(anchor: str | None, distances: str, now_ms: int, zone: tzinfo | None) -> int:
    start = _anchor_ms((anchor or "now").lower(), now_ms, zone)
    for sign, steps in _DISTANCE.findall(distances):
        length = 0
        for count, unit in _STEP.findall(steps):
            if unit == "M":
                raise InvalidTime(
                    f"{anchor or ''}{distances}: M can be minutes or months: for minutes write "
                    f"{sign}{count}m, for months days such as {sign}{int(count) * 30}d"
                )
            length += int(count) * _UNIT_MS[unit.lower()]
        start += length if sign == "+" else -length
    return start


def _anchor_ms(anchor: str, now_ms: int, zone: tzinfo | None) -> int:
    if anchor == "now":
        return now_ms
    days = {"yesterday": -1, "today": 0, "tomorrow": 1}[anchor]
    local = datetime.fromtimestamp(now_ms // MS_PER_SECOND, UTC).astimezone(zone)
    # The calendar day is shifted, not the instant: a day with a clock change has 23 or 25 hours.
    day = local.date() + timedelta(days=days)
    return _resolve(datetime(day.year, day.month, day.day), zone, str(day), lenient=True)


def _parse_calendar(word: str, zone: tzinfo | None, examples: str) -> int:
    text, zone_name = word, None
    if match := _NAMED_ZONE.fullmatch(word):
        text, zone_name = match["time"], match["brackets"] or match["word"]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTime(f"'{word}' is not a time: write for example {examples}") from None
    if moment.tzinfo is not None:
        return _epoch_ms(moment)
    return _resolve(moment, _zone_named(zone_name, word) if zone_name else zone, word)


def _zone_named(name: str, word: str) -> tzinfo:
    if name.upper() in ("UTC", "GMT"):
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise InvalidTime(
            f"'{word}' names no time zone of this machine: '{name}' is unknown; "
            "write a zone such as [America/New_York], Z, or an offset such as -04:00"
        ) from None


def _resolve(naive: datetime, zone: tzinfo | None, word: str, *, lenient: bool = False) -> int:
    """The instant of a wall-clock reading in `zone`; both sides of a clock change are known.

    `lenient` takes the first instant instead of refusing: a day that begins in a skipped hour
    still begins somewhere.
    """
    first = _localised(naive.replace(fold=0), zone)
    second = _localised(naive.replace(fold=1), zone)
    first_ms, second_ms = _epoch_ms(first), _epoch_ms(second)
    if first_ms == second_ms or lenient:
        return min(first_ms, second_ms)
    offsets = f"{naive.isoformat()}{first:%z} or {naive.isoformat()}{second:%z}"
    reason = "happens twice" if second_ms > first_ms else "never happens"
    raise InvalidTime(
        f"{word} {reason} in {zone or first.tzname() or 'local time'}, where the clocks change "
        f"that night: say which instant is meant, {offsets}"
    )


def _localised(naive: datetime, zone: tzinfo | None) -> datetime:
    if zone is not None:
        return naive.replace(tzinfo=zone)
    _check_local_zone(os.environ.get("TZ", "").removeprefix(":"))
    try:
        return naive.astimezone()
    except (OverflowError, ValueError):
        # The first and the last days of the calendar have the offset of the neighbouring days.
        is_late = naive.year > _EPOCH.year
        beside = naive - _CALENDAR_EDGE if is_late else naive + _CALENDAR_EDGE
        return naive.replace(tzinfo=beside.astimezone().tzinfo)


def _epoch_ms(moment: datetime) -> int:
    # Whole numbers throughout: a float of today's microseconds cannot hold every millisecond.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@functools.cache
def _check_local_zone(name: str) -> None:
    """Refuse a TZ that the system does not know: it takes it for UTC, and says nothing."""
    if not name or name.upper() in ("UTC", "GMT") or _ZONE_RULE.match(name):
        return
    from zoneinfo import TZPATH

    if not any(os.path.isfile(os.path.join(folder, name)) for folder in TZPATH):
        raise InvalidTime(
            f"TZ={name} names no time zone of this machine, and local times would count as UTC: "
            "correct it, install the system's package tzdata, or write Z or an offset with the time"
        )
