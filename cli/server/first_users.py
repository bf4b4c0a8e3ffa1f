"""The first users of a broker, from the environment: for containers, where no command runs first.

`TIDELOG_BOOTSTRAP_USER=NAME:PASSWORD` makes one user, the file that `TIDELOG_BOOTSTRAP_USER_FILE`
names makes one for each of its lines. This happens once, in a data directory that nothing is in
yet: later starts ignore both variables, so a user that was removed or has another password stays
so. Both are taken out of the environment, and no message shows what they hold.
"""

import logging
from collections.abc import MutableMapping

import click

from broker.security.scram import SCRAM_BY_NAME
from broker.security.secret_files import read_secret_file
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.security.offline_users import make_first_users
from cli.security.refusals import check_is_distinct
from client.core.security import ITERATIONS
from config import BrokerConfig
from config.security.keys import listener_security

logger = logging.getLogger("tidelog.cli.server.first_users")

VARIABLE = "TIDELOG_BOOTSTRAP_USER"
FILE_VARIABLE = "TIDELOG_BOOTSTRAP_USER_FILE"


def first_passwords(environment: MutableMapping[str, str]) -> dict[str, str]:
    """The passwords of the first users by name; both variables leave `environment`.

    Raises:
        CommandFailed: both are set, a line is not NAME:PASSWORD, or the file cannot be read.
    """
    line, file = environment.pop(VARIABLE, None), environment.pop(FILE_VARIABLE, None)
    if line is not None and file is not None:
        raise _refused(f"{VARIABLE} and {FILE_VARIABLE} are both set; unset one")
    if line is not None:
        return _parsed(VARIABLE, [line])
    if file is None:
        return {}
    try:
        lines = read_secret_file(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise _refused(f"{FILE_VARIABLE}: cannot read {file}: {reason}") from None
    return _parsed(f"{FILE_VARIABLE} ({file})", [line for line in lines if line.strip()])


def make(passwords: dict[str, str], config: BrokerConfig) -> None:
    """Make these users in the directory of `config` if nothing is in it yet.

    They get credentials for the SCRAM mechanisms of the listeners.

    Raises:
        CommandFailed: a name is not acceptable.
        DataDirError: the directory cannot be used.
    """
    if not passwords:
        return
    if config.remote_standby_enable:
        logger.info("%s is ignored: a standby has the users of the broker it follows", VARIABLE)
        return
    enabled = {
        mechanism
        for listener in config.listeners
        for mechanism in listener_security(config, listener).mechanisms
    }
    mechanisms = sorted(enabled & SCRAM_BY_NAME.keys()) or ["SCRAM-SHA-512"]
    if make_first_users(config.data_dir, passwords, mechanisms, ITERATIONS):
        names = ", ".join(passwords)
        click.echo(f"Made the first users by the environment: {names}", err=True)
    else:
        logger.info("%s is ignored: this is not the first start in %s", VARIABLE, config.data_dir)


def _parsed(source: str, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, colon, password = line.partition(":")
        if not (name and colon and password):
            raise _refused(f"{source}: entry {number} is not NAME:PASSWORD")
        if name in found:
            raise _refused(f"{source}: entry {number} names a user a second time; remove one")
        try:
            check_is_distinct(name)
        except CommandFailed as error:
            raise _refused(f"{source}: entry {number}: {error}") from None
        found[name] = password
    if not found:
        raise _refused(f"{source} names no user; write NAME:PASSWORD")
    return found


def _refused(message: str) -> CommandFailed:
    return CommandFailed(message, ExitCode.CONFIG)
