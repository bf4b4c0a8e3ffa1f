"""One table of exit codes for all commands: what a code means does not depend on the command.

For each command every kind of failure that it can meet stands here with its words. `test_every_...`
holds that no command is left out, so a new one has to say what its failures are.
"""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.exit_codes import ExitCode
from cli.main import COMMANDS, command, run
from pipeline.jobs.outcome import JobCode
from tests.support.cli import tidelog
from tidelog.testing import RunningBroker, running_broker

NOWHERE = ["-b", "127.0.0.1:1"]

USAGE, UNREACHABLE, NOT_FOUND = ExitCode.USAGE, ExitCode.UNREACHABLE, ExitCode.NOT_FOUND

CASES: list[tuple[list[str], ExitCode]] = [
    # Two options that contradict each other, a value that is none, a word too many.
    (["serve", "--listen", "nowhere"], USAGE),
    (["topic", "create", "t", "-p", "0"], USAGE),
    (["topic", "list", "t"], USAGE),
    (["topic", "describe"], USAGE),
    (["topic", "alter", "t", "--set", "a=1", "--unset", "a"], USAGE),
    (["topic", "alter", "t"], USAGE),
    (["topic", "partitions", "t", "0"], USAGE),
    (["topic", "delete", "t"], USAGE),
    (["cluster", "describe", "x"], USAGE),
    (["cluster", "configs", "a", "b"], USAGE),
    (["cluster", "alter"], USAGE),
    (["profile", "list", "x"], USAGE),
    (["profile", "set", "../x", "bootstrap.servers=h:1"], USAGE),
    (["profile", "set", "x", "security.protocol=none"], USAGE),
    (["profile", "remove"], USAGE),
    (["completion", "tcsh"], USAGE),
    (["man", "x"], USAGE),
    (["docs", "a", "b"], USAGE),
    (["docs", "sekurity"], NOT_FOUND),
    (["-b", "h:1", "topic", "list"], USAGE),
    (["topic", "list", "--profile", "a", "--command-config", "b"], USAGE),
    (["topic", "delete-records", "t"], USAGE),
    (["topic", "delete-records", "t", "--before", "1700000000"], USAGE),
    (["topic", "delete-records", "t", "--before", "earliest"], USAGE),
    (["topic", "delete-records", "t", "--before", "now", "--execute", "-n"], USAGE),
    (["produce", "t", "--timestamp", "now", "--timestamp-field", "t"], USAGE),
    (["produce", "t", "-K", ":", "--format", "json"], USAGE),
    (["produce", "t", "--end", ";", "--format", "json"], USAGE),
    (["produce", "t", "--end", r"\q"], USAGE),
    (["produce", "t", "-K", ""], USAGE),
    (["consume", "t", "--from", "now", "--until", "-1h"], USAGE),
    (["consume", "t", "--until", "-1h"], USAGE),
    (["consume", "t", "--json", "--format", "{value}"], USAGE),
    (["consume", "t", "--json", "--raw"], USAGE),
    (["consume", "t", "--format", "%s"], USAGE),
    (["consume", "t", "--where", "value.a >"], USAGE),
    (["consume", "t", "-p", "0", "-g", "g"], USAGE),
    (["offsets", "t", "--earliest", "--latest"], USAGE),
    (["offsets", "t", "--at", "now", "--max-timestamp"], USAGE),
    (["offsets", "t", "--at", "-1M"], USAGE),
    (["retention"], USAGE),
    (["retention", "t", "--set", "retention.ms"], USAGE),
    (["retention", "there", "--set", "retention.ms=x"], USAGE),
    (["histogram"], USAGE),
    (["histogram", "t", "--bars", "0"], USAGE),
    (["histogram", "t", "--from", "now", "--until", "-1h"], USAGE),
    (["skew"], USAGE),
    (["skew", "t", "--bytes", "0"], USAGE),
    (["window"], USAGE),
    (["window", "t"], USAGE),
    (["window", "t", "--from", "now", "--to", "-1h"], USAGE),
    (["window", "t" * 240, "--from", "now"], USAGE),
    (["window", "bad/name", "--from", "now"], USAGE),
    (["clock", "show", "x"], USAGE),
    (["clock", "freeze", "soon"], USAGE),
    (["clock", "set"], USAGE),
    (["clock", "advance", "8"], USAGE),
    (["clock", "advance", "-1d"], USAGE),
    (["clock", "advance", "5000w"], USAGE),
    (["clock", "jump", "-5000w"], USAGE),
    (["clock", "jump"], USAGE),
    (["clock", "resume", "--rate", "0"], USAGE),
    (["serve", "--clock-sessions", "settable"], USAGE),
    (["group", "list", "x"], USAGE),
    (["group", "configs"], USAGE),
    (["group", "alter", "g"], USAGE),
    (["group", "alter", "g", "--set", "a=1", "--unset", "a"], USAGE),
    (["group", "describe"], USAGE),
    (["group", "delete", "g"], USAGE),
    (["group", "reset", "g"], USAGE),
    (["group", "reset", "g", "--to-offset", "-1"], USAGE),
    (["group", "reset", "g", "--shift-by", "1", "--to-latest"], USAGE),
    (["group", "reset", "g", "--from-file", "README.md"], USAGE),
    (["group", "reset", "g", "--to-earliest", "--to-latest", "-t", "t"], USAGE),
    (["group", "reset", "g", "--to-earliest", "--execute", "--dry-run"], USAGE),
    (["share", "consume", "t"], USAGE),
    (["share", "consume", "t", "-g", "g", "--idle", "-1s"], USAGE),
    (["share", "consume", "t", "-g", "g", "--json", "--format", "{value}"], USAGE),
    (["share", "list", "x"], USAGE),
    (["share", "configs"], USAGE),
    (["share", "alter", "g"], USAGE),
    (["share", "describe"], USAGE),
    (["share", "delete", "g"], USAGE),
    (["share", "reset", "g"], USAGE),
    (["share", "reset", "g", "--from-file", "README.md"], USAGE),
    (["share", "reset", "g", "--to-earliest", "--new"], USAGE),
    (["dump-segment", "README.md"], USAGE),
    (["fsck", "docs"], USAGE),
    (["tier", "status", "docs", "--url"], USAGE),
    (["tier", "gc", "docs"], USAGE),
    (["restore", "memory:"], USAGE),
    (["promote", "a", "b"], USAGE),
    (["export-kraft", "docs", "TARGET"], USAGE),
    (["import", "docs", "TARGET"], USAGE),
    (["config", "check"], USAGE),
    (["config", "list", "a", "b"], USAGE),
    (["doctor", "x", "y"], USAGE),
    (["version", "x"], USAGE),
    (["spark", "archive"], USAGE),
    (["console", "--listen", "nowhere"], USAGE),
    (["console", "--listen", "0.0.0.0:0"], USAGE),
    (["console", "--auth", "basic"], USAGE),
    (["console", "--add-user", "ann"], USAGE),
    (["console", "--listen", "127.0.0.1:\u00b2"], USAGE),
    (["console", "--schema-registry", "nowhere"], USAGE),
    (["console", "--broker-http", "nowhere"], USAGE),
    (["clock", "show", "--metrics", "127.0.0.1:99999"], USAGE),
    (["clock", "show", "--metrics", "127.0.0.1:abc"], USAGE),
    (["console", "-b", "host:port"], USAGE),
    (["user", "add"], USAGE),
    (["user", "passwd"], USAGE),
    (["user", "list", "x"], USAGE),
    (["user", "remove"], USAGE),
    (["user", "export", "FILE"], USAGE),
    (["user", "import", "README.md", "--data-dir", "docs"], USAGE),
    (["certs", "new"], USAGE),
    (["certs", "reload", "x"], USAGE),
    (["token", "create", "--lifetime-ms", "0"], USAGE),
    (["token", "list", "x"], USAGE),
    (["token", "renew"], USAGE),
    (["token", "expire", "id", "--period-ms", "-1"], USAGE),
    (["acl", "add"], USAGE),
    (["acl", "add", "--user", "u", "--op", "read"], USAGE),
    (["acl", "remove"], USAGE),
    (["acl", "list", "x"], USAGE),
    (["acl", "test"], USAGE),
    (["quota", "set"], USAGE),
    (["quota", "list", "x"], USAGE),
    (["quota", "remove"], USAGE),
    (["certs", "show", "x"], USAGE),
    # No broker at the address.
    (["user", "add", "u", "--generate", *NOWHERE], UNREACHABLE),
    (["user", "passwd", "u", "--generate", *NOWHERE], UNREACHABLE),
    (["user", "list", *NOWHERE], UNREACHABLE),
    (["promote", *NOWHERE], UNREACHABLE),
    (["user", "remove", "u", *NOWHERE], UNREACHABLE),
    (["certs", "reload", *NOWHERE], UNREACHABLE),
    (["token", "create", *NOWHERE], UNREACHABLE),
    (["token", "list", *NOWHERE], UNREACHABLE),
    (["token", "renew", "id", *NOWHERE], UNREACHABLE),
    (["token", "expire", "id", *NOWHERE], UNREACHABLE),
    (["acl", "add", "--user", "u", "--produce", "t", *NOWHERE], UNREACHABLE),
    (["acl", "remove", "--user", "u", "--produce", "t", *NOWHERE], UNREACHABLE),
    (["acl", "list", *NOWHERE], UNREACHABLE),
    (["acl", "test", "--user", "u", "--op", "read", "--topic", "t", *NOWHERE], UNREACHABLE),
    (["quota", "set", "--user", "u", "--producer-byte-rate", "1000", *NOWHERE], UNREACHABLE),
    (["quota", "list", *NOWHERE], UNREACHABLE),
    (["quota", "remove", "--user", "u", *NOWHERE], UNREACHABLE),
    (["topic", "create", "t", *NOWHERE], UNREACHABLE),
    (["topic", "list", *NOWHERE], UNREACHABLE),
    (["cluster", "describe", *NOWHERE], UNREACHABLE),
    (["cluster", "configs", *NOWHERE], UNREACHABLE),
    (["cluster", "alter", "--set", "a=b", *NOWHERE], UNREACHABLE),
    (["topic", "describe", "t", *NOWHERE], UNREACHABLE),
    (["topic", "alter", "t", "--set", "a=1", *NOWHERE], UNREACHABLE),
    (["topic", "partitions", "t", "2", *NOWHERE], UNREACHABLE),
    (["topic", "delete", "t", "-y", *NOWHERE], UNREACHABLE),
    (["topic", "delete-records", "t", "--before", "now", *NOWHERE], UNREACHABLE),
    (["produce", "t", *NOWHERE], UNREACHABLE),
    (["consume", "t", *NOWHERE], UNREACHABLE),
    (["consume", "t", "-g", "g", *NOWHERE], UNREACHABLE),
    (["offsets", "t", *NOWHERE], UNREACHABLE),
    (["group", "list", *NOWHERE], UNREACHABLE),
    (["group", "configs", "g", *NOWHERE], UNREACHABLE),
    (["group", "alter", "g", "--unset", "share.session.timeout.ms", *NOWHERE], UNREACHABLE),
    (["group", "describe", "g", *NOWHERE], UNREACHABLE),
    (["group", "delete", "g", "-y", *NOWHERE], UNREACHABLE),
    (["group", "reset", "g", "--to-earliest", *NOWHERE], UNREACHABLE),
    (["share", "consume", "t", "-g", "g", *NOWHERE], UNREACHABLE),
    (["share", "list", *NOWHERE], UNREACHABLE),
    (["share", "configs", "g", *NOWHERE], UNREACHABLE),
    (["share", "alter", "g", "--set", "share.session.timeout.ms=1", *NOWHERE], UNREACHABLE),
    (["share", "describe", "g", *NOWHERE], UNREACHABLE),
    (["share", "delete", "g", "-y", *NOWHERE], UNREACHABLE),
    (["share", "reset", "g", "--to-earliest", *NOWHERE], UNREACHABLE),
    (["retention", "t", *NOWHERE], UNREACHABLE),
    (["histogram", "t", *NOWHERE], UNREACHABLE),
    (["skew", "t", *NOWHERE], UNREACHABLE),
    (["clock", "show", *NOWHERE], UNREACHABLE),
    (["clock", "freeze", *NOWHERE], UNREACHABLE),
    (["clock", "set", "now", *NOWHERE], UNREACHABLE),
    (["clock", "advance", "8d", *NOWHERE], UNREACHABLE),
    (["clock", "jump", "8d", *NOWHERE], UNREACHABLE),
    (["clock", "resume", *NOWHERE], UNREACHABLE),
    (["spark", "skew", "--topic", "t", "--dry-run", *NOWHERE], UNREACHABLE),
    # What is named does not exist: a topic, a partition, a group, a setting, a file.
    (["serve", "--config", "nowhere.properties"], NOT_FOUND),
    (["topic", "describe", "nope"], NOT_FOUND),
    (["topic", "alter", "nope", "--set", "retention.ms=1"], NOT_FOUND),
    (["topic", "alter", "there", "--unset", "nope"], NOT_FOUND),
    (["topic", "alter", "there", "--set", "nope=1"], NOT_FOUND),
    (["topic", "create", "new", "--set", "nope=1"], NOT_FOUND),
    (["retention", "there", "--set", "nope=1"], NOT_FOUND),
    (["topic", "partitions", "nope", "2"], NOT_FOUND),
    (["topic", "delete", "nope", "-y"], NOT_FOUND),
    (["cluster", "configs", "--profile", "nosuch"], NOT_FOUND),
    (["cluster", "configs", "nosuchword", "--all"], NOT_FOUND),
    (["cluster", "configs", "--node", "99"], NOT_FOUND),
    (["cluster", "alter", "--unset", "nope"], NOT_FOUND),
    (["cluster", "alter", "--set", "nope=1"], NOT_FOUND),
    (["profile", "remove", "nosuch"], NOT_FOUND),
    (["topic", "delete-records", "nope", "--before", "now"], NOT_FOUND),
    (["topic", "delete-records", "there", "--before", "now", "-p", "0", "-p", "9"], NOT_FOUND),
    (["produce", "there", "-p", "9"], NOT_FOUND),
    (["produce", "there", "nowhere.txt"], NOT_FOUND),
    (["produce", "there", "/"], USAGE),
    (["promote", "nowhere"], NOT_FOUND),
    (["group", "reset", "g", "--from-file", "nowhere.json"], NOT_FOUND),
    (["consume", "nope"], NOT_FOUND),
    (["consume", "nope", "-g", "g"], NOT_FOUND),
    (["consume", "there", "-p", "9"], NOT_FOUND),
    (["offsets", "nope"], NOT_FOUND),
    (["offsets", "there", "-p", "9"], NOT_FOUND),
    (["retention", "nope"], NOT_FOUND),
    (["retention", "there", "-p", "9"], NOT_FOUND),
    (["histogram", "nope"], NOT_FOUND),
    (["histogram", "there", "-p", "9"], NOT_FOUND),
    (["skew", "nope"], NOT_FOUND),
    (["skew", "there", "-p", "9"], NOT_FOUND),
    (["group", "alter", "nope", "--unset", "nope"], NOT_FOUND),
    (["group", "alter", "nope", "--set", "nope=1"], NOT_FOUND),
    (["group", "describe", "nope"], NOT_FOUND),
    (["group", "delete", "nope", "-y"], NOT_FOUND),
    (["group", "reset", "nope", "--to-earliest", "-t", "there"], NOT_FOUND),
    (["share", "consume", "nope", "-g", "g"], NOT_FOUND),
    (["share", "alter", "nope", "--unset", "nope"], NOT_FOUND),
    (["share", "alter", "nope", "--set", "nope=1"], NOT_FOUND),
    (["share", "describe", "nope"], NOT_FOUND),
    (["share", "delete", "nope", "-y"], NOT_FOUND),
    (["share", "reset", "nope", "--to-earliest", "-t", "there"], NOT_FOUND),
    (["console", "--auth", "basic", "--users", "nowhere"], NOT_FOUND),
    (["user", "add", "u", "--password-file", "nowhere"], NOT_FOUND),
    (["user", "passwd", "u", "--password-file", "nowhere"], NOT_FOUND),
    (["user", "remove", "nobody"], NOT_FOUND),
    (["user", "export", "FILE", "--data-dir", "nowhere"], NOT_FOUND),
    (["user", "import", "nowhere", "--data-dir", "NEW"], NOT_FOUND),
    (["certs", "show", "--config", "nowhere.properties"], NOT_FOUND),
    (["certs", "reload"], NOT_FOUND),
    (["dump-segment", "nowhere.log"], NOT_FOUND),
    (["fsck", "nowhere"], NOT_FOUND),
    (["tier", "status", "nowhere"], NOT_FOUND),
    (["tier", "gc", "nowhere", "--url", "memory:"], NOT_FOUND),
    (["restore", "memory:", "--data-dir", "NEW"], NOT_FOUND),
    (["promote", "docs"], NOT_FOUND),
    (["export-kraft", "nowhere", "TARGET"], NOT_FOUND),
    (["import", "nowhere", "TARGET"], NOT_FOUND),
    (["config", "check", "nowhere.properties"], NOT_FOUND),
    (["config", "list", "nosuchword"], NOT_FOUND),
    # Wrong settings, and what the broker refuses.
    (["serve", "--set", "nope=1"], ExitCode.CONFIG),
    (["config", "check", "README.md"], ExitCode.CONFIG),
    (["token", "create"], ExitCode.FAILED),
    (["token", "list"], ExitCode.FAILED),
    (["token", "renew", "id"], ExitCode.FAILED),
    (["token", "expire", "id"], ExitCode.FAILED),
    (["topic", "create", "a b"], ExitCode.USAGE),
    (["topic", "create", "there"], ExitCode.FAILED),
    (["topic", "alter", "there", "--set", "retention.ms=x"], ExitCode.FAILED),
    (["topic", "create", "new", "--set", "retention.ms=x"], ExitCode.FAILED),
    (["group", "alter", "g", "--set", "consumer.session.timeout.ms=x"], ExitCode.FAILED),
    (["cluster", "alter", "--set", "log.retention.ms=x"], ExitCode.FAILED),
    (["consume", "there", "--from", "offset:99"], ExitCode.FAILED),
    (["topic", "delete-records", "there", "--before", "offset:99"], ExitCode.FAILED),
    (["clock", "show"], ExitCode.FAILED),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with running_broker() as running:
        assert tidelog("topic", "create", "there", server=running).returncode == 0
        yield running


@pytest.mark.parametrize(("words", "code"), CASES, ids=lambda value: str(value))
def test_a_failure_has_its_code_and_one_sentence(
    server: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    code: ExitCode,
) -> None:
    target = tmp_path / "target"
    given = [str(target) if word == "TARGET" else word for word in words]
    if words[0] == "serve":
        # It sets up logging for the whole process.
        done = tidelog(*given, server=server)
        returned, out, err = done.returncode, done.stdout, done.stderr
    else:
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", server.bootstrap)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        returned = run(given)
        out, err = capfd.readouterr()
    assert returned == code, err
    assert "Traceback" not in err
    assert err != ""
    assert out == ""
    assert not target.exists()


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that does something by itself."""
    context = click.Context(group)
    for name in group.list_commands(context):
        member = group.get_command(context, name)
        assert member is not None
        if isinstance(member, click.Group):
            yield from leaves(member, (*words, name))
        else:
            yield (*words, name)


def test_every_command_is_in_the_table() -> None:
    every = set(leaves(command))
    assert {words[0] for words in every} == set(COMMANDS)
    for kind in (USAGE, UNREACHABLE, NOT_FOUND):
        covered = {
            leaf
            for leaf in every
            for words, code in CASES
            if code == kind and tuple(words[: len(leaf)]) == leaf
        }
        missing = every - covered
        if kind == USAGE:
            assert missing == set()
        else:
            # These ask no broker, or name nothing that could be missing.
            assert missing <= CANNOT[kind], missing - CANNOT[kind]
            assert not covered & CANNOT[kind]


CANNOT: dict[ExitCode, set[tuple[str, ...]]] = {
    UNREACHABLE: {
        ("serve",),
        ("console",),  # starts while the broker is down
        ("dump-segment",),
        ("fsck",),
        ("tier", "status"),
        ("tier", "gc"),
        ("restore",),
        ("export-kraft",),
        ("import",),
        ("config", "check"),
        ("config", "list"),
        ("doctor",),
        ("version",),
        ("certs", "show"),
        ("certs", "new"),
        ("user", "export"),
        ("user", "import"),
        ("window",),
        ("profile", "list"),
        ("profile", "set"),
        ("profile", "remove"),
        ("completion",),
        ("docs",),
        ("man",),
    },
    NOT_FOUND: {
        ("window",),
        ("certs", "new"),
        ("cluster", "describe"),
        ("profile", "list"),
        ("profile", "set"),
        ("completion",),
        ("man",),
        ("user", "list"),
        ("token", "create"),
        ("token", "list"),
        # On a broker that knows tokens they can: tests/integration/cli/test_tokens.py.
        ("token", "renew"),
        ("token", "expire"),
        ("acl", "add"),
        ("acl", "remove"),
        ("acl", "list"),
        ("acl", "test"),
        ("quota", "set"),
        ("quota", "list"),
        ("quota", "remove"),
        ("topic", "list"),
        ("group", "list"),
        ("group", "configs"),  # a group may have settings before it exists
        ("share", "list"),
        ("share", "configs"),
        ("doctor",),
        ("version",),
        ("spark",),
        *(("clock", word) for word in ("show", "freeze", "set", "advance", "jump", "resume")),
    },
}


def test_the_jobs_of_spark_have_the_same_table() -> None:
    names = {"DONE": "OK"}
    for code in JobCode:
        assert ExitCode[names.get(code.name, code.name)].value == code.value
