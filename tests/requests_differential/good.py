"""One good request, or a few different ones, for every API: where the mutations start from.

A flavour is a function from a scene to the fields of a request, as plain values: a struct is a
dictionary by attribute, what a version does not carry is not sent. Beside it stands what the scene
has to have, whether the request changes something, and where to look afterwards.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from protocol.api_keys import ApiKey
from protocol.records.builder import build_batch
from protocol.records.record import Record
from tests.requests_differential.scene import (
    OLD,
    OTHER_TOPIC,
    REBALANCE_MS,
    SESSION_MS,
    TRANSACTION_MS,
    Need,
    Scene,
)

Body = dict[str, Any]
Probe = tuple[ApiKey, int, Body]

SUBSCRIPTION: Final = bytes.fromhex("0001 00000001 0005") + b"topic" + bytes.fromhex("00000000")
ASSIGNMENT: Final = bytes.fromhex("0001 00000001 0005") + b"topic" + bytes(12)
ANY_VERSION: Final = range(100)


class Flavour(NamedTuple):
    """One good request; `after` are requests whose answers show what it did."""

    api: ApiKey
    name: str
    body: Callable[[Scene], Body]
    needs: Need
    reads: bool
    versions: range
    after: Callable[[Scene], list[Probe]]


FLAVOURS: Final[list[Flavour]] = []


def _nothing(_: Scene) -> list[Probe]:
    return []


def _good(
    api: ApiKey,
    name: str = "",
    needs: Need = Need.NOTHING,
    *,
    reads: bool = False,
    versions: range = ANY_VERSION,
    after: Callable[[Scene], list[Probe]] = _nothing,
) -> Callable[[Callable[[Scene], Body]], Callable[[Scene], Body]]:
    def keep(body: Callable[[Scene], Body]) -> Callable[[Scene], Body]:
        FLAVOURS.append(Flavour(api, name, body, needs, reads, versions, after))
        return body

    return keep


def of(api: ApiKey, version: int) -> Iterator[Flavour]:
    """The flavours of one version of an API."""
    return (row for row in FLAVOURS if row.api is api and version in row.versions)


# -- where to look afterwards ----------------------------------------------------------------------


def _ends(scene: Scene) -> list[Probe]:
    def partitions(at: int) -> list[Body]:
        return [{"partition_index": p, "current_leader_epoch": -1, "timestamp": at} for p in (0, 1)]

    return [
        (
            ApiKey.LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": [{"name": scene.topic, "partitions": partitions(at)}],
            },
        )
        for at, isolation in ((-1, 0), (-2, 0), (-1, 1))
    ]


def _committed(group: Callable[[Scene], str]) -> Callable[[Scene], list[Probe]]:
    return lambda scene: [(ApiKey.OFFSET_FETCH, 7, {"group_id": group(scene), "topics": None})]


def _group(scene: Scene) -> list[Probe]:
    return [(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [scene.group]})]


def _groups_and_commits(scene: Scene) -> list[Probe]:
    both = {"groups": [scene.group, scene.idle_group]}
    return [(ApiKey.DESCRIBE_GROUPS, 5, both), *_committed(lambda s: s.idle_group)(scene)]


def _consumer_group(scene: Scene) -> list[Probe]:
    return [(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [scene.consumer_group]})]


def _transaction(scene: Scene) -> list[Probe]:
    return [
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [scene.transactional_id]}),
        *_ends(scene),
    ]


def _topic(scene: Scene) -> list[Probe]:
    return [(ApiKey.METADATA, 12, {"topics": [{"name": scene.topic}]})]


def _settings(scene: Scene) -> list[Probe]:
    asked = {
        "resource_type": 2,
        "resource_name": scene.topic,
        "configuration_keys": [name for name, _ in TOPIC_SETTINGS if name not in ONE_SIDED],
    }
    return [(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked]})]


def _topic_and_settings(scene: Scene) -> list[Probe]:
    return [*_topic(scene), *_settings(scene)]


def _quotas(scene: Scene) -> list[Probe]:
    component = {"entity_type": "user", "match_type": 0, "match": scene.case}
    return [(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [component], "strict": False})]


def _scram(scene: Scene) -> list[Probe]:
    return [(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": scene.case}]})]


# -- records ---------------------------------------------------------------------------------------


def batch(
    producer_id: int = -1, epoch: int = -1, sequence: int = -1, *, is_transactional: bool = False
) -> bytes:
    """One record, as any producer or a certain one sends it."""
    return build_batch(
        [Record(0, OLD, b"key", b"value")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def transactional_batch(scene: Scene, sequence: int) -> bytes:
    """A batch of the scene's producer."""
    return batch(scene.producer_id, scene.producer_epoch, sequence, is_transactional=True)


