"""Records of Kafka's metadata log that define topics and security (KIP-631), all flexible.

| kind | record                          | meaning                                         |
|------|---------------------------------|-------------------------------------------------|
| 2    | TopicRecord                     | a name has this id                              |
| 3    | PartitionRecord (to 2)          | the id has this partition, on these nodes       |
| 4    | ConfigRecord                    | a setting of a topic or broker; null removes it |
| 5    | PartitionChangeRecord (to 2)    | what changed of a partition                     |
| 9    | RemoveTopicRecord               | the id, its partitions and settings are gone    |
| 10   | DelegationTokenRecord           | a delegation token, without its secret          |
| 11   | UserScramCredentialRecord       | the keys that prove a user's password           |
| 12   | FeatureLevelRecord              | a feature, ``metadata.version`` among them      |
| 14   | ClientQuotaRecord               | one limit of a quota entity                     |
| 15   | ProducerIdsRecord               | producer ids below this one have been given out |
| 18   | AccessControlEntryRecord        | an access rule has this id                      |
| 19   | RemoveAccessControlEntryRecord  | the rule with this id is gone                   |
| 22   | RemoveUserScramCredentialRecord | the user has no such credential any more        |
| 26   | RemoveDelegationTokenRecord     | the token with this id is gone                  |

A snapshot of these records begins with SnapshotHeader and ends with SnapshotFooter, which are the
values of control records and have no kind: their first two bytes are their version.

Their version is 0, of two of them 0 to 2. Unused fields are declared only where they precede a used
one, or where they are written; unknown tags are skipped.

Source: KIP-630, KIP-631, KIP-801, KIP-858, KIP-900, KIP-966; Kafka
``metadata/src/main/resources/common/metadata``.
"""

from protocol.declare import primitives as wire


class MetadataRecord(wire.Stored):
    """A record of the metadata log."""

    __slots__ = ()


class SecurityRecord(MetadataRecord):
    """A user's credential, a rule, a limit or a token that is in force."""

    __slots__ = ()


class RemovedSecurityRecord(MetadataRecord):
    """One of these is not in force any more."""

    __slots__ = ()


class TopicRecord(MetadataRecord, max_version=0, flexible_since=0):
    """A topic has come into being."""

    name: str = wire.string()
    topic_id: bytes = wire.uuid()


class PartitionRecord(MetadataRecord, max_version=2, flexible_since=0):
    """A partition has come into being on these nodes, the first one preferred."""

    partition_id: int = wire.int32(default=-1)
    topic_id: bytes = wire.uuid()
    replicas: list[int] = wire.array(wire.INT32)
    isr: list[int] = wire.array(wire.INT32)
    removing_replicas: list[int] = wire.array(wire.INT32)
    adding_replicas: list[int] = wire.array(wire.INT32)
    leader: int = wire.int32(default=-1)
    leader_epoch: int = wire.int32(default=-1)
    partition_epoch: int = wire.int32(default=-1)
    directories: list[bytes] = wire.array(wire.UUID, since=1)


class ConfigRecord(MetadataRecord, max_version=0, flexible_since=0):
    """A setting of a resource; the broker name "" means all brokers."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    name: str = wire.string()
    value: str | None = wire.string(nullable_since=0, default=None)


class PartitionChangeRecord(MetadataRecord, max_version=2, flexible_since=0):
    """The changes of a partition; `replicas` is None where they did not change."""

    partition_id: int = wire.int32(default=-1)
    topic_id: bytes = wire.uuid()
    replicas: list[int] | None = wire.array(wire.INT32, nullable_since=0, tag=2, default=None)


class RemoveTopicRecord(MetadataRecord, max_version=0, flexible_since=0):
    """A topic was removed."""

    topic_id: bytes = wire.uuid()


class FeatureLevelRecord(MetadataRecord, max_version=0, flexible_since=0):
    """A feature of the cluster is at this level; 0 is off."""

    name: str = wire.string()
    feature_level: int = wire.int16()


class ProducerIdsRecord(MetadataRecord, max_version=0, flexible_since=0):
    """The producer ids below `next_producer_id` are taken; the node is the last requester."""

    broker_id: int = wire.int32()
    broker_epoch: int = wire.int64(default=-1)
    next_producer_id: int = wire.int64()


class DelegationTokenRecord(SecurityRecord, max_version=0, flexible_since=0):
    """A delegation token; its secret follows from its id and `delegation.token.secret.key`."""

    owner: str = wire.string()
    requester: str = wire.string()
    renewers: list[str] = wire.array(wire.STRING)
    issue_timestamp: int = wire.int64()
    max_timestamp: int = wire.int64()
    expiration_timestamp: int = wire.int64()
    token_id: str = wire.string()


class RemoveDelegationTokenRecord(RemovedSecurityRecord, max_version=0, flexible_since=0):
    """A delegation token was removed."""

    token_id: str = wire.string()


class UserScramCredentialRecord(SecurityRecord, max_version=0, flexible_since=0):
    """The credential of a user for one mechanism."""

    name: str = wire.string()
    mechanism: int = wire.int8()
    salt: bytes = wire.binary()
    stored_key: bytes = wire.binary()
    server_key: bytes = wire.binary()
    iterations: int = wire.int32()


class RemoveUserScramCredentialRecord(RemovedSecurityRecord, max_version=0, flexible_since=0):
    """The credential of a user for one mechanism was removed."""

    name: str = wire.string()
    mechanism: int = wire.int8()


class QuotaEntityData(wire.Struct):
    """One part of a quota entity; the name is null for the default."""

    entity_type: str = wire.string()
    entity_name: str | None = wire.string(nullable_since=0, default=None)


class ClientQuotaRecord(SecurityRecord, max_version=0, flexible_since=0):
    """One limit of an entity, set or removed."""

    entity: list[QuotaEntityData] = wire.array()
    key: str = wire.string()
    value: float = wire.float64()
    remove: bool = wire.boolean()


class AccessControlEntryRecord(SecurityRecord, max_version=0, flexible_since=0):
    """An access rule; the codes are those of the protocol."""

    id: bytes = wire.uuid()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    pattern_type: int = wire.int8()
    principal: str = wire.string()
    host: str = wire.string()
    operation: int = wire.int8()
    permission_type: int = wire.int8()


class RemoveAccessControlEntryRecord(RemovedSecurityRecord, max_version=0, flexible_since=0):
    """An access rule was removed."""

    id: bytes = wire.uuid()


class SnapshotHeader(wire.Stored, max_version=0, flexible_since=0):
    """The value of the control record that a snapshot begins with."""

    last_contained_timestamp_ms: int = wire.int64()


class SnapshotFooter(wire.Stored, max_version=0, flexible_since=0):
    """The value of the control record that a snapshot ends with."""
