"""The catalogue: every flavour of every version, as it is and with each field at its bounds.

What a field may hold is said by its declaration in `protocol.api`; the bounds are made from its
type, so a new field is covered when it is declared. A few names have more values of interest
(`EXTRAS`), and a few pairs of fields mean something together (`PAIRS`).

A case has a name that says what is sent: the flavour, and `path=what` for each field that differs
from the good request. Values that hang on the scene are made when the request is.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final, NamedTuple

from broker.requests.features import TELEMETRY_APIS
from protocol.api_keys import SUPPORTED, ApiKey, VersionRange
from protocol.declare.layout import Blob, MaybeStructure, Structure, structure
from protocol.declare.layout import Sequence as Counted
from protocol.declare.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    FieldSpec,
    Scalar,
    field_specs,
)
from protocol.declare.schema import node_of
from protocol.records.builder import build_batch, build_message_set
from protocol.records.layout import Codec
from protocol.records.record import Record
from protocol.registry import request_class
from tests.requests_differential import good
from tests.requests_differential.good import TOPIC_SETTINGS, Flavour, batch
from tests.requests_differential.scene import OLD, OTHER_TOPIC, UNKNOWN_ID, Need, Scene

SEED: Final = 20_261_122
PAIRS_MAX: Final = 6
"""How many of the combinations of a pair are sent for one version of one flavour."""

SHARED_TOPICS: Final = ("other", "'__consumer_offsets'", "'__transaction_state'")
"""Values that name topics which many requests share."""

NOT_SENT: Final = (
    # The answer hangs on whether the work took as long.
    *((None, "timeout_ms", what) for what in ("1", "2")),
    # Whose id that is hangs on which case came before.
    *((None, "producer_id", what) for what in ("one less", "one more")),
    *((None, "v3_and_below_producer_id", what) for what in ("one less", "one more")),
    # Kafka's controller makes a list of two thousand million assignments, and answers no client.
    (ApiKey.CREATE_PARTITIONS, "count", "max"),
    # Kafka's broker waits half a minute for its controller, and asks it nothing else meanwhile.
    (ApiKey.ALTER_CONFIGS, "resources", "twice"),
    # Kafka unregisters itself.
    (ApiKey.UNREGISTER_BROKER, "broker_id", "1"),
    # The group without a name is shared by all who commit to it.
    (ApiKey.DELETE_GROUPS, "groups_names", "''"),
)
"""Values that would not be answered alike in two runs: API (None: any), field, value."""

KAFKA_MINIMA: Final[dict[ApiKey, int]] = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
}
"""The first version that Kafka 4.3 serves, where it is not 0. It advertises Produce from 0 on so
that old clients compress, and closes the connection on what is below 3."""

Path = tuple[str | int, ...]
Make = Callable[[Scene, Any], Any]
"""From the scene and the good value to the value that is sent instead."""


class Change(NamedTuple):
    """One field of a request at another value; `what` says which."""

    path: Path
    what: str
    make: Make

    @property
    def name(self) -> str:
        return f"{shown(self.path)}={self.what}"


class Case(NamedTuple):
    """One request of one version."""

    api: ApiKey
    version: int
    flavour: Flavour
    changes: tuple[Change, ...]

    @property
    def sent(self) -> str:
        """What is sent, in words: the same for all versions."""
        changed = ", ".join(change.name for change in self.changes) or "good"
        return f"{self.flavour.name}: {changed}" if self.flavour.name else changed

    def request(self, scene: Scene) -> Any:
        """The message."""
        message = filled(request_class(self.api), self.flavour.body(scene))
        for change in self.changes:
            _apply(message, change, scene)
        return message


COMPARED: Final = tuple(api for api in SUPPORTED if api not in TELEMETRY_APIS)
"""The APIs that both brokers have: Kafka takes metrics of clients only with a plug-in."""


def served(api: ApiKey) -> VersionRange:
    """The versions of an API that both brokers serve."""
    return VersionRange(KAFKA_MINIMA.get(api, SUPPORTED[api].min), SUPPORTED[api].max)


def cases(seed: int = SEED) -> list[Case]:
    """All of them, in the order of keys and versions."""
    return [
        case
        for api in COMPARED
        for version in range(served(api).min, served(api).max + 1)
        for flavour in good.of(api, version)
        for case in _of_flavour(flavour, version, seed)
    ]


def _of_flavour(flavour: Flavour, version: int, seed: int) -> Iterator[Case]:
    scene = Scene("c00000")
    message = filled(request_class(flavour.api), flavour.body(scene))
    singles = [
        change
        for change in _unique(_changes(flavour.api, message, version, ()))
        if not _is_left_out(flavour.api, change) and _is_other(message, change, scene)
    ]
    if flavour.needs & (Need.OWN_TOPIC | Need.OWN_NAME):
        # What a request does to a topic is seen by that request alone.
        singles = [change for change in singles if change.what not in SHARED_TOPICS]
    yield Case(flavour.api, version, flavour, ())
    for change in singles:
        yield Case(flavour.api, version, flavour, (change,))
    for first, second in PAIRS.get(flavour.api, ()):
        both = [
            (one, other)
            for one, other in product(_named(singles, first), _named(singles, second))
            if one.path != other.path[: len(one.path)] and other.path != one.path[: len(other.path)]
        ]
        random = Random(f"{seed} {flavour.api} {flavour.name} {version} {first} {second}")
        for pair in random.sample(both, min(PAIRS_MAX, len(both))):
            yield Case(flavour.api, version, flavour, pair)


def _is_left_out(api: ApiKey, change: Change) -> bool:
    field = _last_name(change.path)
    return (api, field, change.what) in NOT_SENT or (None, field, change.what) in NOT_SENT


def _is_other(message: Any, change: Change, scene: Scene) -> bool:
    """Whether the change makes another request: an extra may be what is good for the flavour."""
    value = message
    for part in change.path:
        value = value[part] if isinstance(part, int) else getattr(value, part)
    return bool(change.make(scene, value) != value)


def _named(changes: Sequence[Change], name: str) -> list[Change]:
    return [change for change in changes if _last_name(change.path) == name]


# -- messages --------------------------------------------------------------------------------------


def filled(cls: type, body: dict[str, Any]) -> Any:
    """A message of plain values: dictionaries become the structs that are declared."""
    specs = dict(field_specs(cls))
    unknown = set(body) - set(specs)
    assert not unknown, f"{cls.__name__} has no {unknown}"
    return cls(**{name: _filled_field(specs[name], value) for name, value in body.items()})


def _filled_field(spec: FieldSpec, value: Any) -> Any:
    if not isinstance(spec.element, type) or value is None:
        return value
    if spec.is_array:
        return [filled(spec.element, one) for one in value]
    return filled(spec.element, value)


_lenient: dict[tuple[type, int], Any] = {}


def encoded(message: Any, version: int) -> bytes:
    """The body of a request; null is also written where it is not allowed."""
    key = (type(message), version)
    if key not in _lenient:
        plan = structure(*key)
        _allow_null(plan)
        _lenient[key] = node_of(plan)
    return bytes(_lenient[key].build(message))


def _allow_null(node: Any) -> None:
    if isinstance(node, (Blob, Counted)):
        node.nullable = True
    if isinstance(node, Counted):
        _allow_null(node.element)
    if isinstance(node, MaybeStructure):
        _allow_null(node.body)
    if isinstance(node, Structure):
        for _, member in node.members:
            _allow_null(member)
        for tagged in node.tags:
            _allow_null(tagged.node)


def shown(path: Path) -> str:
    """A path as in code, without the index of an array's only element."""
    return ".".join(str(part) for part in path if not isinstance(part, int))


