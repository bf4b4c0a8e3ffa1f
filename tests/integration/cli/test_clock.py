"""`tidelog clock`, against a broker for tests and against an ordinary one."""

import json

from cli.exit_codes import ExitCode
from tests.support.cli import ok, tidelog
from tidelog.testing import running_broker


def test_freeze_set_advance_jump_and_resume() -> None:
    with running_broker(clock="settable") as server:
        frozen = ok("clock", "freeze", "2026-01-01T00:00Z", server=server)
        assert "(1767225600000), frozen\n" in frozen
        assert "1767916800000" in ok("clock", "advance", "8d", server=server)
        assert "1767916800500" in ok("clock", "set", "+500ms", server=server)
        assert "1767830400500" in ok("clock", "jump", "-1d", server=server)
        assert "1767825000500" in ok("clock", "jump", "-1h30m", server=server)
        assert "1767828600500" in ok("clock", "jump", "1h", server=server)
        assert "1767825000500" in ok("clock", "set", "-1h", server=server)
        past = tidelog("clock", "advance", "-1h", server=server)
        assert (past.returncode, "is not negative" in past.stderr) == (ExitCode.USAGE, True)
        assert "1767830400500" in ok("clock", "jump", "1h30m", server=server)
        assert ok("clock", "show", server=server).endswith("(1767830400500), frozen\n")
        assert "running at 60 times" in ok("clock", "resume", "--rate", "60", server=server)
        shown = json.loads(ok("clock", "show", "--json", server=server))
        assert shown["rate"] == 60
        assert shown["wall_ms"] >= 1767830400500
        refused = tidelog("clock", "set", "2126-01-01T00:00Z", server=server)
        assert (refused.returncode, "ten years" in refused.stderr) == (ExitCode.USAGE, True)


def test_an_ordinary_broker_has_no_such_clock() -> None:
    with running_broker() as server:
        for words in (("show",), ("advance", "8d"), ("freeze",)):
            done = tidelog("clock", *words, server=server)
            assert (done.returncode, done.stdout) == (ExitCode.FAILED, "")
            assert "--clock settable" in done.stderr
