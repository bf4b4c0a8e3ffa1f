"""The configuration of one worker of several, derived from the broker's.

Worker 1 has the broker's own. Worker K has the next node ids and ports: those of the broker plus
K - 1. Port 0 stays 0, so each worker picks a free one.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType

from config.errors import Problem
from config.model import BrokerConfig, Listener, Setting
from config.values import INT32_MAX

PORT_MAX = 65_535
_ANY_HOST = ("", "0.0.0.0", "::")


def worker_config(
    config: BrokerConfig, worker: int, *, data_dir: str, node_id: int, cluster_id: str
) -> BrokerConfig:
    """The configuration of a worker above 1.

    The texts of the settings change with the values, because a change at run time derives the
    values from the texts again.
    """
    step = worker - 1
    listeners = tuple(_moved(listener, step) for listener in config.listeners)
    advertised = tuple(_moved(listener, step) for listener in config.advertised_listeners)
    metrics = config.metrics_listener
    texts = {
        "node.id": str(node_id),
        "cluster.id": cluster_id,
        "log.dirs": data_dir,
        "listeners": ",".join(map(str, listeners)),
    }
    if advertised:
        texts["advertised.listeners"] = ",".join(map(str, advertised))
    if metrics is not None:
        metrics = _moved(metrics, step)
        if config.is_set("metrics.listener"):
            texts["metrics.listener"] = metrics.address
    settings = {name: Setting(text=text, origin="workers") for name, text in texts.items()}
    return replace(
        config,
        node_id=node_id,
        cluster_id=cluster_id,
        data_dir=data_dir,
        listeners=listeners,
        advertised_listeners=advertised,
        metrics_listener=metrics,
        settings=MappingProxyType({**config.settings, **settings}),
        notices=(),
    )


def with_ports(config: BrokerConfig, ports: dict[str, int]) -> BrokerConfig:
    """`config` with other ports, by listener name: those of the process before this one."""
    listeners = tuple(_at(listener, ports) for listener in config.listeners)
    metrics = config.metrics_listener
    return replace(
        config,
        listeners=listeners,
        metrics_listener=None if metrics is None else _at(metrics, ports),
    )


def worker_problems(config: BrokerConfig) -> list[Problem]:
    """What does not fit the number of workers: ids or ports that are too few or meet."""
    if config.workers == 1:
        return []
    return list(_problems(config))


def _problems(config: BrokerConfig) -> Iterator[Problem]:
    last = config.workers - 1
    workers = partial(Problem, "workers", str(config.workers))
    if config.node_id + last > INT32_MAX:
        yield Problem("node.id", str(config.node_id), "has no ids after it", "lower it")
    if config.remote_storage_url:
        yield workers(
            "remote.storage.url is set, and only one worker can keep segments in an object store",
            "set workers=1, or leave remote.storage.url out",
        )
    served = list(config.listeners)
    if config.metrics_listener is not None and config.is_set("metrics.listener"):
        served.append(config.metrics_listener)
    for listener in served:
        if listener.port + last > PORT_MAX:
            yield workers(f"{listener} has too few ports", "use lower ports or fewer")
    for one, other in combinations(served, 2):
        distance = abs(one.port - other.port)
        if one.port and other.port and 0 < distance <= last and _may_meet(one, other):
            yield workers(
                f"each worker takes the next port, and {one} and {other} are too close",
                f"choose ports at least {config.workers} apart",
            )


def _at(listener: Listener, ports: dict[str, int]) -> Listener:
    return replace(listener, port=ports.get(listener.name, listener.port))


def _moved(listener: Listener, step: int) -> Listener:
    return replace(listener, port=listener.port + step) if listener.port else listener


def _may_meet(one: Listener, other: Listener) -> bool:
    return one.host == other.host or one.host in _ANY_HOST or other.host in _ANY_HOST