def _last_name(path: Path) -> str:
    return next(part for part in reversed(path) if isinstance(part, str))


def _apply(message: Any, change: Change, scene: Scene) -> None:
    holder = message
    for part in change.path[:-1]:
        holder = holder[part] if isinstance(part, int) else getattr(holder, part)
    last = change.path[-1]
    if isinstance(last, int):
        holder[last] = change.make(scene, holder[last])
    else:
        setattr(holder, last, change.make(scene, getattr(holder, last)))


# -- what can be changed ---------------------------------------------------------------------------


def _changes(api: ApiKey, message: Any, version: int, path: Path) -> Iterator[Change]:
    for name, spec in field_specs(type(message)):
        if not spec.present_in(version):
            continue
        value = getattr(message, name)
        at = (*path, name)
        if not spec.is_array:
            yield from _of_one(api, spec, value, version, at)
            continue
        if value is None:
            yield Change(at, "empty", lambda _scene, _value: [])
        else:
            yield Change(at, "null", _constant(None))
            if value:
                yield Change(at, "empty", lambda _scene, _value: [])
                yield Change(at, "twice", lambda _scene, old: [*old, *copy.deepcopy(old)])
            for index, element in enumerate(value):
                yield from _of_one(api, spec, element, version, (*at, index))
        if value:
            yield from _extras(api, at)


