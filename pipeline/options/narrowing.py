"""The option `narrowTo`: limits that spare reading, in addition to those of the other options.

`spark.where` writes it from a condition, which Spark evaluates too. So a limit may be too wide, and
never too narrow. It is an option, and no filter that Spark pushes to a reader, because Spark 4.3
keeps a plan narrowed by one query's filters for the next query on the same frame.

    {"newestMs": 1372982400000, "partitions": [0, 2]}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.options.reader import OptionReader
from protocol.records.layout import INT64_MAX, INT64_MIN

NO_LOWER_TIME: Final = INT64_MIN
NO_UPPER_TIME: Final = INT64_MAX
_OPTION: Final = "narrowTo"
_NUMBERS: Final = {
    "oldestMs": "oldest_ms", "newestMs": "newest_ms",
    "firstOffset": "first_offset", "endOffset": "end_offset",
}  # fmt: skip
_FORM: Final = (
    'write JSON such as {"oldestMs":0,"newestMs":9,"firstOffset":0,"endOffset":9,"partitions":[0],'
    '"topics":["a"]}, each part optional, or use spark.where, which writes it'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """Limits of a condition; every part only excludes rows that the condition excludes too.

    Times are ms, offsets logical; upper ends are exclusive. None means "any".
    """

    oldest_ms: int = NO_LOWER_TIME
    newest_ms: int = NO_UPPER_TIME
    first_offset: int = 0
    end_offset: int = INT64_MAX
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None

    def admits(self, partition: tuple[str, int]) -> bool:
        """Whether rows of `partition`, a topic and an index, can meet the condition."""
        topic, index = partition
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or index in self.partitions
        )

    def to_option(self) -> str:
        """The value of the option that means these limits."""
        document: dict[str, Any] = {
            name: getattr(self, field)
            for name, field in _NUMBERS.items()
            if getattr(self, field) != getattr(NO_LIMITS, field)
        }
        if self.partitions is not None:
            document["partitions"] = sorted(self.partitions)
        if self.topics is not None:
            document["topics"] = sorted(self.topics)
        return json.dumps(document)


NO_LIMITS: Final = Narrowing()


def read_narrowing(reader: OptionReader, *, is_stream: bool) -> Narrowing:
    """The limits that the option gives; none where it is missing. Problems go into `reader`."""
    if not reader.has(_OPTION):
        return NO_LIMITS
    if is_stream:
        reader.refuse(_OPTION, "a stream reads every record that comes: filter its rows instead")
        return NO_LIMITS
    try:
        document = json.loads(reader.text(_OPTION))
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(map(_is_part, document, document.values())):
        reader.refuse(_OPTION, _FORM)
        return NO_LIMITS
    numbers = {field: document[name] for name, field in _NUMBERS.items() if name in document}
    return Narrowing(
        **numbers, partitions=_set_of(document, "partitions"), topics=_set_of(document, "topics")
    )


def _set_of(document: Mapping[str, Any], name: str) -> frozenset[Any] | None:
    return frozenset(document[name]) if name in document else None


def _is_part(name: str, value: object) -> bool:
    """Whether the option may have the part `name` with this value."""
    if name in _NUMBERS:
        return type(value) is int and INT64_MIN <= value <= INT64_MAX
    kind = {"partitions": int, "topics": str}.get(name)
    return kind is not None and isinstance(value, list) and all(type(v) is kind for v in value)