def _produce(scene: Scene, records: bytes) -> Body:
    partition = {"index": 0, "records": records}
    topic = {"name": scene.topic, "topic_id": scene.topic_id, "partition_data": [partition]}
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}


@_good(ApiKey.PRODUCE, "plain", Need.OWN_TOPIC, after=_ends)
def _(scene: Scene) -> Body:
    return _produce(scene, batch())


@_good(ApiKey.PRODUCE, "sequenced", Need.OWN_TOPIC | Need.PRODUCER, after=_ends)
def _(scene: Scene) -> Body:
    return _produce(scene, batch(scene.producer_id, scene.producer_epoch, 0))


@_good(ApiKey.PRODUCE, "transactional", Need.OWN_TOPIC | Need.TRANSACTION, after=_transaction)
def _(scene: Scene) -> Body:
    return {
        **_produce(scene, transactional_batch(scene, 1)),
        "transactional_id": scene.transactional_id,
    }


def _fetch(scene: Scene) -> Body:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    topic = {"topic": scene.topic, "topic_id": scene.topic_id, "partitions": [partition]}
    return {
        "replica_id": -1,
        "max_wait_ms": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [topic],
    }


@_good(ApiKey.FETCH, "plain", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    return _fetch(scene)


@_good(ApiKey.FETCH, "session", Need.TOPIC, reads=True, versions=range(7, 100))
def _(scene: Scene) -> Body:
    forgotten = {"topic": OTHER_TOPIC, "topic_id": scene.other_id, "partitions": [0]}
    return {**_fetch(scene), "session_epoch": 0, "forgotten_topics_data": [forgotten]}


@_good(ApiKey.LIST_OFFSETS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": OLD + 1}
    topic = {"name": scene.topic, "partitions": [partition]}
    return {"replica_id": -1, "topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.OFFSET_FOR_LEADER_EPOCH, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": scene.topic, "partitions": [partition]}]}


