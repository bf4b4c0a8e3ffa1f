"""What the log says of a start, at INFO: version, settings, data directory, addresses.

`broker.server` logs the lines, and makes them only where INFO is on: a start by default loads none
of this.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.operator.machine_figures import build_facts
from config import shown_value
from values.words import format_count

if TYPE_CHECKING:
    from broker.net.addresses import ReadyInfo
    from config import BrokerConfig
    from storage.directory.data_dir import DataDir
    from storage.log.log import Log


def beginning(config: "BrokerConfig") -> list[str]:
    """Before anything is opened: what starts, and the settings that were given."""
    facts = build_facts()
    given = ", ".join(
        f"{name}={shown_value(name, setting.shown)} ({setting.origin})"
        for name, setting in sorted(config.settings.items())
    )
    return [
        f"Tidelog {facts['version']} starts: Python {facts['python']}, record loops in "
        f"{'C' if facts['loops'] == 'compiled' else 'plain Python'}, process {os.getpid()}",
        f"settings: {given or 'none is given, all have their defaults'}",
    ]


def _recovered(logs: Sequence["Log"]) -> str:
    """What the start did since the directory was not stopped cleanly; a new one was not, either."""
    reports = [log.recovery_report for log in logs]
    checked = sum(it.scanned_bytes for it in reports)
    cut = sum(it.truncated_bytes for it in reports)
    rebuilt = sum(len(it.rebuilt_indexes) for it in reports)
    offline = sum(log.quarantine is not None for log in logs)
    if not (checked or cut or rebuilt or offline):
        return ", new or empty"
    return (
        f", not stopped cleanly: {checked} B of logs checked, {cut} B cut, "
        f"{format_count(rebuilt, 'index', 'indexes')} rebuilt, "
        f"{format_count(offline, 'partition')} offline"
    )


def started(
    config: "BrokerConfig", data_dir: "DataDir", logs: Sequence["Log"], ready: "ReadyInfo"
) -> list[str]:
    """What was found in the data directory, what a start after a crash did, who may connect."""
    found = (
        f"data directory {data_dir.path}: {format_count(len(data_dir.topics), 'topic')}, "
        f"{format_count(len(logs), 'partition')}"
    )
    if data_dir.stopped_cleanly:
        found += ", stopped cleanly"
    else:
        found += _recovered(logs)
    listening = [
        f"{it.name} ({it.protocol}) at {it.host or '*'}:{ready.ports[it.name]}"
        for it in config.listeners
    ]
    if ready.metrics_port is not None and config.metrics_listener is not None:
        listening.append(f"metrics at {config.metrics_listener.host or '*'}:{ready.metrics_port}")
    return [
        found,
        f"node {ready.node_id} of cluster {ready.cluster_id} listens: {', '.join(listening)}",
    ]
