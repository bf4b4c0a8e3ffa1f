"""Quotas as data: entities and their limits, which limit applies to a client, and the filters.

An *entity* is a user, a client id, both, or an address; None in place of a name is the default
entity, which stands for every name without limits of its own. Each key (`producer_byte_rate`, ...)
is looked up by itself. The first of these that has a limit for it counts:

    1 user and client id            5 default user and default client id
    2 user and default client id    6 default user
    3 user                          7 client id
    4 default user and client id    8 default client id

A limit of a user is shared by all its clients, also when it is the default user's; a limit with a
client id is that client's alone.

Pure; `broker.quotas.throttle` measures and enforces.

Differs from Kafka: NaN and infinity are refused; an address is an address, not a host name.

Source: KIP-546, KIP-612; Kafka `ClientQuotaControlManager`, `ClientQuotasImage`,
`DefaultQuotaCallback`.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from config.listeners import canonical_address
from config.values import INT32_MAX, INT64_MAX
from storage.directory.metadata import Json

KIND_QUOTA: Final = "quota"

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_WHOLE_MAX: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: (INT64_MAX, "a LONG"),
        CONSUMER_BYTE_RATE: (INT64_MAX, "a LONG"),
        CONNECTION_CREATION_RATE: (INT32_MAX, "an INT"),
    }
)
_CLIENT_KEYS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
_IP_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})
_FRACTION_MIN: Final = 1e-6

Entity: TypeAlias = "tuple[tuple[str, str | None], ...]"
"""Pairs of type and name, sorted by type; the name is None for the default."""


class InvalidQuota(ValueError):
    """A quota or a filter makes no sense; the text is for the client."""


class UnknownEntityType(InvalidQuota):
    """A filter names an entity type that does not exist."""


class Change(NamedTuple):
    """One key of an entity is set, or removed when `value` is None."""

    key: str
    value: float | None


class Component(NamedTuple):
    """One part of a filter: `match_type` 0 is exactly `match`, 1 the default, 2 any."""

    entity_type: str
    match_type: int
    match: str | None


class Limit(NamedTuple):
    """The limit that applies to a client, and who shares it; None there means everyone."""

    bound: float
    user: str | None
    client_id: str | None


_EXACT, _DEFAULT, _ANY = 0, 1, 2


class QuotaBook:
    """All quotas of a broker."""

    def __init__(self, documents: Mapping[str, Json]) -> None:
        """Take the documents of the journal.

        Raises:
            ValueError: one of them is unreadable.
        """
        self._limits: dict[Entity, dict[str, float]] = {}
        self._other_keys: dict[Entity, str] = {}
        for key, read in documents.items():
            entity, values = _parse(read)
            self._limits[entity] = values
            if key != document_key(entity):
                self._other_keys[entity] = key

    def __len__(self) -> int:
        """How many entities have limits."""
        return len(self._limits)

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """All entities and their limits."""
        return iter(self._limits.items())

    def of(self, entity: Entity) -> dict[str, float]:
        """The limits of `entity`; empty without any."""
        return dict(self._limits.get(entity, _NONE))

    def documents_of(self, entity: Entity, values: Mapping[str, float]) -> dict[str, Json]:
        """The documents to keep for the limits of `entity`; None removes one.

        An earlier version may have kept them under another form of the same address.
        """
        other = self._other_keys.get(entity)
        kept = {document_key(entity): document(entity, values)}
        return kept if other is None else {other: None, **kept}

    def put(self, entity: Entity, values: dict[str, float]) -> None:
        """Set all limits of `entity`; without any it is forgotten."""
        if values:
            self._limits[entity] = values
        else:
            self._limits.pop(entity, None)

    def select(
        self, components: Iterable[Component], *, strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """The entities that have at least the types of the filter; with `strict` exactly these.

        Raises:
            InvalidQuota: the filter makes no sense.
        """
        wanted = _checked_filter(components)
        if strict and not wanted:
            return []
        return [
            (entity, values)
            for entity, values in self._limits.items()
            if (len(entity) == len(wanted) or not strict) and _matches(dict(entity), wanted)
        ]

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The limit of `key` for a client, or None."""
        for entity, sharing_user, sharing_client in (
            (((CLIENT_ID, client_id), (USER, user)), user, client_id),
            (((CLIENT_ID, None), (USER, user)), user, client_id),
            (((USER, user),), user, None),
            (((CLIENT_ID, client_id), (USER, None)), user, client_id),
            (((CLIENT_ID, None), (USER, None)), user, client_id),
            (((USER, None),), user, None),
            (((CLIENT_ID, client_id),), None, client_id),
            (((CLIENT_ID, None),), None, client_id),
        ):
            bound = self._limits.get(entity, _NONE).get(key)
            if bound is not None:
                return Limit(bound, sharing_user, sharing_client)
        return None

    def may_limit_requests(self, user: str) -> bool:
        """Whether a limit of bytes or time counts for the user, under some client id at least."""
        return any(
            not _OF_REQUESTS.isdisjoint(values) and dict(entity).get(USER, user) in (user, None)
            for entity, values in self._limits.items()
        )

    def ip_limit(self, host: str) -> float | None:
        """The connections per second of an address, or None."""
        for entity in (((IP, host),), ((IP, None),)):
            bound = self._limits.get(entity, _NONE).get(CONNECTION_CREATION_RATE)
            if bound is not None:
                return bound
        return None