@_good(ApiKey.DELETE_RECORDS, "", Need.OWN_TOPIC, after=_ends)
def _(scene: Scene) -> Body:
    partition = {"partition_index": 0, "offset": 1}
    topic = {"name": scene.topic, "partitions": [partition]}
    return {"topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.DESCRIBE_PRODUCERS, "", Need.TOPIC | Need.TRANSACTION, reads=True)
def _(scene: Scene) -> Body:
    return {"topics": [{"name": scene.topic, "partition_indexes": [0]}]}


# -- topics ----------------------------------------------------------------------------------------


@_good(ApiKey.METADATA, "by name", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    return {"topics": [{"name": scene.topic}], "allow_auto_topic_creation": False}


@_good(ApiKey.METADATA, "by id", Need.TOPIC, reads=True, versions=range(10, 100))
def _(scene: Scene) -> Body:
    return {"topics": [{"name": None, "topic_id": scene.topic_id}]}


@_good(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    return {
        "topics": [{"name": scene.topic}],
        "response_partition_limit": 2000,
        "cursor": {"topic_name": scene.topic, "partition_index": 0},
    }


TOPIC_SETTINGS: Final = (
    ("retention.ms", "100000"),
    ("cleanup.policy", "compact"),
    ("compression.type", "gzip"),
    ("compression.gzip.level", "6"),
    ("compression.lz4.level", "9"),
    ("compression.zstd.level", "3"),
    ("max.message.bytes", "1000"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.before.max.ms", "1000"),
    ("message.timestamp.after.max.ms", "1000"),
    ("min.insync.replicas", "1"),
    ("segment.bytes", "2000000"),
    ("segment.ms", "10000"),
    ("segment.jitter.ms", "10"),
    ("segment.index.bytes", "1000"),
    ("retention.bytes", "10000"),
    ("index.interval.bytes", "100"),
    ("delete.retention.ms", "1000"),
    ("file.delete.delay.ms", "1000"),
    ("flush.messages", "10"),
    ("flush.ms", "1000"),
    ("max.compaction.lag.ms", "1000"),
    ("min.compaction.lag.ms", "1000"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("preallocate", "false"),
    ("unclean.leader.election.enable", "true"),
    ("remote.storage.enable", "false"),
    ("local.retention.ms", "-2"),
    ("local.retention.bytes", "-2"),
    ("message.downconversion.enable", "true"),
    ("message.timestamp.difference.max.ms", "1000"),
    ("leader.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "*"),
)
"""Settings of topics that one of the brokers has or had, each with a good value."""

ONE_SIDED: Final = frozenset(name for name, _ in TOPIC_SETTINGS[-7:])
"""Those that only one of the brokers keeps."""


@_good(ApiKey.CREATE_TOPICS, "by count", Need.OWN_NAME, after=_topic_and_settings)
def _(scene: Scene) -> Body:
    topic = {
        "name": scene.topic,
        "num_partitions": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "100000"}],
    }
    return {"topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.CREATE_TOPICS, "by assignment", Need.OWN_NAME, after=_topic)
def _(scene: Scene) -> Body:
    topic = {
        "name": scene.topic,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [1]}],
    }
    return {"topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.DELETE_TOPICS, "by name", Need.OWN_TOPIC, after=_topic)
def _(scene: Scene) -> Body:
    return {
        "topics": [{"name": scene.topic}],
        "topic_names": [scene.topic],
        "timeout_ms": 30_000,
    }


@_good(ApiKey.DELETE_TOPICS, "by id", Need.OWN_TOPIC, versions=range(6, 100), after=_topic)
def _(scene: Scene) -> Body:
    return {"topics": [{"name": None, "topic_id": scene.topic_id}], "timeout_ms": 30_000}


@_good(ApiKey.CREATE_PARTITIONS, "by count", Need.OWN_TOPIC, after=_topic)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "count": 2, "assignments": None}
    return {"topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.CREATE_PARTITIONS, "by assignment", Need.OWN_TOPIC, after=_topic)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "count": 2, "assignments": [{"broker_ids": [1]}]}
    return {"topics": [topic], "timeout_ms": 30_000}


@_good(ApiKey.ELECT_LEADERS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    wanted = {"topic": scene.topic, "partitions": [0]}
    return {"election_type": 0, "topic_partitions": [wanted], "timeout_ms": 30_000}


@_good(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "", Need.TOPIC, after=_topic)
def _(scene: Scene) -> Body:
    partition = {"partition_index": 0, "replicas": [1]}
    return {
        "timeout_ms": 30_000,
        "allow_replication_factor_change": True,
        "topics": [{"name": scene.topic, "partitions": [partition]}],
    }


@_good(ApiKey.LIST_PARTITION_REASSIGNMENTS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "partition_indexes": [0]}
    return {"timeout_ms": 30_000, "topics": [topic]}


@_good(ApiKey.ALTER_REPLICA_LOG_DIRS, "", Need.TOPIC)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "partitions": [0]}
    return {"dirs": [{"path": scene.log_dir, "topics": [topic]}]}


@_good(ApiKey.DESCRIBE_LOG_DIRS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    return {"topics": [{"topic": scene.topic, "partitions": [0]}]}


# -- settings --------------------------------------------------------------------------------------


@_good(ApiKey.DESCRIBE_CONFIGS, "of a topic", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    asked = {
        "resource_type": 2,
        "resource_name": scene.topic,
        "configuration_keys": ["retention.ms"],
    }
    return {"resources": [asked]}


@_good(ApiKey.DESCRIBE_CONFIGS, "of the broker", reads=True)
def _(_: Scene) -> Body:
    asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["log.retention.ms"]}
    return {"resources": [asked]}


@_good(ApiKey.DESCRIBE_CONFIGS, "of a group", reads=True)
def _(scene: Scene) -> Body:
    asked = {
        "resource_type": 32,
        "resource_name": scene.consumer_group,
        "configuration_keys": ["consumer.session.timeout.ms"],
    }
    return {"resources": [asked]}


@_good(ApiKey.ALTER_CONFIGS, "", Need.OWN_TOPIC, after=_settings)
def _(scene: Scene) -> Body:
    setting = {"name": "retention.ms", "value": "100000"}
    return {"resources": [{"resource_type": 2, "resource_name": scene.topic, "configs": [setting]}]}


@_good(ApiKey.INCREMENTAL_ALTER_CONFIGS, "of a topic", Need.OWN_TOPIC, after=_settings)
def _(scene: Scene) -> Body:
    setting = {"name": "retention.ms", "config_operation": 0, "value": "100000"}
    return {"resources": [{"resource_type": 2, "resource_name": scene.topic, "configs": [setting]}]}


@_good(ApiKey.INCREMENTAL_ALTER_CONFIGS, "of a topic's list", Need.OWN_TOPIC, after=_settings)
def _(scene: Scene) -> Body:
    setting = {"name": "cleanup.policy", "config_operation": 2, "value": "compact"}
    return {"resources": [{"resource_type": 2, "resource_name": scene.topic, "configs": [setting]}]}


@_good(ApiKey.INCREMENTAL_ALTER_CONFIGS, "of a group")
def _(scene: Scene) -> Body:
    setting = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
    changed = {"resource_type": 32, "resource_name": scene.consumer_group, "configs": [setting]}
    return {"resources": [changed]}


@_good(ApiKey.LIST_CONFIG_RESOURCES, "", reads=True)
def _(_: Scene) -> Body:
    return {"resource_types": [2]}


@_good(ApiKey.DESCRIBE_CLIENT_QUOTAS, "", reads=True)
def _(scene: Scene) -> Body:
    component = {"entity_type": "user", "match_type": 0, "match": scene.case}
    return {"components": [component], "strict": False}


@_good(ApiKey.ALTER_CLIENT_QUOTAS, "")
def _(scene: Scene) -> Body:
    entity = {"entity_type": "user", "entity_name": scene.case}
    change = {"key": "producer_byte_rate", "value": 1e9, "remove": False}
    return {"entries": [{"entity": [entity], "ops": [change]}], "validate_only": False}


@_good(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "", reads=True)
def _(scene: Scene) -> Body:
    return {"users": [{"name": scene.case}]}


@_good(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "deletion")
def _(scene: Scene) -> Body:
    return {"deletions": [{"name": scene.case, "mechanism": 1}]}


@_good(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "upsertion")
def _(scene: Scene) -> Body:
    made = {
        "name": scene.case,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"p" * 32,
    }
    return {"upsertions": [made]}


@_good(ApiKey.UPDATE_FEATURES, "")
def _(_: Scene) -> Body:
    update = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
    return {"timeout_ms": 30_000, "feature_updates": [update], "validate_only": True}


# On the plain listener of the comparison no client may ask about tokens; their work is compared in
# tests/compat/test_delegation_tokens.py.


@_good(ApiKey.CREATE_DELEGATION_TOKEN)
def _create_token(scene: Scene) -> Body:
    renewer = {"principal_type": "User", "principal_name": scene.case}
    return {
        "owner_principal_type": "User",
        "owner_principal_name": "bob",
        "renewers": [renewer],
        "max_lifetime_ms": 1_000_000,
    }


@_good(ApiKey.RENEW_DELEGATION_TOKEN)
def _renew_token(_: Scene) -> Body:
    return {"hmac": bytes(64), "renew_period_ms": 1_000_000}


@_good(ApiKey.EXPIRE_DELEGATION_TOKEN)
def _expire_token(_: Scene) -> Body:
    return {"hmac": bytes(64), "expiry_time_period_ms": -1}


@_good(ApiKey.DESCRIBE_DELEGATION_TOKEN, reads=True)
def _describe_tokens(_: Scene) -> Body:
    return {"owners": [{"principal_type": "User", "principal_name": "bob"}]}


@_good(ApiKey.DESCRIBE_ACLS, "", reads=True)
def _(scene: Scene) -> Body:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": scene.topic,
        "pattern_type_filter": 3,
        "principal_filter": "User:a",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }


@_good(ApiKey.CREATE_ACLS, "", Need.OWN_NAME)
def _(scene: Scene) -> Body:
    made = {
        "resource_type": 2,
        "resource_name": scene.topic,
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [made]}


@_good(ApiKey.DELETE_ACLS, "", Need.OWN_NAME | Need.RULE)
def _(scene: Scene) -> Body:
    chosen = {
        "resource_type_filter": 2,
        "resource_name_filter": scene.topic,
        "pattern_type_filter": 3,
        "principal_filter": "User:a",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"filters": [chosen]}


# -- the cluster -----------------------------------------------------------------------------------


@_good(ApiKey.API_VERSIONS, "", reads=True)
def _(_: Scene) -> Body:
    return {"client_software_name": "differential", "client_software_version": "1.0"}


@_good(ApiKey.SASL_HANDSHAKE, "", reads=True)
def _(_: Scene) -> Body:
    return {"mechanism": "PLAIN"}


@_good(ApiKey.SASL_AUTHENTICATE, "", reads=True)
def _(_: Scene) -> Body:
    return {"auth_bytes": b"\0user\0password"}


@_good(ApiKey.DESCRIBE_CLUSTER, "", reads=True)
def _(_: Scene) -> Body:
    return {"endpoint_type": 1}


@_good(ApiKey.DESCRIBE_QUORUM, "", reads=True)
def _(_: Scene) -> Body:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{}]}]}


