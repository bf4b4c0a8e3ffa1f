"""Which error means what to a shell."""

import errno

import pytest

from cli.exit_codes import ExitCode
from cli.failures import exit_code_of, sentence_of
from client.errors import BrokerRefused, BrokerUnreachable, InvalidTime
from config import ConfigErrors, Problem
from protocol.error_codes import ErrorCode
from protocol.errors import CorruptRecords


def config_errors(count: int) -> ConfigErrors:
    problem = Problem(key="a", value="b", origin="here", reason="wrong", cure="right it")
    return ConfigErrors([problem] * count)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerUnreachable("x"), ExitCode.UNREACHABLE),
        (InvalidTime("x"), ExitCode.USAGE),
        (BrokerRefused("x", ErrorCode.INVALID_CONFIG), ExitCode.FAILED),
        (BrokerRefused("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ExitCode.NOT_FOUND),
        (BrokerRefused("x", ErrorCode.GROUP_ID_NOT_FOUND), ExitCode.NOT_FOUND),
        (config_errors(1), ExitCode.CONFIG),
        (FileNotFoundError(errno.ENOENT, "gone", "f"), ExitCode.NOT_FOUND),
        (PermissionError(errno.EACCES, "denied", "f"), ExitCode.FAILED),
        (CorruptRecords("x"), ExitCode.FAILED),
        (ValueError("ours"), None),
    ],
)
def test_each_error_has_its_code(error: Exception, code: ExitCode | None) -> None:
    assert exit_code_of(error) == code


def test_an_error_of_the_system_names_the_file() -> None:
    assert sentence_of(PermissionError(errno.EACCES, "Permission denied", "f")) == (
        "f: Permission denied"
    )


def test_several_problems_are_counted_and_listed() -> None:
    assert sentence_of(config_errors(2)).splitlines()[0] == "the configuration has 2 problems:"
    assert sentence_of(config_errors(1)) == "a = 'b' (here): wrong; right it"
