"""Access rules and filters over them as values, with the codes in their fields.

Source: Kafka `AclBinding`, `AclBindingFilter`, `ResourceType`, `PatternType`, `AclOperation`,
`AclPermissionType`.
"""

import enum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

WILDCARD: Final = "*"
"""Every name, or every host."""


class ResourceType(enum.IntEnum):
    """What a rule is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How the name of a rule is compared; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """What may be done; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Whether a rule allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One rule."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        """The rule as one phrase, for explanations and the audit log."""
        kind = Permission(self.permission).name
        operation = Operation(self.operation).name
        pattern = PatternType(self.pattern).name.lower()
        resource = ResourceType(self.resource_type).name.lower()
        return (
            f"{kind} {operation} on {pattern} {resource} {self.name!r} "
            f"to {self.principal} from {self.host}"
        )


class AclFilter(NamedTuple):
    """A selection of rules; None and ANY match everything."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def complaint(self) -> str | None:
        """Why the filter is not understood, or None."""
        for what, number, last in (
            ("resource type", self.resource_type, ResourceType.USER),
            ("pattern type", self.pattern, PatternType.PREFIXED),
            ("operation", self.operation, Operation.TWO_PHASE_COMMIT),
            ("permission", self.permission, Permission.ALLOW),
        ):
            if not 1 <= number <= last:
                return f"The filter has the unknown {what} {number}; give 1 to {last}"
        return None

    def matches(self, acl: Acl) -> bool:
        """Whether `acl` is selected."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        name = self.name
        if self.pattern == PatternType.MATCH:
            if name is None or (acl.name == WILDCARD and acl.pattern == PatternType.LITERAL):
                return True
            if acl.pattern == PatternType.PREFIXED:
                return name.startswith(acl.name)
            return name == acl.name
        return self.pattern in (PatternType.ANY, acl.pattern) and name in (None, acl.name)