# -- groups ----------------------------------------------------------------------------------------


@_good(ApiKey.FIND_COORDINATOR, "", reads=True)
def _(scene: Scene) -> Body:
    return {"key": scene.group, "key_type": 0, "coordinator_keys": [scene.group]}


def _join(scene: Scene, member_id: str) -> Body:
    return {
        "group_id": scene.group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }


@_good(ApiKey.JOIN_GROUP, "first", after=_group)
def _(scene: Scene) -> Body:
    return _join(scene, "")


@_good(ApiKey.JOIN_GROUP, "again", Need.MEMBER, after=_group)
def _(scene: Scene) -> Body:
    return _join(scene, scene.member_id)


@_good(ApiKey.JOIN_GROUP, "static", versions=range(5, 100), after=_group)
def _(scene: Scene) -> Body:
    return {**_join(scene, ""), "group_instance_id": f"{scene.case}-instance"}


@_good(ApiKey.SYNC_GROUP, "", Need.MEMBER, after=_group)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.group,
        "generation_id": scene.generation,
        "member_id": scene.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": scene.member_id, "assignment": ASSIGNMENT}],
    }


@_good(ApiKey.HEARTBEAT, "", Need.MEMBER, after=_group)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.group,
        "generation_id": scene.generation,
        "member_id": scene.member_id,
    }


