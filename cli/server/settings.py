"""The settings of a broker as the commands that take ``--config`` and ``--set`` read them."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from broker.security.secret_files import read_secret_file
from cli.exit_codes import ExitCode
from cli.failures import CommandFailed, exit_code_of
from config import BrokerConfig, Setting, given_settings, load


def load_settings(config_file: str | None, command_line: Mapping[str, str]) -> BrokerConfig:
    """The configuration of a file, the environment and the command line.

    Raises:
        CommandFailed: the file cannot be read.
        ConfigErrors: all problems of all sources, at once.
    """
    return load(
        file_text=read_config(config_file),
        file_name=config_file or "",
        environment=os.environ,
        command_line=command_line,
        read_file=read_secret_file,
    )


def settings_given(config_file: str | None, command_line: Mapping[str, str]) -> dict[str, Setting]:
    """What the same sources say, by name, before anything is examined.

    Raises:
        CommandFailed: the file cannot be read.
    """
    return given_settings(
        file_text=read_config(config_file),
        file_name=config_file or "",
        environment=os.environ,
        command_line=command_line,
        read_file=read_secret_file,
    )


def command_line_settings(
    data_dir: str | None, listen: str | None, pairs: tuple[str, ...], protocol: str = "PLAINTEXT"
) -> dict[str, str]:
    """The options as settings by name; ``--set`` wins over the shortcuts.

    `protocol` is that of the listener of ``--listen``.

    Raises:
        click.UsageError: a pair without ``=``, or an address without a port.
    """
    settings: dict[str, str] = {}
    if data_dir is not None:
        settings["log.dirs"] = data_dir
    if listen is not None:
        host, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise click.UsageError(
                f"--listen {listen}: write HOST:PORT, for example 127.0.0.1:9092 or 0.0.0.0:0"
            )
        settings["listeners"] = f"{protocol}://{host}:{port}"
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--set {pair}: write KEY=VALUE, for example num.partitions=4")
        settings[name.strip()] = value.strip()
    return settings


def read_config(config_file: str | None) -> str | None:
    """The text of a configuration file, None for no file.

    Raises:
        CommandFailed: it does not exist, cannot be read, or is not text.
    """
    if config_file is None:
        return None
    try:
        return Path(config_file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"{config_file} is not UTF-8 text (byte {error.start})", ExitCode.CONFIG
        ) from None
    except OSError as error:
        raise CommandFailed(
            f"cannot read the configuration {config_file}: {error.strerror}",
            exit_code_of(error) or ExitCode.FAILED,
        ) from None
