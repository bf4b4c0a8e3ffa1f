"""The admin client's answers: frozen descriptions of topics' settings, groups and sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from client.types import TopicPartition


class ResourceType(IntEnum):
    """The kind of resource that has settings, by its number on the wire."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(Enum):
    """Where a setting's value comes from."""

    UNKNOWN = -1
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, set nowhere."""
        return self is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting as the broker reports it; a secret's value is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be created; -1 leaves a number to the broker."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as it is listed; state and type are empty if the broker does not report them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberInfo:
    """One member of a group and its share."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group: its state (Stable, Empty, ..., Dead for one that does not exist) and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMemberInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePosition:
    """Where a share group stands in a partition.

    `start_offset` is the first record that is not done, `lag` how many from there on are not; both
    are None before the first fetch.
    """

    start_offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The cluster's id and who takes administrative changes."""

    cluster_id: str | None
    controller_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of an entity: `user`, `client-id` or `ip` to a name, None for the default."""

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token. Principals are written `User:name`, times are wall-clock milliseconds.

    Attributes:
        id: the name that its bearer logs in with.
        secret: proves the token; in base64 it is the bearer's password.
        owner: who the bearer is.
        requester: who asked for it.
        renewers: who may change its expiry, besides the owner.
        issued_ms: when it was made.
        expires_ms: the last moment at which it is valid.
        max_ms: the bound of `expires_ms`.
    """

    id: str
    secret: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