@_good(ApiKey.LEAVE_GROUP, "", Need.MEMBER, after=_group)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.group,
        "member_id": scene.member_id,
        "members": [{"member_id": scene.member_id, "reason": "done"}],
    }


@_good(ApiKey.DESCRIBE_GROUPS, "", Need.MEMBER, reads=True)
def _(scene: Scene) -> Body:
    return {"groups": [scene.group]}


@_good(ApiKey.DESCRIBE_GROUPS, "empty", Need.COMMITS, reads=True)
def _(scene: Scene) -> Body:
    return {"groups": [scene.idle_group]}


@_good(ApiKey.DESCRIBE_GROUPS, "consumer", Need.CONSUMER, reads=True)
def _(scene: Scene) -> Body:
    return {"groups": [scene.consumer_group]}


@_good(ApiKey.LIST_GROUPS, "", Need.MEMBER | Need.COMMITS | Need.CONSUMER, reads=True)
def _(_: Scene) -> Body:
    return {"states_filter": ["Stable"], "types_filter": ["classic"]}


@_good(ApiKey.DELETE_GROUPS, "with commits", Need.COMMITS | Need.TOPIC, after=_groups_and_commits)
def _(scene: Scene) -> Body:
    return {"groups_names": [scene.idle_group]}


@_good(ApiKey.DELETE_GROUPS, "with a member", Need.MEMBER, after=_groups_and_commits)
def _(scene: Scene) -> Body:
    return {"groups_names": [scene.group]}


def _commit(scene: Scene, group: str, generation: int, member_id: str) -> Body:
    partition = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": 0,
        "committed_metadata": "metadata",
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "retention_time_ms": -1,
        "topics": [{"name": scene.topic, "topic_id": scene.topic_id, "partitions": [partition]}],
    }