_NONE: Final[Mapping[str, float]] = MappingProxyType({})
_OF_REQUESTS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE})


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity of these types and names; of a type that occurs twice the last counts.

    Raises:
        InvalidQuota: there is no such entity.
    """
    names = dict(parts)
    if not names:
        raise InvalidQuota("Invalid empty client quota entity")
    for entity_type, name in names.items():
        if entity_type not in ENTITY_TYPES:
            raise InvalidQuota(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise InvalidQuota(f"Empty {entity_type} not supported")
    if IP in names:
        if len(names) > 1:
            raise InvalidQuota(
                "Invalid quota entity combination, an ip has no user and no client-id"
            )
        address = names[IP]
        if address is not None:
            try:
                names[IP] = canonical_address(address)
            except ValueError:
                raise InvalidQuota(
                    f"{address} is not a valid IP address; host names and networks are not accepted"
                ) from None
    return tuple(sorted(names.items()))


def check_changes(entity: Entity, changes: Iterable[Change]) -> None:
    """Check what an entity is to get.

    Raises:
        InvalidQuota: a key is unknown or occurs twice, or a value is out of its range.
    """
    known = _IP_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    seen: set[str] = set()
    for key, value in changes:
        if key in seen:
            raise InvalidQuota(f"Duplicate quota key {key}")
        seen.add(key)
        if value is None:
            continue
        if key not in known:
            raise InvalidQuota(f"Invalid configuration key {key}")
        if not math.isfinite(value):
            raise InvalidQuota(f"Quota {key} must be a finite number")
        if value <= 0:
            raise InvalidQuota(f"Quota {key} must be greater than 0")
        if key in _WHOLE_MAX:
            most, kind = _WHOLE_MAX[key]
            if value > most:
                raise InvalidQuota(f"Proposed value for {key} is too large for {kind}.")
            if value % 1.0 > _FRACTION_MIN:
                raise InvalidQuota(f"{key} cannot be a fractional value.")


def changed(values: Mapping[str, float], changes: Iterable[Change]) -> dict[str, float]:
    """These limits after valid `changes`."""
    after = dict(values)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def document_key(entity: Entity) -> str:
    """The key of an entity's document in the journal."""
    return json.dumps(dict(entity), ensure_ascii=False)


def document(entity: Entity, values: Mapping[str, float]) -> Json:
    """The document of an entity; None, which removes it, when it has no limits."""
    return {"entity": dict(entity), "values": dict(values)} if values else None


def format_entity(entity: Entity) -> str:
    """An entity in words, for people and the log."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in entity
    )


def _parse(read: Json) -> tuple[Entity, dict[str, float]]:
    if not isinstance(read, dict):
        raise ValueError(f"the quota {read!r} is no object")
    names, values = read.get("entity"), read.get("values")
    if not isinstance(names, dict) or not isinstance(values, dict):
        raise ValueError(f"the quota {read!r} has no entity or no values")
    entity = checked_entity((kind, None if n is None else str(n)) for kind, n in names.items())
    limits = {key: float(str(value)) for key, value in values.items()}
    check_changes(entity, (Change(key, value) for key, value in limits.items()))
    return entity, limits


def _checked_filter(components: Iterable[Component]) -> list[Component]:
    seen: dict[str, Component] = {}
    for component in components:
        kind, match_type, match = component
        if not kind:
            raise InvalidQuota("Unexpected empty filter component entity type")
        if kind in seen:
            raise InvalidQuota(f"Entity type {kind!r} stands in the filter twice.")
        if match_type == _EXACT and match is None:
            raise InvalidQuota("An exact match (type 0) needs a name.")
        if match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidQuota(f"Match type {match_type} is unknown; use 0, 1 or 2.")
        if match_type != _EXACT and match is not None:
            raise InvalidQuota(f"Match type {match_type} takes no name.")
        if kind not in ENTITY_TYPES:
            raise UnknownEntityType(
                f"Entity type {kind!r} is unknown; use one of {', '.join(ENTITY_TYPES)}."
            )
        seen[kind] = component
        if IP in seen and len(seen) > 1:
            raise InvalidQuota("An ip has no user and no client-id; ask for it alone.")
    return list(seen.values())


def _canonical(component: Component) -> str | None:
    """The name that a filter asks for; of an address the form that entities have."""
    if component.entity_type == IP and component.match is not None:
        try:
            return canonical_address(component.match)
        except ValueError:
            pass  # no entity has it
    return component.match


def _matches(names: Mapping[str, str | None], wanted: Iterable[Component]) -> bool:
    for component in wanted:
        if component.entity_type not in names:
            return False
        name = names[component.entity_type]
        if component.match_type == _EXACT and name != _canonical(component):
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return True