def _unique(changes: Iterable[Change]) -> list[Change]:
    """The first of each name; an extra may say again what the type already suggests."""
    by_name = {change.name: change for change in reversed(list(changes))}
    return list(by_name.values())[::-1]


def _of_one(api: ApiKey, spec: FieldSpec, value: Any, version: int, path: Path) -> Iterator[Change]:
    element = spec.element
    if isinstance(element, type):
        if not spec.is_array and value is None:
            yield Change(path, "default", lambda _scene, _value: element())
        elif not spec.is_array and spec.nullable_in(version):
            yield Change(path, "null", _constant(None))
        if value is not None:
            yield from _changes(api, value, version, path)
        return
    for what, make in _values(element, value):
        yield Change(path, what, make)
    if not spec.is_array:
        yield from _extras(api, path)


def _extras(api: ApiKey, path: Path) -> Iterator[Change]:
    name = _last_name(path)
    for what, make in (*EXTRAS.get((api, name), ()), *EXTRAS.get((None, name), ())):
        yield Change(path, what, make)


def _constant(value: Any) -> Make:
    return lambda _scene, _value: value


def _constants(*values: Any) -> tuple[tuple[str, Make], ...]:
    return tuple((repr(value), _constant(value)) for value in values)


def _values(element: Any, good_value: Any) -> Iterator[tuple[str, Make]]:
    """Every value of interest of a primitive, by what it is."""
    if element is BOOL:
        yield repr(not good_value), _constant(not good_value)
    elif element is FLOAT64:
        yield from _constants(0.0, -1.0, 0.5, math.inf, -math.inf, math.nan)
    elif element is UUID:
        yield "zero", _constant(ZERO_UUID)
        yield "unknown", _constant(UNKNOWN_ID)
        yield "other", lambda scene, _: scene.other_id
    elif element is STRING:
        yield from _texts(good_value)
    elif element is RECORDS or element is BYTES:
        yield from _bytes(good_value, is_records=element is RECORDS)
    else:
        assert isinstance(element, Scalar)
        yield from _numbers(element, good_value)


def _numbers(element: Scalar, good_value: int) -> Iterator[tuple[str, Make]]:
    bits = 8 * element.size
    unsigned = element.format.isupper()
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    named = {"min": least, "max": most}
    for number in (-2, -1, 0, 1, 2):
        named.setdefault(str(number), number)
    for what, number in named.items():
        if least <= number <= most and number != good_value:
            yield what, _constant(number)
    if 2 < abs(good_value) < most:
        yield "one less", lambda _scene, old: old - 1
        yield "one more", lambda _scene, old: old + 1