@_good(
    ApiKey.OFFSET_COMMIT,
    "of a member",
    Need.MEMBER | Need.TOPIC,
    after=_committed(lambda scene: scene.group),
)
def _(scene: Scene) -> Body:
    return _commit(scene, scene.group, scene.generation, scene.member_id)


@_good(
    ApiKey.OFFSET_COMMIT,
    "of no member",
    Need.TOPIC,
    after=_committed(lambda scene: scene.idle_group),
)
def _(scene: Scene) -> Body:
    return _commit(scene, scene.idle_group, -1, "")


@_good(
    ApiKey.OFFSET_COMMIT,
    "of a consumer",
    Need.CONSUMER | Need.TOPIC,
    after=_committed(lambda scene: scene.consumer_group),
)
def _(scene: Scene) -> Body:
    return _commit(scene, scene.consumer_group, scene.member_epoch, scene.consumer_member)


def _fetch_offsets(scene: Scene, group: str, **member: Any) -> Body:
    topic = {"name": scene.topic, "partition_indexes": [0]}
    with_id = {**topic, "topic_id": scene.topic_id}
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": [with_id]}
    return {"group_id": group, "topics": [topic], "groups": [{**asked, **member}]}


@_good(ApiKey.OFFSET_FETCH, "classic", Need.MEMBER | Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    return _fetch_offsets(scene, scene.group)


@_good(
    ApiKey.OFFSET_FETCH,
    "consumer",
    Need.CONSUMER | Need.TOPIC,
    reads=True,
    versions=range(9, 100),
)
def _(scene: Scene) -> Body:
    return _fetch_offsets(
        scene,
        scene.consumer_group,
        member_id=scene.consumer_member,
        member_epoch=scene.member_epoch,
    )


@_good(
    ApiKey.OFFSET_DELETE,
    "",
    Need.COMMITS | Need.TOPIC,
    after=_committed(lambda scene: scene.idle_group),
)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "partitions": [{"partition_index": 0}]}
    return {"group_id": scene.idle_group, "topics": [topic]}


@_good(
    ApiKey.OFFSET_DELETE,
    "with a member",
    Need.MEMBER | Need.TOPIC,
    after=_committed(lambda scene: scene.group),
)
def _(scene: Scene) -> Body:
    topic = {"name": scene.topic, "partitions": [{"partition_index": 0}]}
    return {"group_id": scene.group, "topics": [topic]}


def _heartbeat(scene: Scene, epoch: int) -> Body:
    return {
        "group_id": scene.consumer_group,
        "member_id": scene.consumer_member,
        "member_epoch": epoch,
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": [scene.topic],
        "topic_partitions": [],
    }


@_good(ApiKey.CONSUMER_GROUP_HEARTBEAT, "join", Need.TOPIC, after=_consumer_group)
def _(scene: Scene) -> Body:
    return _heartbeat(scene, 0)


@_good(ApiKey.CONSUMER_GROUP_HEARTBEAT, "steady", Need.TOPIC | Need.CONSUMER, after=_consumer_group)
def _(scene: Scene) -> Body:
    owned = {"topic_id": scene.topic_id, "partitions": [0, 1]}
    return {**_heartbeat(scene, scene.member_epoch), "topic_partitions": [owned]}


@_good(ApiKey.CONSUMER_GROUP_HEARTBEAT, "short", Need.TOPIC | Need.CONSUMER, after=_consumer_group)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.consumer_group,
        "member_id": scene.consumer_member,
        "member_epoch": scene.member_epoch,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }


@_good(ApiKey.CONSUMER_GROUP_DESCRIBE, "", Need.TOPIC | Need.CONSUMER, reads=True)
def _(scene: Scene) -> Body:
    return {"group_ids": [scene.consumer_group]}


# -- share groups and streams groups ---------------------------------------------------------------
#
# Their dialogues are compared elsewhere; here are requests about what does not exist.


@_good(ApiKey.SHARE_GROUP_HEARTBEAT, "continue", Need.TOPIC)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.share_group,
        "member_id": scene.share_member,
        "member_epoch": 1,
        "rack_id": None,
        "subscribed_topic_names": [scene.topic],
    }


