"""From options to settings."""

import click
import pytest

from cli.exit_codes import ExitCode
from cli.failures import CommandFailed
from cli.server.serve import warn_if_slow
from cli.server.settings import command_line_settings, read_config
from protocol.extensions import PATHS


def test_shortcuts_are_settings_and_set_wins() -> None:
    given = command_line_settings("d", "[::1]:0", ("log.dirs=e", "num.partitions = 4"))
    assert given == {"log.dirs": "e", "listeners": "PLAINTEXT://[::1]:0", "num.partitions": "4"}


@pytest.mark.parametrize("listen", ["9092", "h:", "h:x"])
def test_an_address_without_a_port_is_refused(listen: str) -> None:
    with pytest.raises(click.UsageError, match="write HOST:PORT"):
        command_line_settings(None, listen, ())


@pytest.mark.parametrize("pair", ["a", "=b"])
def test_a_pair_without_a_key_or_value_is_refused(pair: str) -> None:
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        command_line_settings(None, None, (pair,))


def test_a_missing_configuration_is_one_sentence() -> None:
    with pytest.raises(CommandFailed, match="cannot read the configuration /nope") as caught:
        read_config("/nope")
    assert caught.value.code is ExitCode.NOT_FOUND


def test_a_start_says_what_is_slower_without_compiled_modules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_slow()
    assert caplog.messages == []
    monkeypatch.setattr("storage.log.lane.COMPILED", False)
    warn_if_slow()
    (said,) = caplog.messages
    assert said.startswith("modules not compiled, so that they run as plain Python: ")
    assert f" {len(PATHS)}; a Produce executes 7" in said
