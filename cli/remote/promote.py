"""``tidelog promote``: a standby takes its bucket over.

A running standby is asked over its metrics port; it starts again as the owner. A stopped one is
made from the bucket once more, after the entry that takes the bucket over
(`storage.bucket.standby_directory`).
"""

import os
import time
from pathlib import Path
from typing import Any, Final

import click

from cli.broker_options import BrokerOptions, ask_admin
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.output import print_json
from cli.stores import open_bucket, run_all
from cli.time.options import metrics_options
from client.admin import Admin
from client.errors import BrokerUnreachable, UnsupportedByBroker

READY_S: Final = 60.0
"""How long the command waits for the promoted broker."""

_ASK_AGAIN_S: Final = 0.1


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@metrics_options
def command(
    *, directory: Path | None, broker: BrokerOptions, metrics_url: str | None, as_json: bool
) -> int:
    """Let a standby take its bucket over: the former owner can write nothing more.

    Names the standby by -b HOST:PORT while it runs, by its DIRECTORY when it is stopped.

    Example: tidelog promote -b 10.0.0.2:9092
    """
    began_s = time.monotonic()
    if directory is None:
        epoch = ask_admin(broker, lambda admin: _promote(admin, metrics_url))
        _wait_for_owner(broker, metrics_url)
        what = "the broker"
    elif not directory.is_dir():
        raise CommandFailed(f"there is no directory {directory}", ExitCode.NOT_FOUND)
    else:
        epoch = _promote_directory(directory)
        what = str(directory)
    duration_s = time.monotonic() - began_s
    if as_json:
        print_json({"epoch": epoch, "duration_s": round(duration_s, 3)})
    else:
        click.echo(f"{what} owns the bucket, epoch {epoch}, after {duration_s:.1f} s")
    return ExitCode.OK


async def _promote(admin: Admin, metrics_url: str | None) -> int:
    return int((await admin.promote(metrics_url=metrics_url))["epoch"])


def _wait_for_owner(broker: BrokerOptions, metrics_url: str | None) -> None:
    """Return when the broker answers, and is no standby any more."""

    async def ask(admin: Admin) -> Any:
        return await admin.standby(metrics_url=metrics_url)

    until_s = time.monotonic() + READY_S
    while True:
        problem = "it is still a standby"
        try:
            ask_admin(broker, ask)
        except UnsupportedByBroker:
            return
        except BrokerUnreachable as error:
            problem = str(error)
        if time.monotonic() > until_s:
            raise CommandFailed(
                "the broker has taken the bucket over, and does not serve as its owner after "
                f"{READY_S:g} s: {problem}\nIts log says why; another broker may have taken the "
                "bucket over since.",
                ExitCode.UNREACHABLE,
            )
        time.sleep(_ASK_AGAIN_S)


def _promote_directory(directory: Path) -> int:
    from storage.bucket.standby_directory import read_mark, restore_again, take_over
    from storage.directory.claim import lock_directory
    from storage.disk.files import RealFiles
    from storage.errors import DataDirError, StorageError

    path, files = os.path.abspath(directory), RealFiles()
    try:
        mark = read_mark(path, files)
        if mark is None:
            raise CommandFailed(
                f"{directory} is no directory of a standby; see tidelog serve --standby",
                ExitCode.NOT_FOUND,
            )
        lock = lock_directory(path, files)
        try:
            store = open_bucket(mark.url, mark.cluster_id)
            state = take_over(store, mark)
            restore_again(path, mark, state, store, files, run_all=run_all, is_owner=True)
        finally:
            lock.release()
    except (OSError, StorageError, DataDirError) as error:
        raise CommandFailed(f"{directory}: {error}", ExitCode.FAILED) from error
    return state.epoch