@_good(ApiKey.STREAMS_GROUP_HEARTBEAT, "continue", Need.TOPIC)
def _(scene: Scene) -> Body:
    return {
        "group_id": f"{scene.case}-streams",
        "member_id": scene.share_member,
        "member_epoch": 1,
        "active_tasks": [{"subtopology_id": "0", "partitions": [0]}],
        "standby_tasks": [],
        "warmup_tasks": [],
    }


@_good(ApiKey.STREAMS_GROUP_DESCRIBE, "", reads=True)
def _(scene: Scene) -> Body:
    return {"group_ids": [f"{scene.case}-streams"]}


@_good(ApiKey.SHARE_GROUP_DESCRIBE, "", reads=True)
def _(scene: Scene) -> Body:
    return {"group_ids": [scene.share_group]}


@_good(ApiKey.SHARE_FETCH, "continue", Need.TOPIC)
def _(scene: Scene) -> Body:
    return {
        "group_id": scene.share_group,
        "member_id": scene.share_member,
        "share_session_epoch": 1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": scene.topic_id, "partitions": [{"partition_index": 0}]}],
        "forgotten_topics_data": [],
    }


@_good(ApiKey.SHARE_ACKNOWLEDGE, "continue", Need.TOPIC)
def _(scene: Scene) -> Body:
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    partition = {"partition_index": 0, "acknowledgement_batches": [batch]}
    return {
        "group_id": scene.share_group,
        "member_id": scene.share_member,
        "share_session_epoch": 1,
        "topics": [{"topic_id": scene.topic_id, "partitions": [partition]}],
    }


@_good(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "", Need.TOPIC, reads=True)
def _(scene: Scene) -> Body:
    topic = {"topic_name": scene.topic, "partitions": [0]}
    return {"groups": [{"group_id": scene.share_group, "topics": [topic]}]}


@_good(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "", Need.TOPIC)
def _(scene: Scene) -> Body:
    return {"group_id": scene.share_group, "topics": [{"topic_name": scene.topic}]}


@_good(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "no such topic")
def _(scene: Scene) -> Body:
    partition = {"partition_index": 0, "start_offset": 0}
    topic = {"topic_name": f"{scene.case}-absent", "partitions": [partition]}
    return {"group_id": scene.share_group, "topics": [topic]}


# -- states of share groups, and what else only brokers send ---------------------------------------


def _states(scene: Scene, **partition: Any) -> Body:
    topic = {"topic_id": scene.topic_id, "partitions": [{"partition": 0, **partition}]}
    return {"group_id": scene.share_group, "topics": [topic]}


def _summary(scene: Scene) -> list[Probe]:
    return [(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, _states(scene, leader_epoch=0))]


@_good(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "", Need.TOPIC | Need.STATES, after=_summary)
def _(scene: Scene) -> Body:
    return _states(scene, state_epoch=3, start_offset=1)


@_good(ApiKey.READ_SHARE_GROUP_STATE, "none", Need.TOPIC | Need.STATES)
def _(scene: Scene) -> Body:
    return _states(scene, leader_epoch=0)


@_good(ApiKey.WRITE_SHARE_GROUP_STATE, "none", Need.TOPIC | Need.STATES, after=_summary)
def _(scene: Scene) -> Body:
    batch = {"first_offset": 1, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}
    return _states(
        scene,
        state_epoch=3,
        leader_epoch=0,
        start_offset=1,
        delivery_complete_count=1,
        state_batches=[batch],
    )


@_good(ApiKey.DELETE_SHARE_GROUP_STATE, "none", Need.TOPIC | Need.STATES, after=_summary)
def _(scene: Scene) -> Body:
    return _states(scene)


@_good(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "none", Need.TOPIC | Need.STATES)
def _(scene: Scene) -> Body:
    return _states(scene, leader_epoch=0)


@_good(ApiKey.UNREGISTER_BROKER, "not there")
def _(_: Scene) -> Body:
    return {"broker_id": 77}


# -- transactions ----------------------------------------------------------------------------------


@_good(ApiKey.INIT_PRODUCER_ID, "idempotent")
def _(_: Scene) -> Body:
    return {
        "transactional_id": None,
        "transaction_timeout_ms": TRANSACTION_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }


@_good(ApiKey.INIT_PRODUCER_ID, "first", after=_transaction)
def _(scene: Scene) -> Body:
    return {
        "transactional_id": scene.transactional_id,
        "transaction_timeout_ms": TRANSACTION_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }


