"""The cells of the matrix: requests of the catalogue, sent by users with different rights.

The requests and their scenes are those of `tests.requests_differential`. Every API is sent in its
first and last version and in those where the place of a refusal moves. The good request is sent
under every condition; requests about something that is missing, that is named by its id, or that
asks for everything are sent under the conditions that speak of resources which the API knows. All
other changed requests are sent by a user who may do nothing: they show what comes before rights.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from broker.requests.features import TELEMETRY_APIS
from protocol.acl import ResourceType
from protocol.api_keys import SUPPORTED, ApiKey
from tests.requests_differential.good import Flavour
from tests.requests_differential.mutations import Case, cases, served
from tests.requests_differential.scene import Scene
from tests.rights.conditions import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Condition, conditions

_K = ApiKey

TOKENS: Final = frozenset(
    {
        *(_K.CREATE_DELEGATION_TOKEN, _K.RENEW_DELEGATION_TOKEN),
        *(_K.EXPIRE_DELEGATION_TOKEN, _K.DESCRIBE_DELEGATION_TOKEN),
    }
)
"""About resources that no scene has; `tests.compat.test_delegation_tokens` asks both brokers."""

NOT_ASKED: Final = TOKENS | TELEMETRY_APIS | {_K.SASL_HANDSHAKE, _K.SASL_AUTHENTICATE}
"""Also what a client sends before it has rights, and what Kafka serves only with a plug-in."""

SHARE_APIS: Final = frozenset(
    {
        *(_K.SHARE_GROUP_HEARTBEAT, _K.SHARE_GROUP_DESCRIBE, _K.SHARE_FETCH, _K.SHARE_ACKNOWLEDGE),
        *(_K.DESCRIBE_SHARE_GROUP_OFFSETS, _K.ALTER_SHARE_GROUP_OFFSETS),
        _K.DELETE_SHARE_GROUP_OFFSETS,
    }
)

MOVES: Final[dict[ApiKey, tuple[int, ...]]] = {
    _K.PRODUCE: (3, 9, 12),
    _K.FETCH: (4, 7, 12, 13),
    _K.LIST_OFFSETS: (1, 4),
    _K.METADATA: (1, 4, 8, 10, 12),
    _K.OFFSET_COMMIT: (6, 9),
    _K.OFFSET_FETCH: (2, 7, 8, 9),
    _K.FIND_COORDINATOR: (1, 3, 4),
    _K.JOIN_GROUP: (5,),
    _K.SYNC_GROUP: (4,),
    _K.DESCRIBE_GROUPS: (3, 5),
    _K.CREATE_TOPICS: (4, 5),
    _K.DELETE_TOPICS: (5,),
    _K.INIT_PRODUCER_ID: (2, 4),
    _K.DESCRIBE_LOG_DIRS: (2, 3),
    _K.ELECT_LEADERS: (1,),
}
"""The versions between the first and the last in which a refusal looks different."""

KNOWS: Final[dict[ResourceType, frozenset[ApiKey]]] = {
    TOPIC: frozenset(
        {
            *(_K.PRODUCE, _K.FETCH, _K.LIST_OFFSETS, _K.METADATA, _K.OFFSET_COMMIT),
            *(_K.OFFSET_FETCH, _K.CREATE_TOPICS, _K.DELETE_TOPICS, _K.DELETE_RECORDS),
            *(_K.INIT_PRODUCER_ID, _K.OFFSET_FOR_LEADER_EPOCH, _K.ADD_PARTITIONS_TO_TXN),
            *(_K.TXN_OFFSET_COMMIT, _K.DESCRIBE_CONFIGS, _K.ALTER_CONFIGS),
            *(_K.CREATE_PARTITIONS, _K.INCREMENTAL_ALTER_CONFIGS, _K.OFFSET_DELETE),
            *(_K.DESCRIBE_PRODUCERS, _K.DESCRIBE_TRANSACTIONS, _K.CONSUMER_GROUP_HEARTBEAT),
            *(_K.CONSUMER_GROUP_DESCRIBE, _K.DESCRIBE_TOPIC_PARTITIONS),
            *SHARE_APIS,
            *(_K.STREAMS_GROUP_HEARTBEAT, _K.STREAMS_GROUP_DESCRIBE),
        }
    ),
    GROUP: frozenset(
        {
            *(_K.OFFSET_COMMIT, _K.OFFSET_FETCH, _K.FIND_COORDINATOR, _K.JOIN_GROUP),
            *(_K.HEARTBEAT, _K.LEAVE_GROUP, _K.SYNC_GROUP, _K.DESCRIBE_GROUPS),
            *(_K.LIST_GROUPS, _K.ADD_OFFSETS_TO_TXN, _K.TXN_OFFSET_COMMIT),
            *(_K.DESCRIBE_CONFIGS, _K.INCREMENTAL_ALTER_CONFIGS, _K.DELETE_GROUPS),
            *(_K.OFFSET_DELETE, _K.CONSUMER_GROUP_HEARTBEAT, _K.CONSUMER_GROUP_DESCRIBE),
            *SHARE_APIS,
            *(_K.STREAMS_GROUP_HEARTBEAT, _K.STREAMS_GROUP_DESCRIBE),
        }
    ),
    TRANSACTIONAL_ID: frozenset(
        {
            *(_K.PRODUCE, _K.FIND_COORDINATOR, _K.INIT_PRODUCER_ID, _K.ADD_PARTITIONS_TO_TXN),
            *(_K.ADD_OFFSETS_TO_TXN, _K.END_TXN, _K.TXN_OFFSET_COMMIT),
            *(_K.DESCRIBE_TRANSACTIONS, _K.LIST_TRANSACTIONS),
        }
    ),
    CLUSTER: frozenset(SUPPORTED),
}
"""The APIs that ask for a right on a resource of the type; with others it is sent once more."""

_CHANGED: Final = frozenset(
    {
        *(("name", "unknown"), ("topic", "unknown"), ("topic_name", "unknown")),
        *(("topic_id", "unknown"), ("topic_id", "other"), ("topic_id", "zero")),
        *(("name", "'__consumer_offsets'"), ("topics", "null"), ("topics", "empty")),
        *(("topics", "all"), ("topics", "by name and by id"), ("topics", "twice")),
        *(("group_id", "unknown"), ("groups_names", "twice"), ("groups", "null")),
        *(("group_id", "group with commits"), ("group_id", "consumer group")),
        *(("key", "unknown"), ("key_type", "1"), ("key_type", "2")),
        *(("coordinator_keys", "two"), ("coordinator_keys", "empty")),
        *(("transactional_id", "unknown"), ("transactional_id", "null")),
        *(("transactional_id", "own"), ("v3_and_below_transactional_id", "unknown")),
        *(("resource_name", "unknown"), ("resource_type", "4"), ("resource_type", "8")),
        *(("resource_type", "16"), ("resource_type", "32"), ("replica_id", "1")),
        *(("acks", "0"), ("allow_auto_topic_creation", "True"), ("validate_only", "True")),
        *(("include_authorized_operations", "True"), ("topic_partitions", "all")),
        *(("include_cluster_authorized_operations", "True"), ("protocol_name", "null")),
        *(("include_topic_authorized_operations", "True"), ("enable2_pc", "True")),
        *(("records", "transactional"), ("components", "empty")),
    }
)
"""The changed requests of the matrix, by field and what stands in it."""

_BEFORE_RIGHTS: Final = frozenset(
    {
        *(("configs", "twice"), ("value", "null"), ("resources", "twice")),
        *(("timeout_ms", "0"), ("records", "garbage"), ("records", "cut"), ("name", "'.'")),
        *(("name", "'__cluster_metadata'"), ("topic_data", "twice"), ("partition_data", "twice")),
        *(("partition_data", "empty"), ("partitions", "empty"), ("partition_indexes", "empty")),
        *(("coordinator_keys", "twice"), ("markers", "twice"), ("users", "twice")),
    }
)
"""Changes that are refused before rights are asked, or refused in a form of their own."""

_DIFFERENT: Final = frozenset({(_K.METADATA, "topic_id", "zero")})
"""Requests that the brokers refuse differently on purpose; their answers are not recorded."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One request of one version, sent by one user."""

    case: Case
    condition: Condition

    @property
    def api(self) -> ApiKey:
        return self.case.api

    @property
    def version(self) -> int:
        return self.case.version

    @property
    def flavour(self) -> Flavour:
        return self.case.flavour

    @property
    def request_name(self) -> tuple[ApiKey, int, str]:
        """What tells the request from others, for every sender."""
        return self.api, self.version, self.sent

    @property
    def sent(self) -> str:
        return self.case.sent

    def request(self, scene: Scene) -> Any:
        return self.case.request(scene)


