"""What a user may do in the matrix: no rule, one rule of every kind, and combinations.

A condition is one user with its rules. All rules of all users are in force at the same time, so
nothing has to be changed between two requests: a decision looks at the rules of its own principal.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.security.acls import OPERATIONS_OF
from protocol.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tests.rights.brokers import SUPER_USER, Rule

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TYPES: Final = (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID)
PREFIXES: Final = ("c", "shared")
"""How the names of all scenes begin that requests are about, but not those of other things."""

Right = tuple[ResourceType, Operation]


class Condition(NamedTuple):
    """A user, and what there is for it."""

    name: str
    user: str
    rules: tuple[Rule, ...]
    types: frozenset[ResourceType]
    """The resource types that tell this condition from others."""
    is_repeated: bool = False
    """Whether another condition has the same rights by rules of another kind."""


def _everywhere(right: Right, permission: Permission) -> Rule:
    kind, operation = right
    name = CLUSTER_NAME if kind is CLUSTER else "*"
    return Rule(kind, name, PatternType.LITERAL, operation, permission)


def _prefixed(right: Right, permission: Permission) -> tuple[Rule, ...]:
    kind, operation = right
    return tuple(
        Rule(kind, prefix, PatternType.PREFIXED, operation, permission) for prefix in PREFIXES
    )


RIGHTS: Final[tuple[Right, ...]] = tuple(
    (kind, operation) for kind in TYPES for operation in (Operation.ALL, *OPERATIONS_OF[kind])
)
EVERYTHING: Final = tuple(_everywhere((kind, Operation.ALL), Permission.ALLOW) for kind in TYPES)

_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_DELETE, _DESCRIBE = Operation.DELETE, Operation.DESCRIBE
TOGETHER: Final[tuple[tuple[Right, ...], ...]] = (
    ((GROUP, _READ), (TOPIC, _READ)),
    ((GROUP, _READ), (TOPIC, _DESCRIBE)),
    ((GROUP, _DESCRIBE), (TOPIC, _DESCRIBE)),
    ((GROUP, _DESCRIBE), (CLUSTER, _DESCRIBE)),
    ((GROUP, _DELETE), (TOPIC, _READ)),
    ((TRANSACTIONAL_ID, _WRITE), (TOPIC, _WRITE)),
    ((TRANSACTIONAL_ID, _WRITE), (GROUP, _READ)),
    ((TRANSACTIONAL_ID, _WRITE), (GROUP, _READ), (TOPIC, _READ)),
    ((TRANSACTIONAL_ID, _WRITE), (TRANSACTIONAL_ID, Operation.TWO_PHASE_COMMIT)),
    ((TRANSACTIONAL_ID, _DESCRIBE), (TOPIC, _DESCRIBE)),
    ((TOPIC, _DELETE), (TOPIC, _DESCRIBE)),
    ((CLUSTER, _CREATE), (TOPIC, Operation.DESCRIBE_CONFIGS)),
    ((CLUSTER, _CREATE), (TOPIC, _DESCRIBE)),
    ((TOPIC, _CREATE), (TOPIC, Operation.DESCRIBE_CONFIGS)),
    ((TOPIC, _DESCRIBE), (CLUSTER, _DESCRIBE)),
)
"""The combinations that the table of rights has a use for."""


def _words(right: Right) -> str:
    kind, operation = right
    return f"{operation.name} {kind.name}"


def conditions() -> list[Condition]:
    """All of them; the first two have nothing and may do everything."""
    found = [
        Condition("nothing", "nothing", (), frozenset(TYPES)),
        Condition("super user", SUPER_USER, (), frozenset(TYPES)),
    ]
    for name, rules, kinds, is_repeated in _of_rules():
        found.append(Condition(name, f"u{len(found)}", rules, kinds, is_repeated))
    return found


def _of_rules() -> Iterator[tuple[str, tuple[Rule, ...], frozenset[ResourceType], bool]]:
    allow, deny = Permission.ALLOW, Permission.DENY
    for right in RIGHTS:
        of_type = frozenset({right[0]})
        yield f"ALLOW {_words(right)}", (_everywhere(right, allow),), of_type, False
        yield f"DENY {_words(right)}", (*EVERYTHING, _everywhere(right, deny)), of_type, False
        if right[0] is not CLUSTER:
            yield f"ALLOW {_words(right)} by prefix", _prefixed(right, allow), of_type, True
            denied = (*EVERYTHING, *_prefixed(right, deny))
            yield f"DENY {_words(right)} by prefix", denied, of_type, True
    for rights in TOGETHER:
        name = "ALLOW " + ", ".join(map(_words, rights))
        rules = tuple(_everywhere(right, allow) for right in rights)
        yield name, rules, frozenset(kind for kind, _ in rights), False
