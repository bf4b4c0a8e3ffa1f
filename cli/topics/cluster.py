"""``tidelog cluster``: the brokers of a cluster, their settings, and changing these."""

from typing import Any

import click

from cli.broker_options import BrokerOptions, ask_admin, broker_options
from cli.changes import change_options, change_settings, changes_of
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.options import WholeNumber, json_option
from cli.output import format_size, print_json, print_table
from client.admin import Admin
from client.descriptions import ConfigEntry
from client.errors import UnsupportedByBroker


@click.group()
def command() -> None:
    """Show brokers and their settings, and change these."""


@command.command()
@broker_options
@json_option
def describe(*, broker: BrokerOptions, as_json: bool) -> None:
    """Show the cluster's id, its brokers, and how much they keep."""
    facts = ask_admin(broker, _describe)
    if as_json:
        print_json(facts)
        return
    size = "-" if facts["size_bytes"] is None else format_size(facts["size_bytes"])
    click.echo(
        f"cluster {facts['cluster_id'] or 'without an id'}: {facts['topics']} topics, "
        f"{facts['partitions']} partitions, {facts['internal_topics']} internal topics, {size}"
    )
    print_table(
        ">NODE,ADDRESS,RACK,CONTROLLER,>LEADS",
        [
            (
                str(row["node_id"]),
                row["address"],
                row["rack"],
                row["is_controller"],
                row["leads"],
            )
            for row in facts["brokers"]
        ],
    )


async def _describe(admin: Admin) -> dict[str, Any]:
    info = await admin.cluster()
    topics = await admin.topics(internal=True)
    leaders = [part.leader for topic in topics.values() for part in topic.partitions.values()]
    own = [topic for topic in topics.values() if not topic.is_internal]
    try:
        size_bytes = sum((await admin.sizes()).values())
    except UnsupportedByBroker:
        size_bytes = None
    return {
        "cluster_id": info.cluster_id,
        "topics": len(own),
        "partitions": sum(len(topic.partitions) for topic in own),
        "internal_topics": len(topics) - len(own),
        "size_bytes": size_bytes,
        "brokers": [
            {
                "node_id": one.node_id,
                "address": one.address,
                "rack": one.rack,
                "is_controller": one.node_id == info.controller_id,
                "leads": leaders.count(one.node_id),
            }
            for one in await admin.brokers()
        ],
    }


_node_option = click.option(
    "--node", type=WholeNumber(min=0), help="This broker; default the controller."
)


@command.command(short_help="Show the settings of a broker.")
@click.argument("word", required=False)
@_node_option
@click.option("--all", "with_defaults", is_flag=True, help="Also those that have their defaults.")
@broker_options
@json_option
def configs(
    *,
    word: str | None,
    node: int | None,
    with_defaults: bool,
    broker: BrokerOptions,
    as_json: bool,
) -> None:
    """Show the settings of a broker that differ from their defaults.

    With WORD, only those with it in their names.
    """
    entries = ask_admin(broker, lambda admin: _configs(admin, node))
    shown = [
        entry
        for name, entry in sorted(entries.items())
        if (with_defaults or not entry.source.is_default) and (word is None or word in name)
    ]
    if not shown and word is not None:
        hint = "" if with_defaults else "; --all also looks at those that have their defaults"
        raise CommandFailed(f"no setting has '{word}' in its name{hint}", ExitCode.NOT_FOUND)
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name.lower(),
                    "is_dynamic": not entry.is_read_only,
                    "is_sensitive": entry.is_sensitive,
                }
                for entry in shown
            ]
        )
        return
    print_table(
        "SETTING,VALUE,FROM",
        [
            (
                entry.name,
                "(secret)" if entry.is_sensitive else entry.value,
                entry.source.name.lower().replace("_", " "),
            )
            for entry in shown
        ],
    )


@command.command()
@_node_option
@change_options
@broker_options
def alter(
    *,
    node: int | None,
    pairs: tuple[str, ...],
    names: tuple[str, ...],
    broker: BrokerOptions,
) -> None:
    """Change settings of a broker while it runs.

    All changes are made, or none if one is refused.

    Example: tidelog cluster alter --set log.retention.ms=86400000
    """
    changes = changes_of(pairs, names)

    async def work(admin: Admin) -> int:
        number = await _node(admin, node)
        await change_settings(
            lambda: admin.broker_configs(number),
            lambda: admin.alter_broker_configs(number, changes),
            names,
            changes,
            "brokers",
            "tidelog config list",
        )
        return number

    click.echo(f"Changed broker {ask_admin(broker, work)}.")


async def _configs(admin: Admin, node: int | None) -> dict[str, ConfigEntry]:
    return await admin.broker_configs(await _node(admin, node))


async def _node(admin: Admin, node: int | None) -> int:
    """The number of the broker that is meant.

    Raises:
        CommandFailed: there is no such broker.
    """
    if node is None:
        return (await admin.cluster()).controller_id
    known = [one.node_id for one in await admin.brokers()]
    if node not in known:
        raise CommandFailed(
            f"there is no broker {node}: this cluster has {', '.join(map(str, known))}",
            ExitCode.NOT_FOUND,
        )
    return node