def _texts(good_value: str | None) -> Iterator[tuple[str, Make]]:
    if good_value is not None:
        yield "null", _constant(None)
    if good_value != "":
        yield "''", _constant("")
    yield "unknown", lambda scene, _: f"{scene.case}-unknown"
    yield "illegal", lambda scene, _: f"{scene.case} /#\u00e4"
    yield "249 characters", lambda scene, _: scene.case.ljust(249, "x")
    yield "250 characters", lambda scene, _: scene.case.ljust(250, "x")
    if good_value:
        yield "in capitals", lambda _scene, old: old.upper()


def _bytes(good_value: bytes | None, *, is_records: bool) -> Iterator[tuple[str, Make]]:
    yield "null", _constant(None)
    yield "empty", _constant(b"")
    yield "one byte", _constant(b"\0")
    yield "garbage", _constant(b"\xff" * 100)
    if good_value:
        yield "cut", lambda _scene, old: old[:-1]
        yield "and a byte", lambda _scene, old: old + b"\0"
    if is_records:
        yield "two batches", lambda _scene, old: old * 2
        yield "wrong checksum", lambda _scene, old: old[:17] + b"\1\2\3\4" + old[21:]
        yield "message set", _constant(build_message_set([Record(0, OLD, b"k", b"v")], 1))
        for codec in (Codec.GZIP, Codec.ZSTD):
            compressed = build_batch([Record(0, OLD, b"k", b"v")], codec=codec)
            yield codec.name.lower(), _constant(compressed)
        yield "plain", _constant(batch())
        yield from _producers()


def _producers() -> Iterator[tuple[str, Make]]:
    """A batch of the scene's producer with one number wrong."""
    numbers: dict[str, tuple[int | None, int | None, int | None]] = {
        "sequence 5": (None, None, 5),
        "sequence -1": (None, None, -1),
        "producer epoch 1": (None, 1, None),
        "producer epoch -1": (None, -1, None),
        "producer id + 1000000": (1_000_000, None, None),
        "producer id -1": (-1, None, None),
    }
    for what, wrong in numbers.items():
        for is_transactional in (False, True):
            kind = "transactional" if is_transactional else "sequenced"
            yield f"{kind}, {what}", _wrong_batch(*wrong, is_transactional=is_transactional)


def _wrong_batch(
    producer_id: int | None,
    epoch: int | None,
    sequence: int | None,
    *,
    is_transactional: bool,
) -> Make:
    """None stands for what is right; a large producer id is added to the right one."""

    def make(scene: Scene, _: Any) -> bytes:
        if producer_id is None or producer_id > 0:
            chosen = scene.producer_id + (producer_id or 0)
        else:
            chosen = producer_id
        return batch(
            chosen,
            scene.producer_epoch if epoch is None else epoch,
            int(is_transactional) if sequence is None else sequence,
            is_transactional=is_transactional,
        )

    return make


def _of_scene(name: str) -> Make:
    return lambda scene, _: getattr(scene, name)


_TOPIC_NAMES: Final = (
    *_constants(".", "..", "__consumer_offsets", "__transaction_state", "__cluster_metadata"),
    ("other", _constant(OTHER_TOPIC)),
)
_GROUPS: Final = (
    ("group with a member", _of_scene("group")),
    ("group with commits", _of_scene("idle_group")),
    ("consumer group", _of_scene("consumer_group")),
)
_LISTS_OF_GROUPS: Final[tuple[tuple[str, Make], ...]] = tuple(
    (what, lambda scene, _, make=make: [make(scene, None)])  # type: ignore[misc]
    for what, make in _GROUPS
)
_STRUCTS_OF_SETTINGS: Final = (
    *((f"{name}={value}", name, value) for name, value in TOPIC_SETTINGS),
    *(
        (f"{name}={value}", name, value)
        for name, values in {
            "retention.ms": ("-2", "-1", "", "x", "1.5", "9223372036854775808"),
            "cleanup.policy": ("", "delete,compact", "delete,delete", "x", "DELETE"),
            "compression.type": ("", "x", "zstd", "none"),
            "compression.gzip.level": ("-1", "0", "9", "10"),
            "compression.lz4.level": ("0", "17", "18"),
            "compression.zstd.level": ("-131072", "-131073", "22", "23"),
            "max.message.bytes": ("-1", "0", "2147483648"),
            "message.timestamp.type": ("createtime", "x"),
            "min.insync.replicas": ("0", "2"),
            "segment.bytes": ("13", "14", "1048575", "1048576"),
            "segment.ms": ("0", "1"),
            "min.cleanable.dirty.ratio": ("-0.1", "1", "1.1", "x"),
            "preallocate": ("x", "TRUE"),
            "index.interval.bytes": ("-1", "0"),
            "segment.index.bytes": ("3", "4"),
            "remote.storage.enable": ("true",),
            "leader.replication.throttled.replicas": ("0:1", "x"),
            "no.such.setting": ("1",),
        }.items()
        for value in values
    ),
)


