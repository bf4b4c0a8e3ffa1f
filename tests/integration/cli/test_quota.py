"""`tidelog quota`, against a running broker."""

import json
import re

import click
import pytest

from cli.exit_codes import ExitCode
from cli.security.quota import set_limits
from tests.support.cli import ok, tidelog
from tidelog.testing import running_broker


def test_set_list_and_remove() -> None:
    with running_broker() as server:
        set_user = ("quota", "set", "--user", "ann", "--default-client-id")
        shown = ok(*set_user, "--producer-byte-rate", "1e6", server=server)
        assert shown == "user ann, default client-id: producer_byte_rate = 1000000\n"
        ok("quota", "set", "--ip", "10.0.0.1", "--connection-creation-rate", "5", server=server)
        ok(*set_user, "--request-percentage", "12.5", server=server)
        assert json.loads(ok("quota", "list", "--json", server=server)) == [
            {
                "entity": {"client-id": None, "user": "ann"},
                "limits": {"producer_byte_rate": 1e6, "request_percentage": 12.5},
            },
            {"entity": {"ip": "10.0.0.1"}, "limits": {"connection_creation_rate": 5.0}},
        ]
        assert "user ann, default client-id  request_percentage" in ok(
            "quota", "list", server=server
        )
        remove = ("quota", "remove", "--user", "ann", "--default-client-id")
        ok(*remove, "--limit", "request_percentage", server=server)
        ok(*remove, server=server)
        gone = tidelog(*remove, server=server)
        assert gone.returncode == ExitCode.NOT_FOUND
        ok("quota", "remove", "--ip", "10.0.0.1", server=server)
        assert json.loads(ok("quota", "list", "--json", server=server)) == []


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("--producer-byte-rate", "10MB/s", 1e7),
        ("--producer-byte-rate", "1.5 MB", 1.5e6),
        ("--consumer-byte-rate", "512KiB", 524_288.0),
        ("--consumer-byte-rate", "1e6", 1e6),
        ("--request-percentage", "12.5%", 12.5),
        ("--controller-mutation-rate", ".5", 0.5),
        (
            "--producer-byte-rate",
            "10XB",
            "is no such number; write for instance 1000000, 10MB or 512KiB",
        ),
        ("--producer-byte-rate", "10Mb", "is no such number"),
        ("--producer-byte-rate", "50%", "is no such number"),
        ("--request-percentage", "1MB", "is no such number; write for instance 50 or 12.5%"),
        ("--connection-creation-rate", "nan", "'nan' is no such number; write for instance 5"),
        ("--connection-creation-rate", "", "is no such number"),
    ],
)
def test_numbers_may_have_units(option: str, text: str, value: float | str) -> None:
    (given,) = (one for one in set_limits.params if option in one.opts)
    if isinstance(value, float):
        assert given.type.convert(text, given, None) == value
        return
    with pytest.raises(click.BadParameter, match=re.escape(value)):
        given.type.convert(text, given, None)


def test_mistakes() -> None:
    with running_broker() as server:
        for words, said in (
            (("set", "--producer-byte-rate", "1"), "say whose limit"),
            (("set", "--user", "ann"), "give a limit"),
            (("set", "--user", "ann", "--default-user", "--request-percentage", "1"), "name one"),
        ):
            done = tidelog("quota", *words, server=server)
            assert done.returncode == ExitCode.USAGE
            assert said in done.stderr
        refused = tidelog(
            "quota", "set", "--user", "ann", "--producer-byte-rate", "0", server=server
        )
        assert refused.returncode not in (ExitCode.OK, ExitCode.USAGE)
        assert "must be greater than 0" in refused.stderr
