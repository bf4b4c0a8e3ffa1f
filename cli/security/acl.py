"""``tidelog acl``: what users may do.

Rights are given by purpose (``--produce``, ``--consume``, ``--admin``) or one by one (``--op`` with
a resource). A trailing ``*`` in a name means every name with this beginning.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import click

from cli.broker_options import BrokerOptions, ask_admin, login_options
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import json_option
from cli.output import note, print_json, print_table, say
from client.admin import Admin
from client.errors import BrokerRefused
from protocol.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from protocol.time_windows import topic_of

if TYPE_CHECKING:
    from broker.security.acls import Access

_OPERATIONS = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if operation >= Operation.ALL
}
_SUPER_USERS = "super.users"
_ALLOW_IF_NO_ACL = "allow.everyone.if.no.acl.found"
_WINDOWS = "time.windows.enable"
_REFERENCE = "${"
"""In a setting that its provider keeps: a broker shows the reference, not what it stands for."""

_TRANSACTIONAL = ResourceType.TRANSACTIONAL_ID
_PRODUCE = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_CONSUME = (Operation.READ, Operation.DESCRIBE)
_TRANSACT = (Operation.WRITE, Operation.DESCRIBE)
_EVERYTHING = (
    (ResourceType.TOPIC, "*", Operation.ALL),
    (ResourceType.GROUP, "*", Operation.ALL),
    (_TRANSACTIONAL, "*", Operation.ALL),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL),
)


@click.group()
def command() -> None:
    """Give, list, take and explain rights."""


def _resources(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--user", metavar="NAME", required=True, help="Whose rights."),
            click.option("--host", default="*", show_default=True, help="An address, or *."),
            click.option("--produce", metavar="TOPIC", multiple=True, help="May write to TOPIC."),
            click.option("--consume", metavar="TOPIC", multiple=True, help="May read TOPIC."),
            click.option("--group", metavar="GROUP", multiple=True, help="A group, to consume in."),
            click.option("--topic", metavar="TOPIC", multiple=True, help="A topic, for --op."),
            click.option(
                "--transactional-id",
                "transactional_id",
                metavar="ID",
                multiple=True,
                help="To produce in transactions, or for --op.",
            ),
            click.option("--cluster", is_flag=True, help="The cluster, for --op."),
            click.option("--admin", is_flag=True, help="May do everything."),
            click.option(
                "--op",
                "operations",
                metavar="OPERATION",
                multiple=True,
                type=click.Choice(list(_OPERATIONS), case_sensitive=False),
                help=f"One of {', '.join(_OPERATIONS)}.",
            ),
            click.option("--deny", is_flag=True, help="Deny instead of allowing."),
        )
    ):
        function = option(function)
    return function


def _rules(
    *,
    user: str,
    host: str,
    produce: tuple[str, ...],
    consume: tuple[str, ...],
    group: tuple[str, ...],
    topic: tuple[str, ...],
    transactional_id: tuple[str, ...],
    cluster: bool,
    admin: bool,
    operations: tuple[str, ...],
    deny: bool,
) -> list[Acl]:
    """The rules that the options describe.

    Raises:
        click.UsageError: options that say nothing, or that need each other.
    """
    if consume and not group:
        raise click.UsageError("--consume needs --group: name the groups, or write --group '*'")
    chosen = [_OPERATIONS[name] for name in operations]
    asked = [
        *_each(ResourceType.TOPIC, produce, _PRODUCE),
        *_each(ResourceType.TOPIC, consume, _CONSUME),
        *_each(ResourceType.GROUP, group if consume else (), [Operation.READ]),
        *_each(_TRANSACTIONAL, transactional_id if produce else (), _TRANSACT),
        *(_EVERYTHING if admin else ()),
    ]
    named = [
        *_each(ResourceType.TOPIC, topic, chosen),
        *_each(ResourceType.GROUP, () if consume else group, chosen),
        *_each(_TRANSACTIONAL, () if produce else transactional_id, chosen),
        *_each(ResourceType.CLUSTER, [CLUSTER_NAME] if cluster else (), chosen),
    ]
    has_resource = bool(topic or cluster or (group and not consume))
    if bool(chosen) != (has_resource or bool(transactional_id and not produce)):
        raise click.UsageError(
            "--op needs a resource, and a resource --op: for instance --op read --topic flights"
        )
    asked += named
    if not asked:
        raise click.UsageError("say what may be done: --produce, --consume, --admin or --op")
    permission = Permission.DENY if deny else Permission.ALLOW
    return [
        Acl(
            resource_type=kind,
            name=_literal(name),
            pattern=_pattern(name),
            principal=_principal(user),
            host=host,
            operation=operation,
            permission=permission,
        )
        for kind, name, operation in asked
    ]


def _each(
    kind: ResourceType, names: Iterable[str], operations: Iterable[Operation]
) -> list[tuple[ResourceType, str, Operation]]:
    operations = list(operations)
    return [(kind, name, operation) for name in names for operation in operations]


def _principal(user: str) -> str:
    return user if user.startswith("User:") else f"User:{user}"


def _pattern(name: str) -> PatternType:
    is_prefix = name.endswith("*") and name != "*"
    return PatternType.PREFIXED if is_prefix else PatternType.LITERAL


def _literal(name: str) -> str:
    return name.removesuffix("*") if _pattern(name) is PatternType.PREFIXED else name


@command.command()
@_resources
@click.option("--dry-run", is_flag=True, help="Print the rules and change nothing.")
@login_options
def add(*, dry_run: bool, broker: BrokerOptions, **options: Any) -> None:
    """Give rights."""
    rules = _rules(**options)
    _check_that_they_match(rules)
    if not dry_run:
        ask_admin(broker, lambda admin: admin.add_rules(rules))
    for rule in rules:
        say(_phrase(rule))
    if dry_run:
        note("nothing is changed (--dry-run)")


def _check_that_they_match(rules: Sequence[Acl]) -> None:
    """Refuse rules that no request can ever match.

    Raises:
        click.UsageError: there is one.
    """
    from cli.security.unmatched import why_it_never_matches

    for rule in rules:
        reason = why_it_never_matches(rule, ())
        if reason is not None:
            raise click.UsageError(
                f"this would never match, {reason}: {_phrase(rule)} (nothing is changed)"
            )
    user = rules[0].principal.partition(":")[2]
    if ":" in user:
        note(f"this is for a user whose name is {user!r}: there are no groups of users")
    for rule in rules:
        if rule.resource_type == ResourceType.TOPIC and topic_of(rule.name) != rule.name:
            note(
                f"while {_WINDOWS} is true, {rule.name} is a window of {topic_of(rule.name)}, "
                "and the rules of that topic count for it, not this one"
            )


@command.command(short_help="Take rights.")
@_resources
@click.option("--all", "everything", is_flag=True, help="All rules that name this user.")
@login_options
def remove(*, everything: bool, broker: BrokerOptions, **options: Any) -> None:
    """Take rights; only the very rules that the same options would give, or all of a user."""
    if everything:
        if any(value for name, value in options.items() if name not in ("user", "host")):
            raise click.UsageError(
                "--all takes every rule of the user: leave the other options out"
            )
        filters = [AclFilter(principal=_principal(options["user"]))]
    else:
        filters = [AclFilter(*rule) for rule in _rules(**options)]

    async def take(admin: Admin) -> list[Acl]:
        return [acl for one in filters for acl in await admin.remove_rules(one)]

    removed = ask_admin(broker, take)
    for rule in removed:
        say(_phrase(rule))
    if not removed:
        raise CommandFailed("there is no such rule; see tidelog acl list", ExitCode.NOT_FOUND)


@command.command("list")
@click.option("--user", metavar="NAME", help="Only this user's, and those of every user.")
@click.option("--topic", metavar="TOPIC", help="Only rules that match this topic.")
@click.option("--group", metavar="GROUP", help="Only rules that match this group.")
@login_options
@json_option
def list_rules(
    *,
    user: str | None,
    topic: str | None,
    group: str | None,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """List rights."""
    if topic is not None and group is not None:
        raise click.UsageError("--topic and --group: give one of them")
    chosen = AclFilter()
    if topic is not None or group is not None:
        chosen = AclFilter(
            resource_type=ResourceType.TOPIC if topic is not None else ResourceType.GROUP,
            name=topic if topic is not None else group,
            pattern=PatternType.MATCH,
        )
    rules = ask_admin(broker, lambda admin: admin.rules(chosen))
    if user is not None:
        rules = [rule for rule in rules if rule.principal in (_principal(user), "User:*")]
    if as_json:
        print_json([_document(rule) for rule in rules])
    elif rules:
        print_table(
            "PRINCIPAL,HOST,PERMISSION,OPERATION,RESOURCE,PATTERN,NAME",
            [tuple(str(value) for value in _document(rule).values()) for rule in rules],
        )
    else:
        note("there are no such rules; give rights: tidelog acl add --user NAME --produce TOPIC")


def _phrase(rule: Acl) -> str:
    kind = _name_of(Permission, rule.permission)
    resource = _name_of(ResourceType, rule.resource_type).lower().replace("_", "-")
    star = "*" if rule.pattern == PatternType.PREFIXED else ""
    host = "" if rule.host == "*" else f" from {rule.host}"
    operation = _name_of(Operation, rule.operation)
    return f"{kind} {rule.principal}{host} to {operation} {resource} {rule.name}{star}"


def _name_of(kind: type[IntEnum], number: int) -> str:
    """The name of a code, or the number itself if a newer broker has more codes."""
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def _document(rule: Acl) -> dict[str, str]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "permission": Permission(rule.permission).name,
        "operation": Operation(rule.operation).name,
        "resource": ResourceType(rule.resource_type).name,
        "pattern": PatternType(rule.pattern).name,
        "name": rule.name,
    }


@command.command("test", short_help="Explain a decision.")
@click.option("--user", metavar="NAME", required=True, help="Who would do it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="From this address.")
@click.option(
    "--op",
    "operation",
    type=click.Choice(list(_OPERATIONS), case_sensitive=False),
    required=True,
    help="What the user wants to do.",
)
@click.option("--topic", metavar="TOPIC", help="On this topic.")
@click.option("--group", metavar="GROUP", help="On this group.")
@click.option("--transactional-id", "transactional_id", metavar="ID", help="On this id.")
@click.option("--cluster", is_flag=True, help="On the cluster.")
@login_options
@json_option
def test(
    *,
    user: str,
    host: str,
    operation: str,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    cluster: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> int:
    """Explain a decision: the rule that makes it, or the setting of the broker."""
    from broker.principal import parse_principal
    from cli.security.unmatched import is_address

    resources = [
        (kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (_TRANSACTIONAL, transactional_id),
            (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(resources) != 1:
        raise click.UsageError("name one resource: --topic, --group, --transactional-id, --cluster")
    ((kind, name),) = resources
    try:
        principal = parse_principal(_principal(user))
    except ValueError as error:
        raise click.UsageError(f"--user {user!r}: {error}") from None
    if not is_address(host):
        raise click.UsageError(
            f"--host {host!r} is no address of a client; write one, for example 10.0.0.1"
        )
    access, is_default_known = ask_admin(broker, lambda admin: _access(admin, topic))
    decision = access.decide(principal, host, _OPERATIONS[operation], kind, name)
    reason = decision.reason
    if _ALLOW_IF_NO_ACL in reason and not is_default_known:
        reason = f"no rule matches the resource, and {_ALLOW_IF_NO_ACL} is not known here"
    if as_json:
        print_json({"allowed": decision.allowed, "reason": reason})
    else:
        say(f"{'allowed' if decision.allowed else 'denied'}: {reason}")
    return ExitCode.OK if decision.allowed else ExitCode.FAILED


async def _access(admin: Admin, topic: str | None) -> "tuple[Access, bool]":
    """The rules in force, and whether it is known what the broker does where no rule matches.

    `topic` is the one that is asked about, which may be a time window.
    """
    from broker.principal import parse_principals
    from broker.security.acls import Access

    settings: dict[str, str | None] = {}
    rules = await admin.rules()
    try:
        entries = await admin.broker_configs((await admin.cluster()).controller_id)
        settings = {name: entry.value for name, entry in entries.items()}
    except BrokerRefused as error:
        note(f"the broker does not show its settings: {error}")
    super_users = settings.get(_SUPER_USERS)
    if super_users is None or _REFERENCE in super_users:
        note(f"{_SUPER_USERS} is not known here: a super user may do everything")
    named = [one for one in (super_users or "").split(";") if _REFERENCE not in one]
    default = (settings.get(_ALLOW_IF_NO_ACL) or "").lower()
    access = Access(
        rules,
        super_users=parse_principals(";".join(named)),
        allow_if_no_acl=default == "true",
    )
    if topic is not None and topic_of(topic) != topic and await _is_window(admin, topic, settings):
        access.source_of = topic_of
    return access, default in ("true", "false")


async def _is_window(admin: Admin, topic: str, settings: Mapping[str, str | None]) -> bool:
    """Whether the broker takes a name that has the form of a window for one."""
    enabled = (settings.get(_WINDOWS) or "").lower()
    if enabled not in ("true", "false"):
        note(f"{_WINDOWS} is not known here: {topic} is taken for a window of {topic_of(topic)}")
    return enabled != "false" and topic not in await admin.topics()
