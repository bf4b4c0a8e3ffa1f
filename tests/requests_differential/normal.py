"""An answer as a flat table, without what legitimately varies; and what differs between two.

A row is a path and a value, like ``topics[own-topic].partitions[0].error_code``. Elements of arrays
are known by what identifies them, so that their order does not matter. What a broker chooses itself
is named instead of kept: ids of topics, producers and members, epochs of consumer groups, ports,
times near now, texts of errors. Only whether a text is there is compared.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from protocol.declare.primitives import RECORDS, UUID, ZERO_UUID, FieldSpec, field_specs
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.records.scan import iter_records, scan_entries
from tests.requests_differential.scene import Scene

Answer = dict[str, object]

OUTCOME: Final = "answer"
"""The row that says whether there was an answer at all."""

_ANSWERED: Final = "answered"
_LEFT_OUT: Final = frozenset({"throttle_time_ms"})
_TEXTS: Final = frozenset({"error_message", "batch_index_error_message", "documentation"})
_MEMBERS: Final = frozenset({"member_id", "leader"})
_EPOCHS: Final = frozenset({"member_epoch", "group_epoch", "assignment_epoch"})
_BYTES_FREE: Final = frozenset({"usable_bytes", "total_bytes"})
_TOPIC_NAMES: Final[tuple[str, ...]] = ("name", "topic", "topic_name")
"""A topic is known by its name; by its id only where the answer has no name."""

_IDENTITIES: Final = (
    "group_id",
    "key",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "member_id",
    "transactional_id",
    "producer_id",
    "user",
    "api_key",
    "broker_id",
    "node_id",
    "feature",
    "log_dir",
)
_LONG: Final = re.compile("x{9,}")
_DAY_MS: Final = 86_400_000


class Mismatch(NamedTuple):
    """One row in which two answers differ."""

    at: str
    ours: str
    theirs: str


def normal(answer: Any, version: int, scene: Scene, message: Any) -> Answer:
    """The table of an answer, or of there being none."""
    if isinstance(answer, str):
        return {OUTCOME: answer}
    table = _Table(version, scene, set(_leaves(message)))
    return {OUTCOME: _ANSWERED, **dict(table.of_struct(answer, ""))}


def mismatches(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[Mismatch]:
    """Where they differ; of an element that one lacks, only that."""
    if ours[OUTCOME] != theirs[OUTCOME]:
        return [Mismatch(OUTCOME, _in_short(ours), _in_short(theirs))]
    found: list[Mismatch] = []
    lacking: tuple[str, ...] = ()
    for at in sorted({*ours, *theirs}):
        left, right = (table.get(at, "absent") for table in (ours, theirs))
        if left == right or at.startswith(lacking):
            continue
        found.append(Mismatch(at, str(left), str(right)))
        if "absent" in (left, right):
            lacking = (*lacking, at)
    return found


def _in_short(answer: Mapping[str, object]) -> str:
    if answer[OUTCOME] != _ANSWERED:
        return str(answer[OUTCOME])
    errors = {str(value) for at, value in answer.items() if at.endswith("error_code")}
    return f"answered {' '.join(sorted(errors))}".strip()


def _leaves(value: Any) -> Iterator[object]:
    """Every plain value in a message."""
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _leaves(getattr(value, name))
    else:
        yield value


class _Table:
    def __init__(self, version: int, scene: Scene, asked: set[object]) -> None:
        self._version = version
        self._scene = scene
        self._asked = asked
        self._now_ms = time.time_ns() // 1_000_000

    def of_struct(self, struct: Any, path: str) -> Iterator[tuple[str, object]]:
        for name, spec in field_specs(type(struct)):
            if not spec.present_in(self._version) or name in _LEFT_OUT:
                continue
            at = f"{path}.{name}" if path else name
            value = getattr(struct, name)
            if spec.is_array and value is not None:
                yield from self._of_array(spec, name, value, at)
            elif isinstance(spec.element, type) and value is not None:
                yield from self.of_struct(value, at)
            else:
                yield at, self._of_value(spec, name, value)

    def _of_array(
        self, spec: FieldSpec, name: str, elements: list[Any], at: str
    ) -> Iterator[tuple[str, object]]:
        if not isinstance(spec.element, type):
            yield at, sorted((self._of_value(spec, name, value) for value in elements), key=repr)
            return
        yield at, "array"
        tables = [(self._identity(e), list(self.of_struct(e, ""))) for e in elements]
        seen: Counter[str] = Counter()
        for identity, rows in sorted(tables, key=repr):
            seen[identity] += 1
            again = f" #{seen[identity]}" if seen[identity] > 1 else ""
            element = f"{at}[{identity}{again}]"
            yield element, "present"
            for inner, value in rows:
                yield f"{element}.{inner}", value

    def _identity(self, struct: Any) -> str:
        specs = {
            name: spec
            for name, spec in field_specs(type(struct))
            if spec.present_in(self._version) and not isinstance(spec.element, type)
        }
        named = [name for name in _TOPIC_NAMES if name in specs and getattr(struct, name)]
        chosen = (*(named or ["topic_id"]), *_IDENTITIES)
        return "/".join(
            str(self._of_value(specs[name], name, getattr(struct, name)))
            for name in chosen
            if name in specs
        )

    def _of_value(self, spec: FieldSpec, name: str, value: Any) -> object:
        if value is None:
            return None
        if spec.element is RECORDS:
            return self._of_records(value)
        if spec.element is UUID:
            return self._of_id(value)
        if isinstance(value, str):
            return self._of_text(name, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._of_number(name, value)
        if isinstance(value, bytes):
            return value.hex()[:200]
        return value

    def _of_text(self, name: str, value: str) -> str:
        scene = self._scene
        if name in _TEXTS:
            return value and "text"
        if name in _MEMBERS and value and value not in self._asked:
            return "own member" if value == scene.member_id else "new member"
        for own, known in (
            (scene.log_dir, "log-dir"),
            (scene.cluster_id, "cluster-id"),
            (scene.member_id, "own member"),
            (scene.member_id.upper(), "OWN MEMBER"),
            (scene.case, "own"),
            (scene.case.upper(), "OWN"),
        ):
            value = value.replace(own, known)
        return _LONG.sub("x...", value)

    def _of_id(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "zero"
        name = self._scene.ids.get(value)
        if name is not None:
            return name.replace(self._scene.case, "own")
        return "asked" if value in self._asked else "new"

    def _of_number(self, name: str, value: int) -> object:
        scene = self._scene
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if name == "port" and value == scene.port:
            return "port"
        if name in _BYTES_FREE and value > 0:
            return "bytes"
        if name == "session_id" and value > 0 and value not in self._asked:
            return "session"
        if name == "producer_id" and value >= 0:
            return self._of_producer(value)
        if name in _EPOCHS and value > 0:
            return f"epoch{value - scene.member_epoch:+}"
        return "now" if abs(value - self._now_ms) < _DAY_MS else value

    def _of_producer(self, value: int) -> object:
        distance = value - self._scene.producer_id
        if abs(distance) <= 1:
            return f"own producer{distance:+}" if distance else "own producer"
        return value if value in self._asked else "new producer"

    def _of_records(self, value: Any) -> object:
        entries: list[object] = []
        try:
            for entry in scan_entries(value):
                records = [(r.key, r.value) for r in iter_records(value, entry.position)]
                producer = self._of_number("producer_id", entry.producer_id)
                entries.append((entry.magic, entry.base_offset, producer, records))
        except ProtocolError as error:
            entries.append(type(error).__name__)
        return entries