def _setting(name: str, value: str) -> Make:
    def make(_: Scene, old: list[Any]) -> list[Any]:
        changed = copy.deepcopy(old[0])
        changed.name, changed.value = name, value
        return [changed]

    return make


_ALL_SETTINGS: Final = tuple(
    (what, _setting(name, value)) for what, name, value in _STRUCTS_OF_SETTINGS
)


def _by_name_and_id(scene: Scene, old: list[Any]) -> list[Any]:
    by_name, by_id = copy.deepcopy(old[0]), copy.deepcopy(old[0])
    by_name.name, by_name.topic_id = scene.topic, ZERO_UUID
    by_id.name, by_id.topic_id = None, scene.topic_id
    return [by_name, by_id]


EXTRAS: Final[dict[tuple[ApiKey | None, str], tuple[tuple[str, Make], ...]]] = {
    (None, "topic"): _TOPIC_NAMES,
    (None, "topic_name"): _TOPIC_NAMES,
    (None, "group_id"): _GROUPS,
    (None, "groups_names"): _LISTS_OF_GROUPS,
    (ApiKey.DESCRIBE_GROUPS, "groups"): _LISTS_OF_GROUPS,
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids"): _LISTS_OF_GROUPS,
    **{
        (api, "name"): _TOPIC_NAMES
        for api in (
            ApiKey.PRODUCE,
            ApiKey.LIST_OFFSETS,
            ApiKey.METADATA,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.OFFSET_DELETE,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        )
    },
    (ApiKey.DELETE_TOPICS, "topics"): (("by name and by id", _by_name_and_id),),
    (ApiKey.METADATA, "topics"): (("by name and by id", _by_name_and_id),),
    (ApiKey.PRODUCE, "transactional_id"): (("own", _of_scene("transactional_id")),),
    (ApiKey.LIST_OFFSETS, "timestamp"): _constants(
        -3, -4, -5, -6, -7, OLD - 1, OLD, OLD + 2, OLD + 3
    ),
    (ApiKey.FETCH, "fetch_offset"): _constants(3, 4, 5),
    (ApiKey.DELETE_RECORDS, "offset"): _constants(3, 4),
    (ApiKey.OFFSET_FETCH, "topics"): (("all", _constant(None)),),
    (ApiKey.FIND_COORDINATOR, "key"): (
        ("share key", lambda scene, _: f"{scene.group}:{_url_id(scene)}:0"),
    ),
    (ApiKey.FIND_COORDINATOR, "coordinator_keys"): (
        ("share key", lambda scene, _: [f"{scene.group}:{_url_id(scene)}:0"]),
        ("two", lambda scene, _: [scene.group, scene.idle_group]),
    ),
    (ApiKey.JOIN_GROUP, "group_instance_id"): (("own", lambda scene, _: f"{scene.case}-static"),),
    (ApiKey.JOIN_GROUP, "protocol_type"): _constants("connect"),
    (ApiKey.JOIN_GROUP, "session_timeout_ms"): _constants(5_999, 6_000),
    (ApiKey.CREATE_TOPICS, "configs"): _ALL_SETTINGS,
    (ApiKey.ALTER_CONFIGS, "configs"): _ALL_SETTINGS,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "configs"): _ALL_SETTINGS,
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "config_operation"): _constants(3, 4),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "name"): _constants("cleanup.policy", "no.such.setting"),
    (ApiKey.DESCRIBE_CONFIGS, "resource_type"): _constants(3, 4, 8, 16, 32),
    (ApiKey.DESCRIBE_CONFIGS, "resource_name"): _constants("1", "2", "x"),
    (ApiKey.ALTER_CONFIGS, "resource_type"): _constants(4, 8, 16, 32),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resource_type"): _constants(4, 8, 16, 32),
    (ApiKey.LIST_CONFIG_RESOURCES, "resource_types"): _constants([4], [8], [16], [32], [2, 4]),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "entity_type"): _constants("user", "client-id", "ip"),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "match_type"): _constants(3),
    (ApiKey.ALTER_CLIENT_QUOTAS, "entity_type"): _constants("user", "client-id", "ip"),
    (ApiKey.ALTER_CLIENT_QUOTAS, "key"): _constants(
        "consumer_byte_rate", "request_percentage", "connection_creation_rate"
    ),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "mechanism"): _constants(3),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "iterations"): _constants(16_384, 16_385),
    (ApiKey.UPDATE_FEATURES, "feature"): _constants(
        "metadata.version", "group.version", "kraft.version", "share.version"
    ),
    (ApiKey.UPDATE_FEATURES, "upgrade_type"): _constants(3, 4),
    (ApiKey.ELECT_LEADERS, "topic_partitions"): (("all", _constant(None)),),
    (ApiKey.LIST_GROUPS, "states_filter"): _constants(
        ["stable"], ["Empty"], ["Dead"], ["Stable", "Empty"]
    ),
    (ApiKey.LIST_GROUPS, "types_filter"): _constants(["Classic"], ["consumer"], ["share"]),
    (ApiKey.LIST_TRANSACTIONS, "state_filters"): _constants(
        [], ["Empty"], ["CompleteCommit"], ["Ongoing", "x"]
    ),
    (ApiKey.LIST_TRANSACTIONS, "transactional_id_pattern"): _constants("[", ".*", "a++"),
    (ApiKey.DESCRIBE_QUORUM, "topic_name"): (("own", _of_scene("topic")),),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "server_assignor"): _constants("range", "uniform"),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "subscribed_topic_regex"): (
        *_constants("[", "other-.*", ".*(?=x)"),
        ("own", lambda scene, _: f"{scene.case}-t.*"),
    ),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "instance_id"): (
        ("own", lambda scene, _: f"{scene.case}-static"),
    ),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "member_epoch"): _constants(-3),
    (ApiKey.DESCRIBE_ACLS, "resource_type_filter"): _constants(3, 4, 5, 6, 7, 8),
    (ApiKey.CREATE_ACLS, "resource_type"): _constants(3, 4, 5, 6, 7, 8),
    (ApiKey.CREATE_ACLS, "principal"): _constants("a", "User:", "User:*"),
    (ApiKey.DELETE_ACLS, "resource_type_filter"): _constants(3, 4, 5, 6, 7, 8),
}
"""Values that the type alone does not suggest, by API (None: all) and field."""