@_good(ApiKey.INIT_PRODUCER_ID, "again", Need.PRODUCER, after=_transaction)
def _(scene: Scene) -> Body:
    return {
        "transactional_id": scene.transactional_id,
        "transaction_timeout_ms": TRANSACTION_MS,
        "producer_id": scene.producer_id,
        "producer_epoch": scene.producer_epoch,
    }


def _transactional(scene: Scene) -> Body:
    return {
        "transactional_id": scene.transactional_id,
        "producer_id": scene.producer_id,
        "producer_epoch": scene.producer_epoch,
    }


@_good(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "",
    Need.TOPIC | Need.PRODUCER,
    versions=range(4),
    after=_transaction,
)
def _(scene: Scene) -> Body:
    return {
        **{f"v3_and_below_{name}": value for name, value in _transactional(scene).items()},
        "v3_and_below_topics": [{"name": scene.topic, "partitions": [0]}],
    }


_OF_BROKERS: Final = range(4, 100)


@_good(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "",
    Need.TOPIC | Need.PRODUCER,
    versions=_OF_BROKERS,
    after=_transaction,
)
def _(scene: Scene) -> Body:
    topics = [{"name": scene.topic, "partitions": [0]}]
    return {"transactions": [{**_transactional(scene), "verify_only": False, "topics": topics}]}


@_good(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    "verify",
    Need.OWN_TOPIC | Need.TRANSACTION,
    versions=_OF_BROKERS,
    after=_transaction,
)
def _(scene: Scene) -> Body:
    topics = [{"name": scene.topic, "partitions": [0, 1]}]
    return {"transactions": [{**_transactional(scene), "verify_only": True, "topics": topics}]}


@_good(ApiKey.ADD_OFFSETS_TO_TXN, "", Need.PRODUCER, after=_transaction)
def _(scene: Scene) -> Body:
    return {**_transactional(scene), "group_id": scene.idle_group}


@_good(ApiKey.END_TXN, "", Need.OWN_TOPIC | Need.TRANSACTION, after=_transaction)
def _(scene: Scene) -> Body:
    return {**_transactional(scene), "committed": True}


@_good(ApiKey.END_TXN, "none open", Need.PRODUCER, after=_transaction)
def _(scene: Scene) -> Body:
    return {**_transactional(scene), "committed": True}


@_good(ApiKey.WRITE_TXN_MARKERS, "", Need.OWN_TOPIC | Need.TRANSACTION, after=_ends)
def _(scene: Scene) -> Body:
    marker = {
        "producer_id": scene.producer_id,
        "producer_epoch": scene.producer_epoch,
        "transaction_result": True,
        "topics": [{"name": scene.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    return {"markers": [marker]}


def _commit_in_transaction(scene: Scene, generation: int, member_id: str, group: str) -> Body:
    partition = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": 0,
        "committed_metadata": "metadata",
    }
    return {
        **_transactional(scene),
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "topics": [{"name": scene.topic, "partitions": [partition]}],
    }


@_good(
    ApiKey.TXN_OFFSET_COMMIT,
    "of no member",
    Need.TOPIC | Need.TRANSACTION,
    after=_committed(lambda scene: scene.idle_group),
)
def _(scene: Scene) -> Body:
    return _commit_in_transaction(scene, -1, "", scene.idle_group)


@_good(
    ApiKey.TXN_OFFSET_COMMIT,
    "of a member",
    Need.TOPIC | Need.TRANSACTION | Need.MEMBER,
    versions=range(3, 100),
    after=_committed(lambda scene: scene.group),
)
def _(scene: Scene) -> Body:
    return _commit_in_transaction(scene, scene.generation, scene.member_id, scene.group)


@_good(ApiKey.DESCRIBE_TRANSACTIONS, "", Need.TOPIC | Need.TRANSACTION, reads=True)
def _(scene: Scene) -> Body:
    return {"transactional_ids": [scene.transactional_id]}


@_good(ApiKey.LIST_TRANSACTIONS, "", Need.TOPIC | Need.TRANSACTION, reads=True)
def _(scene: Scene) -> Body:
    return {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [scene.producer_id],
        "duration_filter": -1,
        "transactional_id_pattern": f"{scene.case}.*",
    }
