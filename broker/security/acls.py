"""Access control lists: the rules in force, and the decision they make.

A rule allows or denies one operation on a resource to a principal from a host:

    (resource type, name, pattern) x (principal, host, operation, permission)

The decision about one principal, host, operation and resource name:

1. a super user may do everything;
2. any matching DENY rule denies;
3. else any matching ALLOW rule allows;
4. else, if no rule of anyone matches type and name, `allow.everyone.if.no.acl.found` decides;
5. else it is denied.

A LITERAL rule matches its name, or every name when it is `*`; a PREFIXED rule matches names that
start with its own. An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, an ALLOW of
ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies nothing.

Pure: no clock, no files, no requests. A decision costs one lookup per distinct prefix length, and
`Access` keeps up to ten thousand of them by client.

Differs from Kafka: addresses of hosts are compared as numbers, there as Java writes them.

Source: KIP-11, KIP-290; Kafka `StandardAuthorizerData`, `AclPermissionType`. The codes are those of
the protocol.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from broker.principal import USER_TYPE, Principal
from config.listeners import canonical_address
from protocol.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from values.dataclasses import dataclass

KIND_ACL: Final = "acl"
ANY_USER: Final = "User:*"
DECISIONS_KEPT: Final = 10_000


_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}

OPERATIONS_OF: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE,
        Operation.WRITE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that make sense on a resource; the bit fields of answers hold these."""


def complaint_about(acl: Acl) -> str | None:
    """Why a rule cannot be stored, or None; one that can never match may be, as in Kafka."""
    if acl.resource_type not in OPERATIONS_OF:
        return f"resource type {acl.resource_type} cannot be stored; give 2 to 7"
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"pattern type {acl.pattern} cannot be stored; give 3 (LITERAL) or 4 (PREFIXED)"
    if not Operation.ALL <= acl.operation <= Operation.TWO_PHASE_COMMIT:
        return f"operation {acl.operation} cannot be stored; give 2 (ALL) to 15"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"permission {acl.permission} cannot be stored; give 2 (DENY) or 3 (ALLOW)"
    if not acl.name:
        return "Resource name should not be empty"
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None


_ByPrincipal: TypeAlias = dict[str, dict[Acl, str]]
"""Rules by the text of their principal, each with its host as `_address` compares it."""

_ByName: TypeAlias = dict[str, _ByPrincipal]
_NO_RULES: Final[dict[Acl, str]] = {}

Decided: TypeAlias = dict[tuple[int, int, str], bool]
"""Decisions about one principal at one host, by operation, resource type and name."""


