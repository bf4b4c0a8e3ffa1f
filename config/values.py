"""The definition of one setting: its syntax, type and bounds.

A `Key` states everything about one setting once: its Kafka name, type, default, range, whether it
may change at run time, and the sentence that documents it. Parsing text to a value, the range in an
error message, `DescribeConfigs` and the generated documentation all read the same `Key`.

This module knows no particular setting; `config.broker_keys`, `config.topic_keys` and
`config.group` have the tables. Source of the types and of the number that each type has on the
wire: Kafka's `ConfigDef.Type` and `DescribeConfigsResponse.ConfigType`.
"""

import enum
import re
from collections.abc import Callable, Mapping

from values.dataclasses import dataclass

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,100}")

Value = bool | int | float | str | tuple[str, ...]


class ValueType(enum.IntEnum):
    """The type of a setting; the number is the one `DescribeConfigs` reports."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


HIDDEN = "[hidden]"
"""What stands for a secret wherever a value is shown."""


class Secret:
    """A secret from a configuration; no text form of it shows its value.

    The value is literal, or `file:/path` or `env:NAME`, which the broker reads when it starts, or
    it was taken from a provider (`config.providers`) when the settings were read.
    """

    __slots__ = ("_text", "_value", "provided_by")

    def __init__(
        self, text: str, value: str | None = None, provided_by: tuple[str, ...] = ()
    ) -> None:
        """Keep `text`, and for a reference to a provider its `value` and the files it is in."""
        self._text = text
        self._value = value
        self.provided_by = provided_by

    def __repr__(self) -> str:
        """Never the value."""
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        """Whether both are written the same way, and providers gave them the same value.

        What the files of `file:/path` have is not compared.
        """
        return isinstance(other, Secret) and self._both() == other._both()

    def __hash__(self) -> int:
        """As equality demands."""
        return hash(self._both())

    def _both(self) -> tuple[str, str | None]:
        return self._text, self._value

    @property
    def is_empty(self) -> bool:
        """Whether it is given, but as nothing."""
        return not (self._text if self._value is None else self._value)

    @property
    def is_literal(self) -> bool:
        """Whether the secret itself was written into the configuration."""
        return self._value is None and not self._text.startswith(("file:", "env:"))

    @property
    def file(self) -> str:
        """The path of the file that is the secret and is read again; empty if none is."""
        is_file = self._value is None and self._text.startswith("file:")
        return self._text.removeprefix("file:") if is_file else ""

    def reveal(self, read_file: Callable[[str], str], environment: Mapping[str, str]) -> str:
        """The secret; a file's last line break is no part of it.

        Raises:
            OSError: the file cannot be read.
            InvalidValue: the environment does not have the variable.
        """
        if self._value is not None:
            return self._value
        form, _, rest = self._text.partition(":")
        if form == "file":
            return read_file(rest).removesuffix("\n").removesuffix("\r")
        if form == "env":
            if rest not in environment:
                raise InvalidValue(f"the environment has no variable {rest}")
            return environment[rest]
        return self._text


class InvalidValue(ValueError):
    """A value that cannot be parsed or is out of range; the message says what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting.

    Attributes:
        name: Kafka's property name, or our own if Kafka has none.
        type: how the text is parsed.
        default: the value when it is unset.
        low, high: inclusive bounds of a number; None leaves that side open.
        choices: the words allowed (for a list: in it); empty leaves it open.
        ignores_case: whether capitals in a word count as small letters, which `choices` has.
        dynamic: may be changed through the protocol while the broker runs.
        doc: one or two sentences for `DescribeConfigs` and docs/configuration.md.
        synonyms: for a topic setting, the broker settings that supply its default, most specific
            first, each with the factor that turns its unit into this key's.
        aliases: other accepted names of this setting.
        check: a further test that returns a complaint, or None.
        form: the allowed values in words, where the type does not say it.
    """

    name: str
    type: ValueType
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    ignores_case: bool = False
    dynamic: bool = False
    synonyms: tuple[tuple[str, int], ...] = ()
    aliases: tuple[str, ...] = ()
    check: Callable[[Value], str | None] | None = None
    form: str = ""

    @property
    def field(self) -> str:
        """The attribute of a model that holds the value: the name with dots as underscores."""
        return self.name.replace(".", "_").replace("-", "_")

    def allowed(self) -> str:
        """The allowed values in words, for error messages and documentation."""
        if self.form:
            return self.form
        if self.choices:
            words = ", ".join(word or "(empty)" for word in self.choices)
            return f"a list of: {words}" if self.type is ValueType.LIST else f"one of: {words}"
        if self.type is ValueType.BOOLEAN:
            return "true or false"
        if self.type is ValueType.PASSWORD:
            return "a secret: file:/PATH, env:NAME, or the text itself"
        if self.type in (ValueType.STRING, ValueType.LIST):
            return "text" if self.type is ValueType.STRING else "a comma-separated list"
        kind = "a number" if self.type is ValueType.DOUBLE else "a whole number"
        low, high = _bound(self.low), _bound(self.high)
        if low and high:
            return f"{kind} from {low} to {high}"
        if low or high:
            return f"{kind}, at {'least' if low else 'most'} {low or high}"
        return kind

    def parse(self, text: str, *, is_new: bool = False) -> Value:
        """The value that `text` denotes.

        A word that a list has twice counts once, as in Kafka 4. An empty one is refused in what
        `is_new`, as there; where it is stored from before, it is left out.

        Raises:
            InvalidValue: not of the type, out of range, or not one of the choices.
        """
        text = text.strip()
        if (
            is_new
            and self.type is ValueType.LIST
            and text
            and "" in map(str.strip, text.split(","))
        ):
            raise InvalidValue("a word between its commas is empty")
        value = _PARSERS[self.type](text.lower() if self.ignores_case else text)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.low is not None and value < self.low:
                raise InvalidValue("too small")
            if self.high is not None and value > self.high:
                raise InvalidValue("too large")
        words = value if isinstance(value, tuple) else (value,)
        if self.choices and any(word not in self.choices for word in words):
            raise InvalidValue("not a known word")
        complaint = self.check(value) if self.check else None
        if complaint:
            raise InvalidValue(complaint)
        return value


def format_value(value: Value) -> str:
    """The text that parses back to `value`, in the form Kafka's tools print."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _bound(limit: float | None) -> str:
    if limit is None or limit >= INT64_MAX:
        return ""
    return str(int(limit)) if limit == int(limit) else str(limit)


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise InvalidValue("not true or false")
    return lowered == "true"


def _parse_int(width: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _WHOLE_NUMBER.fullmatch(text) is None:
            raise InvalidValue("not a whole number")
        value = int(text)
        if not -(1 << (width - 1)) <= value < 1 << (width - 1):
            raise InvalidValue(f"does not fit {width} bits")
        return value

    return parse


def _parse_float(text: str) -> float:
    try:
        value = float(text.replace("_", "?"))  # Python's own notation of digits is not Kafka's
    except ValueError:
        raise InvalidValue("not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidValue("not a finite number")
    return value


def list_words(text: str) -> tuple[str, ...]:
    """The words of a list, each once, in their order."""
    return tuple(dict.fromkeys(filter(None, _words(text))))


def _words(text: str) -> list[str]:
    """What stands between the commas."""
    return [word.strip() for word in text.split(",")]


_PARSERS: dict[ValueType, Callable[[str], Value]] = {
    ValueType.BOOLEAN: _parse_bool,
    ValueType.STRING: str,
    ValueType.INT: _parse_int(32),
    ValueType.LONG: _parse_int(64),
    ValueType.DOUBLE: _parse_float,
    ValueType.LIST: list_words,
    ValueType.PASSWORD: str,
}
