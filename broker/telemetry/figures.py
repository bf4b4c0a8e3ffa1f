"""The newest values that clients pushed, in Prometheus' text format.

Owns the figures of all instances, within bounds: a client may send any name and any label. Names
begin with `tidelog_client_`, so that none of them is one of the broker's own; Kafka's prefix
`org.apache.kafka.` is left out. Every figure has the labels `client_id` and `client_instance_id`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.telemetry.otlp import Point

FIGURES_MAX: Final = 50_000
FIGURES_OF_INSTANCE_MAX: Final = 2_000
LABELS_MAX: Final = 12
TEXT_MAX: Final = 200

_PREFIX: Final = "tidelog_client_"
_KAFKA: Final = "org.apache.kafka."
_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_FIGURES_PER_PIECE: Final = 500


class _Key(NamedTuple):
    """A figure of one instance: the name in the exposition, and its labels as text."""

    name: str
    labels: str


class _Owner(NamedTuple):
    """What all figures of an instance have in common."""

    client_id: str
    figures: dict[_Key, float]


class ClientFigures:
    """The figures of all instances. Loop thread only."""

    def __init__(
        self, limit: int = FIGURES_MAX, limit_of_instance: int = FIGURES_OF_INSTANCE_MAX
    ) -> None:
        """Keep at most `limit` figures, and so many of one instance."""
        self.dropped = 0
        """Values that were left out, because there were too many or a type did not fit."""

        self._limit = limit
        self._limit_of_instance = limit_of_instance
        self._owners: dict[bytes, _Owner] = {}
        self._kinds: dict[str, str] = {}
        """The type of each name: Prometheus wants one for all instances."""

        self._uses: Counter[str] = Counter()
        """How many figures have each name."""

        self._count = 0

    def __len__(self) -> int:
        """How many figures there are."""
        return self._count

    def take(self, instance_id: bytes, client_id: str, points: Iterable[Point]) -> None:
        """Keep the values of a push; a difference is added to the value before."""
        owner = self._owners.get(instance_id)
        if owner is None:
            owner = self._owners[instance_id] = _Owner(client_id, {})
        figures = owner.figures
        for point in points:
            name = _name_of(point)
            kind = "counter" if point.is_counter else "gauge"
            if self._kinds.get(name, kind) != kind or math.isnan(point.value):
                self.dropped += 1
                continue
            key = _Key(name, _text_of(point.labels))
            known = figures.get(key)
            if known is None:
                if len(figures) >= self._limit_of_instance or self._count >= self._limit:
                    self.dropped += 1
                    continue
                self._count += 1
                self._uses[name] += 1
                self._kinds[name] = kind
            figures[key] = point.value + (known or 0.0 if point.is_delta else 0.0)

    def forget(self, instance_ids: Iterable[bytes]) -> None:
        """Drop the figures of instances."""
        for instance_id in instance_ids:
            owner = self._owners.pop(instance_id, None)
            if owner is None:
                continue
            self._count -= len(owner.figures)
            for key in owner.figures:
                self._uses[key.name] -= 1
                if not self._uses[key.name]:
                    del self._uses[key.name], self._kinds[key.name]

    def lines(self) -> Iterator[bytes]:
        """The exposition, in pieces; a family's lines are contiguous."""
        families: dict[str, list[str]] = {
            name: [
                f"# HELP {name} Pushed by clients (KIP-714)\n# TYPE {name} {kind}\n",
            ]
            for name, kind in sorted(self._kinds.items())
        }
        number = 0
        for instance_id, owner in list(self._owners.items()):
            who = f'client_id="{_text(owner.client_id)}",client_instance_id="{instance_id.hex()}"'
            for key, value in list(owner.figures.items()):
                rest = f",{key.labels}" if key.labels else ""
                if key.name in families:
                    families[key.name].append(f"{key.name}{{{who}{rest}}} {_number(value)}\n")
                number += 1
                if number % _FIGURES_PER_PIECE == 0:
                    yield b""
        for lines in families.values():
            if len(lines) > 1:
                yield "".join(lines).encode()


def _name_of(point: Point) -> str:
    name = _NAME.sub("_", point.name.removeprefix(_KAFKA)[:TEXT_MAX])
    if point.is_counter and not name.endswith("_total"):
        name += "_total"
    return _PREFIX + name


def _text_of(labels: Iterable[tuple[str, str]]) -> str:
    """The labels as text; their names are made unique, and may not be those of every figure."""
    found: dict[str, str] = {}
    for name, value in labels:
        label = _NAME.sub("_", name[:TEXT_MAX])
        if not label or label[0].isdigit() or label.startswith("__"):
            label = f"label_{label}"
        if label not in ("client_id", "client_instance_id"):
            found.setdefault(label, value)
        if len(found) == LABELS_MAX:
            break
    return ",".join(f'{label}="{_text(value)}"' for label, value in found.items())


def _text(value: str) -> str:
    return value[:TEXT_MAX].translate(_ESCAPES)


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