class _Rules:
    """The rules of one resource type, by the ways in which they match a name."""

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: _ByName = {}
        self.prefixed: _ByName = {}
        # How many prefixes have a length.
        self._lengths: Counter[int] = Counter()

    def add(self, acl: Acl) -> None:
        """Take in a rule that is not here."""
        by_name = self._map_of(acl)
        if acl.name not in by_name:
            by_name[acl.name] = {}
            if by_name is self.prefixed:
                self._lengths[len(acl.name)] += 1
        by_name[acl.name].setdefault(acl.principal, {})[acl] = _address(acl.host)

    def remove(self, acl: Acl) -> None:
        """Forget a rule that is here."""
        by_name = self._map_of(acl)
        by_principal = by_name[acl.name]
        of_principal = by_principal[acl.principal]
        del of_principal[acl]
        if of_principal:
            return
        del by_principal[acl.principal]
        if by_principal:
            return
        del by_name[acl.name]
        if by_name is self.prefixed:
            self._lengths[len(acl.name)] -= 1
            if not self._lengths[len(acl.name)]:
                del self._lengths[len(acl.name)]

    def of(self, name: str) -> Iterator[_ByPrincipal]:
        """Every rule whose pattern matches `name`, never an empty map."""
        if name in self.literal:
            yield self.literal[name]
        if name != WILDCARD and WILDCARD in self.literal:
            yield self.literal[WILDCARD]
        for length in self._lengths:
            if length <= len(name) and name[:length] in self.prefixed:
                yield self.prefixed[name[:length]]

    def _map_of(self, acl: Acl) -> _ByName:
        return self.literal if acl.pattern == PatternType.LITERAL else self.prefixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether something is allowed, and the rule that decided; no rule means a default."""

    allowed: bool
    rule: Acl | None = None
    default: str = ""
    """Why it is so without a rule."""

    @property
    def reason(self) -> str:
        """The rule, or the default, as text."""
        return self.default if self.rule is None else str(self.rule)


class Access:
    """The rules in force and what they decide. Loop thread only.

    Attributes:
        source_of: the topic whose rules count for a name of a topic: a time window has none itself.
        is_each_noted: whether every decision is to be made, and so noted, where it is asked for.
        before_change: called before the rules change.
        allowed: how many rights there were of those that requests needed; the callers count it.
    """

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        *,
        super_users: Iterable[Principal] = (),
        allow_if_no_acl: bool = False,
    ) -> None:
        """Start with `acls`; `super_users` may do everything."""
        self.source_of: Callable[[str], str] = str
        self.is_each_noted: Callable[[], bool] = bool
        self.before_change: Callable[[], object] = bool
        self.allowed = 0
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: dict[Acl, None] = {}
        self._by_type: dict[int, _Rules] = {}
        self._decided: dict[tuple[Principal, str], Decided] = {}
        self._kept = 0
        self.add(acls)

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self._acls)

    def __iter__(self) -> Iterator[Acl]:
        """The rules, in the order in which they were added."""
        return iter(list(self._acls))

    def __contains__(self, acl: Acl) -> bool:
        """Whether this very rule is in force."""
        return acl in self._acls

    def select(self, chosen: AclFilter) -> list[Acl]:
        """The rules that a filter selects."""
        return [acl for acl in self._acls if chosen.matches(acl)]

    def add(self, acls: Iterable[Acl]) -> None:
        """Put rules in force; those that are already stay as they are."""
        self.before_change()
        for acl in acls:
            if acl not in self._acls:
                self._acls[acl] = None
                self._by_type.setdefault(acl.resource_type, _Rules()).add(acl)
        self.forget()

    def remove(self, acls: Iterable[Acl]) -> None:
        """Take rules out of force."""
        self.before_change()
        for acl in acls:
            if acl in self._acls:
                del self._acls[acl]
                self._by_type[acl.resource_type].remove(acl)
        self.forget()

    def decided(self, principal: Principal, host: str) -> Decided:
        """What was decided about one client, to look into before `allows` is asked.

        A request that keeps it has the same rights from its start to its end: a change of the rules
        begins with another one.
        """
        if self.is_each_noted():
            return {}
        decided = self._decided.get((principal, host))
        if decided is None:
            self._make_room()
            decided = self._decided[principal, host] = {}
        return decided

    def _make_room(self) -> None:
        if self._kept >= DECISIONS_KEPT:
            self.forget()
        self._kept += 1

    def forget(self) -> None:
        """Decide everything again: the rules or what names mean have changed."""
        self._decided = {}
        self._kept = 0

    def allows(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Whether `principal` at `host` may do `operation` on the resource."""
        known = self.decided(principal, host)
        asked = (operation, resource_type, name)
        allowed = known.get(asked)
        if allowed is None:
            allowed = self.decide(principal, host, operation, resource_type, name).allowed
            self._make_room()
            self.decided(principal, host)[asked] = allowed
        return allowed

    def decide(
        self, principal: Principal, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """The decision, with the rule that made it."""
        if principal in self._super_users:
            return Decision(allowed=True, default=f"{principal} is a super user")
        if resource_type == ResourceType.TOPIC:
            name = self.source_of(name)
        rules = self._by_type.get(resource_type)
        address = _address(host)
        allowing: Acl | None = None
        found_any = False
        for by_principal in rules.of(name) if rules else ():
            found_any = True
            for acl in _for_client(by_principal, principal, address):
                if acl.permission == Permission.DENY:
                    if acl.operation in (Operation.ALL, operation):
                        return Decision(allowed=False, rule=acl)
                elif allowing is None and _covers(acl.operation, operation):
                    allowing = acl
        if allowing is not None:
            return Decision(allowed=True, rule=allowing)
        if not found_any:
            return Decision(
                allowed=self._allow_if_no_acl,
                default="no rule matches the resource (allow.everyone.if.no.acl.found = "
                f"{str(self._allow_if_no_acl).lower()})",
            )
        return Decision(allowed=False, default="no rule allows it")

    def reason_for(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        *,
        is_allowed: bool,
    ) -> str:
        """Why it was so decided, in words."""
        decision = self.decide(principal, host, operation, resource_type, name)
        if decision.allowed != is_allowed:  # the request began before the last change of the rules
            return "rules that have changed since"
        return decision.reason

    def allows_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether there is any name of the type on which `operation` is allowed.

        Implied operations do not count. A DENY stands against an ALLOW if it covers the whole of
        its pattern. Source: Kafka `Authorizer.authorizeByResourceType`.
        """
        if principal in self._super_users:
            return True
        rules = self._by_type.get(resource_type)
        if rules is None:
            return self._allow_if_no_acl
        address = _address(host)
        mine = [
            acl
            for by_name in (rules.literal, rules.prefixed)
            for by_principal in by_name.values()
            for acl in _for_client(by_principal, principal, address)
            if acl.operation in (Operation.ALL, operation)
        ]
        denied = [acl for acl in mine if acl.permission == Permission.DENY]
        if any(_is_wildcard(acl) for acl in denied):
            return False
        denied_names = {acl.name for acl in denied if acl.pattern == PatternType.LITERAL}
        denied_prefixes = {acl.name for acl in denied if acl.pattern == PatternType.PREFIXED}
        return self._allow_if_no_acl or any(
            _is_wildcard(acl)
            or not (
                (acl.pattern == PatternType.LITERAL and acl.name in denied_names)
                or any(acl.name[:end] in denied_prefixes for end in range(len(acl.name) + 1))
            )
            for acl in mine
            if acl.permission == Permission.ALLOW
        )

    def bits(self, principal: Principal, host: str, resource_type: int, name: str) -> int:
        """The allowed operations as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS_OF[ResourceType(resource_type)]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _is_wildcard(acl: Acl) -> bool:
    return acl.name == WILDCARD and acl.pattern == PatternType.LITERAL


def _covers(allowed: int, asked: int) -> bool:
    if allowed in (Operation.ALL, asked):
        return True
    return allowed in _IMPLIED_BY.get(Operation(asked), ())


def _for_client(by_principal: _ByPrincipal, principal: Principal, address: str) -> Iterator[Acl]:
    """The rules about `principal` at `address`."""
    for text in (str(principal), ANY_USER) if principal.type == USER_TYPE else (str(principal),):
        for acl, host in by_principal.get(text, _NO_RULES).items():
            if acl.host == WILDCARD or host == address:
                yield acl


@lru_cache(1024)
def _address(text: str) -> str:
    """An address in a form that compares equal however it is written."""
    try:
        return canonical_address(text)
    except ValueError:
        return text


def format_acl(acl: Acl) -> dict[str, Any]:
    """The document of a rule in the metadata journal."""
    return dict(zip(Acl._fields, (int(v) if isinstance(v, int) else v for v in acl), strict=True))


def parse_acl(document: object) -> Acl:
    """The rule of a document.

    Raises:
        ValueError: it is none; a broker that cannot read a rule must not start without it.
    """
    if isinstance(document, dict) and set(document) == set(Acl._fields):
        acl = Acl(**document)
        kinds = (int, str, int, str, str, int, int)
        if all(isinstance(v, kind) for v, kind in zip(acl, kinds, strict=True)):
            complaint = complaint_about(acl)
            if complaint is None:
                return acl
    raise ValueError(f"not an access rule: {document!r}")
