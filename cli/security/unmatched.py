"""Rules that no request can ever match: what ``acl add`` refuses and the doctor reports.

A broker stores such rules, as Kafka does, so they may be there already.
"""

from collections.abc import Iterable

from broker.errors import InvalidTopicName
from broker.principal import USER_TYPE, Principal
from broker.security.acls import OPERATIONS_OF
from broker.topics.registry import check_topic_name
from config.listeners import canonical_address
from protocol.acl import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from protocol.topic_names import CHARACTERS, LENGTH_MAX


def why_it_never_matches(acl: Acl, super_users: Iterable[Principal]) -> str | None:
    """Why no request can ever match a rule, or None."""
    kind, _, name = acl.principal.partition(":")
    if kind != USER_TYPE:
        return f"since principals are of the type {USER_TYPE}"
    if not name:
        return "since no user has an empty name"
    if acl.host != WILDCARD and not is_address(acl.host):
        return "since a host is one address or *, neither a name nor a network"
    resource = ResourceType(acl.resource_type)
    if resource is ResourceType.TOPIC and not _may_name_a_topic(acl):
        return f"since names of topics have at most {LENGTH_MAX} of {CHARACTERS}"
    if acl.operation not in (Operation.ALL, *OPERATIONS_OF[resource]):
        return f"since {Operation(acl.operation).name} is never done to a {resource.name.lower()}"
    if acl.permission == Permission.DENY and acl.principal in map(str, super_users):
        return "since super users pass every rule"
    return None


def is_address(text: str) -> bool:
    """Whether a client can have this address."""
    try:
        canonical_address(text)
    except ValueError:
        return False
    return True


def _may_name_a_topic(acl: Acl) -> bool:
    name = acl.name
    if acl.pattern == PatternType.LITERAL and name == WILDCARD:
        return True
    if acl.pattern == PatternType.PREFIXED and name in (".", ".."):
        return True
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
