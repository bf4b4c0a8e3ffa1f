"""What ``tidelog serve`` prints once clients are accepted: where they connect, and how.

An address is the one that clients get, by ``advertised.listeners`` or by the name of the
machine, since that is the one that has to be reachable for them. ``0.0.0.0`` is none.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from broker.net.addresses import ReadyInfo
    from config import BrokerConfig, Listener

NEXT_STEPS = """\
Try, in another terminal:
  seq 3 | tidelog produce hello{bootstrap}
  tidelog consume hello --from earliest{bootstrap}
  tidelog offsets hello --at -5m{bootstrap}
Stop with Ctrl-C."""

_DEFAULT = ("127.0.0.1:9092", "localhost:9092")


def show(
    ready: "ReadyInfo", config: "BrokerConfig", commands: Iterable[str], *, as_json: bool
) -> None:
    """The ready line; then how to connect, or hints for the next step.

    `commands` connect to a broker with TLS or users; there are none for another one.
    """
    if as_json:
        facts: dict[str, object] = {"event": "ready", **_facts(ready)}
        if ready.workers:
            facts["workers"] = [_facts(worker) for worker in ready.workers]
        click.echo(json.dumps(facts))
    else:
        for line in lines(ready, config):
            click.echo(line)
        if commands := tuple(commands):
            click.echo("\n  ".join(("Clients connect with:", *commands)))
        elif sys.stdout.isatty():
            click.echo(NEXT_STEPS.format(bootstrap=bootstrap(ready, config)))
    sys.stdout.flush()


def lines(ready: "ReadyInfo", config: "BrokerConfig") -> Iterator[str]:
    """The ready line, and one for each further listener and worker."""
    first, *others = config.listeners
    address, place = _reached(first, ready)
    facts = ", ".join((*place, f"data in {ready.data_dir}"))
    yield f"Tidelog is ready at {address} ({facts})"
    for listener in others:
        address, place = _reached(listener, ready)
        yield f"  {listener.name}: {address}{_in_brackets(place)}"
    for number, worker in enumerate(ready.workers, start=2):
        address, place = _reached(first, worker)
        metrics = f", metrics on port {worker.metrics_port}" if worker.metrics_port else ""
        yield f"  worker {number}: {address}{_in_brackets(place)}{metrics}"


def bootstrap(ready: "ReadyInfo", config: "BrokerConfig") -> str:
    """The option with which a command on this machine finds the broker; "" if it needs none."""
    from broker.net.addresses import ANY_HOST  # imported by now; the help needs no broker

    listener = _bound(config.listeners[0], ready)
    if listener.host in ANY_HOST:
        listener = replace(listener, host="localhost")
    return "" if listener.address in _DEFAULT else f" -b {listener.address}"


def _reached(listener: "Listener", ready: "ReadyInfo") -> tuple[str, tuple[str, ...]]:
    """Where clients of a listener connect, and where it listens if that is another address."""
    bound = _bound(listener, ready)
    address = ready.addresses[listener.name]
    if address == bound.address:
        return address, ()
    return address, (f"listens on {replace(bound, host=bound.host or '*').address}",)


def _bound(listener: "Listener", ready: "ReadyInfo") -> "Listener":
    return replace(listener, port=ready.ports[listener.name])


def _in_brackets(words: tuple[str, ...]) -> str:
    return f" ({', '.join(words)})" if words else ""


def _facts(ready: "ReadyInfo") -> dict[str, object]:
    return {
        "host": ready.host,
        "port": ready.port,
        "metrics_port": ready.metrics_port,
        "node_id": ready.node_id,
        "cluster_id": ready.cluster_id,
        "data_dir": ready.data_dir,
        "addresses": dict(ready.addresses),
    }