def versions(api: ApiKey) -> frozenset[int]:
    """The versions of an API that the matrix sends."""
    known = served(api)
    between = (v for v in MOVES.get(api, ()) if known.min <= v <= known.max)
    return frozenset({known.min, known.max, *between})


def requests() -> list[Case]:
    """The requests of the matrix."""
    return [
        case
        for case in cases()
        if case.api not in NOT_ASKED
        and case.version in versions(case.api)
        and len(case.changes) <= 1
    ]


def _is_shown_to_all(case: Case) -> bool:
    """Whether users with every kind of right send the request."""
    if not case.changes:
        return True
    if case.api in (_K.CREATE_ACLS, _K.DELETE_ACLS):
        return False
    return _change(case) in _CHANGED


def _change(case: Case) -> tuple[str, str]:
    change = case.changes[0]
    field = next(part for part in reversed(change.path) if isinstance(part, str))
    return field, change.what


def small() -> list[Cell]:
    """The part whose answers are recorded.

    A user who may do nothing sends every version of the good requests, and the requests about
    missing things and those of `_BEFORE_RIGHTS`; users with combined rights send the good requests
    of the last version.
    """
    return [cell for cell in cells() if _is_recorded(cell)]


def _is_recorded(cell: Cell) -> bool:
    if cell.case.changes and (cell.api, *_change(cell.case)) in _DIFFERENT:
        return False
    if cell.condition.name == "nothing":
        return _is_shown_to_all(cell.case) or _change(cell.case) in _BEFORE_RIGHTS
    is_newest = not cell.case.changes and cell.version == served(cell.api).max
    return is_newest and "," in cell.condition.name


def cells() -> list[Cell]:
    """All cells, those of one request together."""
    return list(_cells())


def _cells() -> Iterator[Cell]:
    every = conditions()
    for case in requests():
        most = served(case.api).max
        for condition in every:
            knows = any(case.api in KNOWS[kind] for kind in condition.types)
            if not _is_shown_to_all(case):
                is_sent = condition.name == "nothing" and case.version == most
            elif case.changes:
                is_sent = knows and not condition.is_repeated and case.version == most
            else:
                is_sent = knows or (not condition.is_repeated and case.version == most)
            if is_sent:
                yield Cell(case, condition)
