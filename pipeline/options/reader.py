"""Options by name, without case, each with its form; problems are collected and raised together.

Owns the forms (number, size, duration, choice) and the kinds of names: known, unused but harmless,
unsupported settings of the Java client, and near misses. The options themselves, and their meaning,
are in `options`.
"""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pipeline.errors import BadOptions
from protocol.records.layout import INT64_MAX

_T = TypeVar("_T")
_UNUSED_NAMES: Final = frozenset(
    {
        "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms",
        "groupidprefix", "usedeprecatedoffsetfetching", "checkpointlocation", "path", "queryname",
        "kafkaconsumer.usedeprecatedoffsetfetching",
    }
)  # fmt: skip
"""Options of Kafka's source, and of Spark itself, that have no effect here and do no harm."""

_REFUSED_KAFKA: Final = {
    "kafka.group.id": "",
    "kafka.auto.offset.reset": "use startingOffsets or startingTimestamp",
    "kafka.key.deserializer": "keys are bytes; cast them in the query",
    "kafka.value.deserializer": "values are bytes; cast them in the query",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint, not in a group",
    "kafka.ssl.truststore.certificates": "give a file by kafka.ssl.truststore.location",
    "kafka.ssl.keystore.certificate.chain": "give a file by kafka.ssl.keystore.location",
    "kafka.ssl.keystore.key": "give a file by kafka.ssl.keystore.location, key and certificate",
    "kafka.interceptor.classes": "there is no Java client here to intercept",
}
_GONE: Final = {
    "verifychecksums": "it is kafka.check.crcs now, Kafka's own name",
    "rowsperbatch": "leave it out: batches are as large as they are read fastest",
    "bytesperbatch": "leave it out: batches are as large as they are read fastest",
    "pushdown": "leave it out, and give conditions to spark.where",
}
"""Options of earlier releases, and what to do instead."""
_SECRET: Final = ("jaas", "password", "secret", "certificate", "keystore.key")
"""Parts of the names of options whose values are in no message."""
_UNITS_MS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_DURATION_MAX_MS: Final = 36_500 * 86_400_000
_USED_KAFKA: Final = (
    "kafka.bootstrap.servers", "kafka.security.protocol", "kafka.client.id",
    "kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafka.isolation.level",
    "kafka.sasl.mechanism", "kafka.sasl.jaas.config", "kafka.sasl.oauthbearer.token.endpoint.url",
    "kafka.ssl.truststore.location", "kafka.ssl.keystore.location", "kafka.check.crcs",
    "kafka.max.partition.fetch.bytes", "kafka.acks", "kafka.compression.type", "kafka.batch.size",
    "kafka.transaction.timeout.ms",
)  # fmt: skip


