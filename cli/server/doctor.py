"""``tidelog doctor``: checks of this machine before a broker runs on it.

Each check is a function that examines one point and returns a `Finding`: good, a warning or an
obstacle, with its cure; `cli.server.checkup` has the checks of security. Checks change nothing,
except that one writes, syncs and removes a file of a few kilobytes in the data directory to time a
sync.
"""

import errno
import fcntl
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from cli.exit_codes import ExitCode
from cli.options import json_option
from cli.output import format_size, print_json, print_table
from cli.server.checkup import Finding, Verdict, bad, examine_security, good, warn
from cli.server.secure import SECURE, settings_of
from cli.server.settings import command_line_settings, load_settings, settings_given
from config import BrokerConfig, Listener, worker_config
from protocol.patterns import NO_RE2
from storage.directory.claim import LOCK_FILE

SYNC_ROUNDS = 20
SYNC_SLOW_MS = 10.0
DISK_FREE_MIN_BYTES = 1 << 30
OPEN_FILES_MIN = 4096
CLOCK_FLOOR_MS = 1_577_836_800_000  # 2020-01-01: earlier than that, a clock was never set


@click.command()
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--listen", metavar="HOST:PORT", help="As for serve.")
@click.option("--config", "config_file", metavar="FILE", help="As for serve.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="As for serve.")
@click.option("--secure", is_flag=True, help="As for serve, of a broker that was started once.")
@json_option
def command(
    *,
    data_dir: str | None,
    listen: str | None,
    config_file: str | None,
    pairs: tuple[str, ...],
    secure: bool,
    as_json: bool,
) -> int:
    """Say what on this machine would trouble a broker with these settings."""
    protocol = SECURE if secure else "PLAINTEXT"
    settings = command_line_settings(data_dir, listen, pairs, protocol)
    if secure:
        settings |= settings_of(SECURE, settings_given(config_file, settings))
    config = load_settings(config_file, settings)
    findings = list(examine(config))
    is_bad = any(finding.verdict is Verdict.BAD for finding in findings)
    if as_json:
        print_json({"good": not is_bad, "findings": [asdict(finding) for finding in findings]})
    else:
        rows = [
            (finding.check, finding.verdict.value, finding.seen, finding.cure)
            for finding in findings
        ]
        print_table("CHECK,VERDICT,SEEN,WHAT TO DO", rows)
    return ExitCode.FAILED if is_bad else ExitCode.OK


def examine(config: BrokerConfig) -> Iterator[Finding]:
    """Every check, in the order in which a start would meet the trouble."""
    checks: tuple[Callable[[BrokerConfig], Iterator[Finding]], ...] = (
        _interpreter,
        _speedups,
        _open_files,
        _ports,
        _directory,
        _clock,
        examine_security,
    )
    for check in checks:
        yield from check(config)


def _interpreter(_: BrokerConfig) -> Iterator[Finding]:
    version = platform.python_version()
    if sys.flags.optimize:
        yield bad(
            "python",
            f"{version} with -O, which strips the checks that protect the log",
            "run it without -O and without PYTHONOPTIMIZE",
        )
    else:
        yield good("python", version)


def _speedups(_: BrokerConfig) -> Iterator[Finding]:
    from cli.server.loops import SLOWER, how_to_compile, missing_loops
    from protocol.records import checksums

    if not (missing := missing_loops()):
        yield good("record loops", "compiled")
    else:
        yield warn(
            "record loops",
            f"{len(missing)} modules run as plain Python: {SLOWER}",
            how_to_compile(),
        )
    if checksums.HARDWARE_CRC32C:
        yield good("CRC-32C", "in hardware")
    else:
        yield warn("CRC-32C", "in plain Python", "install the package crc32c")
    if find_spec("re2") is None:
        yield warn("patterns of clients", "refused", NO_RE2)


def _open_files(_: BrokerConfig) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = f"{soft:,} now, {hard:,} at most (the broker raises it to that)"
    if hard < OPEN_FILES_MIN:
        cure = f"raise the hard limit to {OPEN_FILES_MIN:,} or more (ulimit -Hn, LimitNOFILE=)"
        yield warn("open files", seen, cure)
    else:
        yield good("open files", seen)


def _ports(config: BrokerConfig) -> Iterator[Finding]:
    is_running = _has_broker(config.data_dir)
    yield from _ports_of(config, "", is_running=is_running)
    for worker in range(2, config.workers + 1):
        own = worker_config(
            config, worker, data_dir=config.data_dir, node_id=config.node_id, cluster_id=""
        )
        yield from _ports_of(own, f" in worker {worker}", is_running=is_running)


def _has_broker(data_dir: str) -> bool:
    """Whether a process has the data directory."""
    try:
        with Path(data_dir, LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # there is no such file, or it is another user's
    return False


def _ports_of(config: BrokerConfig, where: str, *, is_running: bool) -> Iterator[Finding]:
    for listener in config.listeners:
        check = f"port of {listener.name}{where}"
        yield _port(check, listener, is_fixed=True, is_running=is_running)
    metrics = config.metrics_listener
    if metrics is not None:
        is_fixed = config.is_set("metrics.listener")
        check = f"port of metrics{where}"
        yield _port(check, metrics, is_fixed=is_fixed, is_running=is_running)


def _port(check: str, listener: Listener, *, is_fixed: bool, is_running: bool) -> Finding:
    address = f"{listener.host}:{listener.port}"
    if listener.port == 0:
        return good(check, "a free one will be picked")
    try:
        family, *_, where = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and is_running:
            what = "a broker is running on this data directory, and may listen there"
            return good(check, f"{address} is taken; {what}")
        if error.errno == errno.EADDRINUSE and not is_fixed:
            seen = f"{address} is taken; a free one will be picked"
            return warn(check, seen)
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        return bad(
            check,
            f"{address} {why}",
            "stop what uses it, or choose another address (--listen, --set)",
        )
    return good(check, f"{address} is free")


def _directory(config: BrokerConfig) -> Iterator[Finding]:
    directory = Path(config.data_dir)
    place = directory
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield bad(
            "data directory",
            f"{place} is not a directory that this user may write to",
            "choose another one (--data-dir), or change its owner or mode",
        )
        return
    try:
        sync = _sync_time(place)
    except OSError as error:
        yield bad(
            "data directory",
            f"no file can be written in {place}: {error.strerror}",
            "choose another one (--data-dir)",
        )
        return
    seen = str(directory) if place == directory else f"{directory} will be made"
    yield good("data directory", seen)
    yield _free_space(place)
    yield sync


def _free_space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    seen = f"{format_size(free)} free"
    if free < DISK_FREE_MIN_BYTES:
        cure = "free some, or choose another disk; appends stop when it is full"
        return warn("disk space", seen, cure)
    return good("disk space", seen)


def _sync_time(place: Path) -> Finding:
    times = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNC_ROUNDS):
            file.write(bytes(1024))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    median = sorted(times)[len(times) // 2]
    seen = f"{median:.2f} ms for 1 KiB, {max(times):.2f} ms at worst"
    if median > SYNC_SLOW_MS:
        cure = "acks=all waits for it: use a faster disk, or flush.policy=os where loss is bearable"
        return warn("sync", seen, cure)
    return good("sync", seen)


def _clock(_: BrokerConfig) -> Iterator[Finding]:
    now_ms = time.time_ns() // 1_000_000
    seen = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms / 1000))
    if now_ms < CLOCK_FLOOR_MS:
        yield bad(
            "clock",
            f"{seen}, which cannot be",
            "set the clock; timestamps, retention and bounds depend on it",
        )
    else:
        yield good("clock", seen)