def _url_id(scene: Scene) -> str:
    import base64

    return base64.urlsafe_b64encode(scene.topic_id).decode().rstrip("=")


PAIRS: Final[dict[ApiKey, tuple[tuple[str, str], ...]]] = {
    ApiKey.PRODUCE: (("acks", "timeout_ms"), ("transactional_id", "records"), ("acks", "records")),
    ApiKey.FETCH: (
        ("session_id", "session_epoch"),
        ("current_leader_epoch", "last_fetched_epoch"),
        ("fetch_offset", "partition_max_bytes"),
    ),
    ApiKey.LIST_OFFSETS: (("timestamp", "isolation_level"), ("timestamp", "current_leader_epoch")),
    ApiKey.METADATA: (("topic_id", "name"), ("topics", "allow_auto_topic_creation")),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (("current_leader_epoch", "leader_epoch"),),
    ApiKey.DELETE_RECORDS: (("partition_index", "offset"),),
    ApiKey.OFFSET_COMMIT: (
        ("generation_id_or_member_epoch", "member_id"),
        ("member_id", "group_instance_id"),
        ("group_id", "member_id"),
        ("group_id", "generation_id_or_member_epoch"),
    ),
    ApiKey.OFFSET_FETCH: (("member_id", "member_epoch"), ("group_id", "topics")),
    ApiKey.FIND_COORDINATOR: (("key", "key_type"), ("coordinator_keys", "key_type")),
    ApiKey.JOIN_GROUP: (
        ("member_id", "group_instance_id"),
        ("session_timeout_ms", "rebalance_timeout_ms"),
        ("protocol_type", "protocols"),
    ),
    ApiKey.SYNC_GROUP: (
        ("generation_id", "member_id"),
        ("protocol_type", "protocol_name"),
        ("member_id", "group_instance_id"),
    ),
    ApiKey.HEARTBEAT: (("generation_id", "member_id"), ("member_id", "group_instance_id")),
    ApiKey.LEAVE_GROUP: (("group_id", "member_id"), ("member_id", "group_instance_id")),
    ApiKey.CREATE_TOPICS: (
        ("num_partitions", "replication_factor"),
        ("num_partitions", "assignments"),
        ("name", "validate_only"),
    ),
    ApiKey.CREATE_PARTITIONS: (("count", "assignments"), ("count", "validate_only")),
    ApiKey.DELETE_TOPICS: (("name", "topic_id"),),
    ApiKey.INIT_PRODUCER_ID: (
        ("producer_id", "producer_epoch"),
        ("transactional_id", "transaction_timeout_ms"),
        ("transactional_id", "producer_id"),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        ("v3_and_below_producer_id", "v3_and_below_producer_epoch"),
        ("v3_and_below_transactional_id", "v3_and_below_producer_id"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        ("producer_id", "producer_epoch"),
        ("transactional_id", "group_id"),
    ),
    ApiKey.END_TXN: (("producer_id", "producer_epoch"), ("producer_epoch", "committed")),
    ApiKey.WRITE_TXN_MARKERS: (
        ("producer_id", "producer_epoch"),
        ("producer_epoch", "coordinator_epoch"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        ("producer_id", "producer_epoch"),
        ("generation_id", "member_id"),
        ("group_id", "member_id"),
    ),
    ApiKey.DESCRIBE_ACLS: (("operation", "permission_type"),),
    ApiKey.DESCRIBE_CONFIGS: (
        ("resource_type", "resource_name"),
        ("resource_type", "configuration_keys"),
    ),
    ApiKey.ALTER_CONFIGS: (("resource_type", "resource_name"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        ("config_operation", "value"),
        ("config_operation", "name"),
        ("resource_type", "resource_name"),
    ),
    ApiKey.ELECT_LEADERS: (("election_type", "partitions"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (("partition_index", "replicas"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (("entity_type", "entity_name"), ("key", "value")),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (("entity_type", "match_type"), ("match_type", "match")),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (("mechanism", "iterations"),),
    ApiKey.UPDATE_FEATURES: (
        ("feature", "max_version_level"),
        ("upgrade_type", "max_version_level"),
    ),
    ApiKey.DESCRIBE_CLUSTER: (("endpoint_type", "include_fenced_brokers"),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (("topic_name", "partition_index"),),
    ApiKey.LIST_GROUPS: (("states_filter", "types_filter"),),
    ApiKey.LIST_TRANSACTIONS: (("state_filters", "producer_id_filters"),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        ("member_id", "member_epoch"),
        ("member_epoch", "instance_id"),
        ("subscribed_topic_names", "subscribed_topic_regex"),
        ("member_epoch", "topic_partitions"),
        ("group_id", "member_epoch"),
    ),
}
"""Fields that mean something together; a sample of the combinations of their values is sent."""
