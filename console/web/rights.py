"""The questions that change users, access rules and quotas; audited like `console.web.changing`."""

from enum import IntEnum
from typing import Any, Final, TypeVar

from starlette.requests import Request

from client.errors import InvalidUse
from console.web import questions as ask
from console.web.changing import post
from protocol.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

_Kind = TypeVar("_Kind", bound=IntEnum)

_OF_FILTERS: Final = ("ANY", "UNKNOWN", "MATCH")
"""Names that a filter knows and a rule does not."""
_ENTITIES: Final = ("user", "client-id", "ip")


async def _add_user(request: Request) -> tuple[str, dict[str, Any]]:
    body = await ask.body_of(request, "name", "password")
    name, password = _text(body, "name"), _text(body, "password")
    mechanism = _text(body, "mechanism") if "mechanism" in body else "SCRAM-SHA-512"
    admin = ask.hub_of(request).admin
    if mechanism in await admin.mechanisms_of(name):
        raise InvalidUse(
            f"{name} has a password for {mechanism} already, and it stays; "
            "Password… in the user's row changes it"
        )
    await admin.set_user(name, password, mechanism=mechanism)
    return f"user {name} {mechanism}", {"name": name}


async def _change_password(request: Request) -> tuple[str, dict[str, Any]]:
    body = await ask.body_of(request, "name", "password")
    name, password = _text(body, "name"), _text(body, "password")
    _ask_twice(request, body, name, f"{name} logs this console in, by the password as it is now")
    changed = await ask.hub_of(request).admin.change_password(name, password)
    return f"user {name} {', '.join(changed)}", {"name": name, "mechanisms": changed}


async def _remove_user(request: Request) -> tuple[str, dict[str, Any]]:
    body = await ask.body_of(request, "name")
    name = _text(body, "name")
    _ask_twice(request, body, name, f"{name} is the user of this console itself")
    await ask.hub_of(request).admin.remove_user(name)
    return f"user {name}", {"name": name}


async def _add_rule(request: Request) -> tuple[str, dict[str, Any]]:
    rule = _rule_of(body := await ask.body_of(request))
    if rule.permission == Permission.DENY:
        own = f"the rule denies {rule.principal}, the user of this console itself"
        _ask_twice(request, body, rule.principal.removeprefix("User:"), own)
    await ask.hub_of(request).admin.add_rules([rule])
    return str(rule), {"rule": str(rule)}


async def _remove_rule(request: Request) -> tuple[str, dict[str, Any]]:
    rule = _rule_of(body := await ask.body_of(request))
    if rule.permission == Permission.ALLOW:
        own = f"the rule gives {rule.principal}, the user of this console itself, its access"
        _ask_twice(request, body, rule.principal.removeprefix("User:"), own)
    removed = await ask.hub_of(request).admin.remove_rules(AclFilter(*rule))
    if not removed:
        raise InvalidUse(f"there is no rule any more: {rule}")
    return str(rule), {"removed": len(removed)}


async def _set_quota(request: Request) -> tuple[str, dict[str, Any]]:
    body = await ask.body_of(request, "entity", "limits")
    entity, limits = body["entity"], body["limits"]
    if not isinstance(entity, dict) or not entity or not set(entity) <= set(_ENTITIES):
        raise InvalidUse(f"entity has names for one or two of {', '.join(_ENTITIES)}")
    if not all(isinstance(name, str | None) for name in entity.values()):
        raise InvalidUse("a name of the entity is a text, or null for its default")
    if not isinstance(limits, dict) or not limits:
        raise InvalidUse("limits has numbers by name, null removes one")
    for key, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise InvalidUse(f"{key[:60]}={str(value)[:20]} is no number; null removes the limit")
    await ask.hub_of(request).admin.alter_quotas(entity, limits)
    return f"quota {entity} {limits}", {"entity": entity}


def _ask_twice(request: Request, body: dict[str, Any], name: str, sentence: str) -> None:
    """Refuse what may lock this console out, until the body confirms it."""
    own = ask.hub_of(request).options.security.username
    if own is not None and name in (own, "*") and body.get("confirm") is not True:
        raise InvalidUse(f"{sentence}; without its rights these pages end. Confirm to do it")


def _rule_of(body: dict[str, Any]) -> Acl:
    return Acl(
        resource_type=_kind(ResourceType, body, "resource"),
        name=_text(body, "name"),
        pattern=_kind(PatternType, body, "pattern"),
        principal=_text(body, "principal"),
        host=_text(body, "host"),
        operation=_kind(Operation, body, "operation"),
        permission=_kind(Permission, body, "permission"),
    )


def _kind(kinds: type[_Kind], body: dict[str, Any], field: str) -> _Kind:
    """The member of an enumeration that a field names.

    Raises:
        InvalidUse: there is none; the message lists them.
    """
    names = [one.name.lower() for one in kinds if one.name not in _OF_FILTERS]
    given = body.get(field)
    if given not in names:
        raise InvalidUse(f"{field}={str(given)[:40]} does not exist: choose {', '.join(names)}")
    return kinds[str(given).upper()]


def _text(body: dict[str, Any], field: str) -> str:
    given = body.get(field)
    if not isinstance(given, str) or not given:
        raise InvalidUse(f"{field} is a text that is not empty")
    return given


ROUTES: Final = [
    post("/security/users", "user-add", _add_user),
    post("/security/users/password", "user-password", _change_password),
    post("/security/users/remove", "user-remove", _remove_user),
    post("/security/rules", "rule-add", _add_rule),
    post("/security/rules/remove", "rule-remove", _remove_rule),
    post("/security/quotas", "quota-set", _set_quota),
]