class OptionReader:
    """Takes options out of a mapping by name, without case, and collects problems."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read from `options`; names are matched without case."""
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}
        self.problems: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        """The value of `name`."""
        return self._values.get(name.lower(), default)

    def given(self, name: str, other: str) -> str:
        """Which of two names for one option was given; the first one wins."""
        return other if self.has(other) and not self.has(name) else name

    def has(self, name: str) -> bool:
        """Whether `name` was given."""
        return name.lower() in self._values

    def refuse(self, name: str, allowed: str) -> None:
        """Note that the value of `name` is not one of `allowed`."""
        is_secret = any(word in name.lower() for word in _SECRET)
        shown = "***" if is_secret else repr(self.text(name))
        self.problems.append(f"option {name}={shown}: {allowed}")

    def directory(self, name: str) -> str:
        """A path, given as it is or as a `file:` URL; empty if it was not given."""
        if self.has(name) and not self.text(name):
            self.refuse(name, "it is empty: give a directory, or leave the option out")
        try:
            return str(local_path(self.text(name))) if self.text(name) else ""
        except BadOptions as error:
            self.refuse(name, "; ".join(error.problems))
            return ""

    def place(self, name: str) -> str:
        """A directory as `directory` has it, or the address of an object store as it is."""
        return self.text(name) if is_store(self.text(name)) else self.directory(name)

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of `allowed`, without case."""
        value = self.text(name, default)
        for word in allowed:
            if value.lower() == word.lower():
                return word
        self.refuse(name, f"write {' or '.join(allowed)}")
        return default

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return self.choice(name, ("true", "false"), str(default)).lower() == "true"

    def number(self, name: str, default: _T, highest: int = INT64_MAX) -> int | _T:
        """A whole number from 1 to `highest`."""
        if not self.has(name):
            return default
        digits = self.text(name).removeprefix("+")
        value = int(digits) if is_number(digits) else 0
        if not 1 <= value <= highest:
            self.refuse(name, f"write a whole number from 1 to {highest}")
            return default
        return value

    def size(self, name: str, default: _T, highest: int = INT64_MAX) -> int | _T:
        """A number of bytes up to `highest`, with k, m, g (or kb, KiB, ...) for powers of 1024."""
        match = re.fullmatch(r"([0-9]{1,19})\s*([kmg]?)(i?b)?", self.text(name), re.IGNORECASE)
        if not self.has(name):
            return default
        shifts = {"": 0, "k": 10, "m": 20, "g": 30}
        size = 0 if match is None else int(match[1]) << shifts[match[2].lower()]
        if not 1 <= size <= highest:
            self.refuse(name, f"write a size such as 64m, 1g or 1048576, up to {highest} bytes")
            return default
        return size

    def duration(self, name: str, default: _T) -> int | _T:
        """Milliseconds, with ms, s, m, h or d."""
        match = re.fullmatch(r"([0-9]{1,19})\s*(ms|s|m|h|d|)", self.text(name), re.IGNORECASE)
        if not self.has(name):
            return default
        duration_ms = int(match[1]) * _UNITS_MS[match[2].lower()] if match else _DURATION_MAX_MS + 1
        if duration_ms > _DURATION_MAX_MS:
            self.refuse(name, "write a duration such as 500ms, 30s, 15m, 1h or 2d, up to 36500d")
            return default
        return duration_ms

    def check_names(self, known: tuple[str, ...], others: tuple[str, ...]) -> None:
        """Refuse names outside `known`; `others` are good names of the other direction."""
        lowered = {name.lower() for name in known}
        ignored = _UNUSED_NAMES | {name.lower() for name in others}
        for name, cure in _REFUSED_KAFKA.items():
            if cure and self.has(name):
                self.refuse(name, f"this setting of the Java client is not available: {cure}")
        for name in self._values:
            if name.startswith("kafka."):
                self._check_kafka_name(name)
            elif name in _GONE:
                self.problems.append(f"option {name} is gone: {_GONE[name]}")
            elif name not in lowered and name not in ignored:
                near = difflib.get_close_matches(name, lowered, n=1)
                proper = next((word for word in known if near and word.lower() == near[0]), "")
                hint = f"did you mean {proper}?" if proper else f"known are {', '.join(known)}"
                self.problems.append(f"option {name} is not known: {hint}")

    def _check_kafka_name(self, name: str) -> None:
        """Refuse a near miss of a Kafka setting that is used here; others pass unused."""
        if name in _USED_KAFKA:
            return
        near = difflib.get_close_matches(name, _USED_KAFKA, n=1, cutoff=0.93)
        if near and abs(len(near[0]) - len(name)) <= 1:
            self.problems.append(f"option {name} is not known: did you mean {near[0]}?")

    def raise_problems(self) -> None:
        """Raise the collected problems, if any."""
        if self.problems:
            raise BadOptions(*self.problems)


def is_number(text: str) -> bool:
    """Whether it is at most 19 digits; Python's own test takes those of other scripts, too."""
    return re.fullmatch(r"[0-9]{1,19}", text) is not None


def local_path(address: str) -> Path:
    """The absolute path of a directory that is given as a path or a `file:` URL.

    A relative path means the same as for the user's shell: it is made absolute here, in the driver,
    because executors have working directories of their own.

    Raises:
        BadOptions: it is empty, or an address of another kind, which would be taken for a relative
            path.
    """
    text = address.removeprefix("file://").removeprefix("file:")
    if not text or is_address(text):
        raise BadOptions(
            f"directory {address!r} is no path of a file system, nor here the address of a "
            "store: give a path that the driver and all executors have in common"
        )
    return Path(text).absolute()


def is_address(text: str) -> bool:
    """Whether `text` is a URL such as `s3://bucket/lake`."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", text) is not None


def is_store(text: str) -> bool:
    """Whether `text` is the address of an object store that `plan.folders` can open."""
    return re.match(r"(s3|s3a|gs|az|abfss?)://[^/]", text, re.IGNORECASE) is not None


def spark_path(address: str) -> str:
    """The form of a user's path or address for Spark's own readers and writers.

    A path is on the local or a mounted file system, whatever Spark's default is.
    """
    is_other = is_address(address) and not address.startswith("file:")
    return address if is_other else f"file://{local_path(address)}"
