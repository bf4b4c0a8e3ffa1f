"""Users and rights from the command line: a stopped directory, a running broker, refusals."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from tests.support.cli import tidelog
from tidelog.testing import RunningBroker, running_broker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORDS = {"admin": "adm1n", "bob": "b0b"}


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("passwords")
    for name, password in PASSWORDS.items():
        (directory / name).write_text(f"{password}\n")
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, passwords: Path) -> Iterator[RunningBroker]:
    """A broker with an authorizer whose users were made before its first start."""
    data = tmp_path_factory.mktemp("broker") / "data"
    for number, name in enumerate(PASSWORDS):
        done = tidelog(
            "user", "add", name, "--password-file", str(passwords / name), "--data-dir", str(data)
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        added = f"added {name} (SCRAM-SHA-512, 8192 iterations)\n"
        is_new = f"{data} is a new data directory\n"
        assert done.stderr == (added if number else is_new + added)
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "time.windows.enable": "true",
    }
    with running_broker(data, settings=settings) as running:
        yield running


class As:
    """Commands given by one user."""

    def __init__(self, name: str, server: RunningBroker, passwords: Path) -> None:
        self._server = server
        self._user = {
            "TIDELOG_USER": name,
            "TIDELOG_PASSWORD_FILE": str(passwords / name),
        }

    def run(self, *words: str, code: int = 0, given: str = "") -> str:
        """Standard output of a command that ends with `code`, or its complaint."""
        done = tidelog(*words, server=self._server, given=given, **self._user)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 or done.stdout else done.stderr

    def notes(self, *words: str) -> str:
        """Standard error of a command that succeeds."""
        done = tidelog(*words, server=self._server, **self._user)
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture
def admin(server: RunningBroker, passwords: Path) -> As:
    return As("admin", server, passwords)


@pytest.fixture
def bob(server: RunningBroker, passwords: Path) -> As:
    return As("bob", server, passwords)


def test_a_right_is_refused_explained_given_and_taken(admin: As, bob: As) -> None:
    admin.run("topic", "create", "x")
    refusal = bob.run("produce", "x", code=1, given="1\n")
    assert "tidelog acl add --user NAME --produce TOPIC" in refusal
    admin.run("acl", "add", "--user", "bob", "--produce", "other")
    refusal = bob.run("produce", "x", code=1, given="1\n")
    assert "user bob may not DESCRIBE topic x" in refusal
    assert "an admin can grant it: tidelog acl add --user bob --produce x" in refusal
    question = ("acl", "test", "--user", "bob", "--op", "write", "--topic", "x")
    assert admin.run(*question, code=1).startswith("denied: ")
    given = admin.run("acl", "add", "--user", "bob", "--produce", "x")
    assert given.splitlines() == [
        f"ALLOW User:bob to {operation} topic x" for operation in ("WRITE", "DESCRIBE", "CREATE")
    ]
    assert admin.run(*question).startswith("allowed: ")
    assert json.loads(admin.run(*question, "--json"))["allowed"] is True
    as_listed = ("acl", "test", "--user", "bob", "--op", "WRITE", "--topic", "x")
    assert admin.run(*as_listed) == admin.run(*question)
    bob.run("produce", "x", "-q", given="1\n")
    refusal = bob.run("consume", "x", "--from", "earliest", "--exit-at-end", code=1)
    assert "may not READ topic x" in refusal
    assert "tidelog acl add --user bob --consume x --group GROUP" in refusal
    listed = json.loads(admin.run("acl", "list", "--topic", "x", "--json"))
    assert {row["operation"] for row in listed} == {"WRITE", "DESCRIBE", "CREATE"}
    assert admin.run("acl", "remove", "--user", "bob", "--produce", "x") == given
    assert "there is no such rule" in admin.run(
        "acl", "remove", "--user", "bob", "--produce", "x", code=4
    )
    assert "tidelog acl add --user bob" in bob.run("produce", "x", code=1, given="1\n")


@pytest.mark.parametrize("command", ["topic", "group", "share"])
def test_an_empty_list_may_hide_what_others_see(bob: As, command: str) -> None:
    assert "yet, or none that this user may see (DESCRIBE; tidelog acl); " in bob.notes(
        command, "list"
    )


def test_prefixes_presets_and_dry_runs(admin: As) -> None:
    words = ("--user", "ann", "--consume", "tele.*", "--group", "*", "--deny", "--host", "10.0.0.1")
    shown = admin.run("acl", "add", *words, "--dry-run")
    assert shown.splitlines() == [
        "DENY User:ann from 10.0.0.1 to READ topic tele.*",
        "DENY User:ann from 10.0.0.1 to DESCRIBE topic tele.*",
        "DENY User:ann from 10.0.0.1 to READ group *",
    ]
    assert json.loads(admin.run("acl", "list", "--user", "ann", "--json")) == []
    admin.run("acl", "add", *words)
    rows = json.loads(admin.run("acl", "list", "--user", "ann", "--json"))
    assert sorted((row["pattern"], row["name"]) for row in rows) == [
        ("LITERAL", "*"), ("PREFIXED", "tele."), ("PREFIXED", "tele."),
    ]  # fmt: skip
    test = ("acl", "test", "--user", "ann", "--op", "read", "--topic", "tele.1")
    assert admin.run(*test, "--host", "10.0.0.1", code=1).startswith("denied: ")
    admin.run("acl", "remove", *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--consume", "t"], "--consume needs --group"),
        (["--op", "read"], "--op needs a resource"),
        (["--topic", "t"], "--op needs a resource"),
        ([], "say what may be done"),
        (["--op", "reed", "--topic", "t"], "'reed' is not one of"),
        (["--produce", "t", "--host", "10.0.0.1/33"], "a host is one address or *"),
        (["--produce", "t", "--host", "localhost"], "neither a name nor a network"),
        (["--produce", "a b"], "names of topics have at most 249 of a-z"),
        (["--produce", "a*b"], "would never match"),
        (["--op", "cluster-action", "--topic", "t"], "CLUSTER_ACTION is never done to a topic"),
        (["--produce", "t", "--user", ""], "no user has an empty name"),
    ],
)
def test_mistakes_about_rights_name_the_cure(words: list[str], sentence: str) -> None:
    done = tidelog("acl", "add", "--user", "ann", *words)
    assert (done.returncode, sentence in done.stderr) == (ExitCode.USAGE, True), done.stderr


def test_a_name_that_may_mean_another_user_is_noted() -> None:
    done = tidelog("acl", "add", "--user", "Group:ops", "--produce", "t", "--dry-run")
    assert done.returncode == 0
    assert "a user whose name is 'Group:ops': there are no groups of users" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--user", ""], "--user '': 'User:' is not a principal"),
        (["--user", "ann", "--host", "10.0.0.0/8"], "--host '10.0.0.0/8' is no address"),
    ],
)
def test_a_question_that_no_request_asks_is_refused(words: list[str], sentence: str) -> None:
    done = tidelog("acl", "test", "--op", "read", "--topic", "t", *words)
    assert (done.returncode, sentence in done.stderr) == (ExitCode.USAGE, True), done.stderr


def test_a_window_has_the_rights_of_its_topic(admin: As, bob: As) -> None:
    window = "hidden.__t__20261101T100000Z__"
    for topic in ("hidden", "shown"):
        admin.run("topic", "create", topic)
    admin.run("acl", "add", "--user", "bob", "--consume", "*", "--group", "*")
    denial = ("acl", "add", "--user", "bob", "--deny", "--op", "all", "--topic")
    admin.run(*denial, "hidden")
    read = ("consume", "--from", "earliest", "--exit-at-end")
    question = ("acl", "test", "--user", "bob", "--op", "read", "--topic")
    assert "DENY" in admin.run(*question, window, code=1)
    assert "may not" in bob.run(*read, window, code=1)
    assert admin.run(*question, window.replace("hidden", "shown")).startswith("allowed: ")
    bob.run(*read, window.replace("hidden", "shown"))
    # A rule about the window itself does not count, which is said when it is made.
    own = window.replace("hidden", "shown")
    done = tidelog(*denial, own, "--dry-run")
    assert f"{own} is a window of shown" in done.stderr
    admin.run(*denial, own)
    assert admin.run(*question, own).startswith("allowed: ")
    bob.run(*read, own)
    admin.run("acl", "remove", *denial[2:], own)
    admin.run("acl", "remove", *denial[2:], "hidden")
    admin.run("acl", "remove", "--user", "bob", "--consume", "*", "--group", "*")


def test_what_a_provider_keeps_is_not_called_false(
    tmp_path: Path, passwords: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker shows the reference alone: neither who is a super user nor a default is known."""
    data = tmp_path / "data"
    words = ("--password-file", str(passwords / "admin"), "--data-dir", str(data))
    assert tidelog("user", "add", "admin", *words).returncode == 0
    monkeypatch.setenv("MORE_USERS", "User:root")
    monkeypatch.setenv("LET_IN", "true")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": AUTHORIZER,
        "config.providers": "env",
        "super.users": "User:admin;${env:MORE_USERS}",
        "allow.everyone.if.no.acl.found": "${env:LET_IN}",
    }
    with running_broker(data, settings=settings) as running:

        def asked(user: str) -> tuple[str, str]:
            login = {"TIDELOG_USER": "admin", "TIDELOG_PASSWORD_FILE": str(passwords / "admin")}
            question = ("acl", "test", "--user", user, "--op", "delete", "--topic", "t")
            done = tidelog(*question, server=running, **login)
            return done.stdout, done.stderr

        assert asked("admin")[0] == "allowed: User:admin is a super user\n"
        for name in ("root", "bob"):
            said, noted = asked(name)
            assert said == (
                "denied: no rule matches the resource, and allow.everyone.if.no.acl.found is not "
                "known here\n"
            )
            assert "super.users is not known here: a super user may do everything" in noted


def test_a_default_is_understood_in_capitals_as_the_broker_does(
    tmp_path: Path, passwords: Path
) -> None:
    data = tmp_path / "data"
    words = ("--password-file", str(passwords / "admin"), "--data-dir", str(data))
    assert tidelog("user", "add", "admin", *words).returncode == 0
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "TRUE",
    }
    login = {"TIDELOG_USER": "admin", "TIDELOG_PASSWORD_FILE": str(passwords / "admin")}
    with running_broker(data, settings=settings) as running:
        question = ("acl", "test", "--user", "bob", "--op", "delete", "--topic", "t")
        done = tidelog(*question, server=running, **login)
    assert done.returncode == ExitCode.OK
    assert done.stdout.startswith("allowed: ")


@pytest.mark.parametrize("name", ["*", "ANONYMOUS"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_name_that_rules_mean_otherwise_is_refused(
    name: str, is_stopped: bool, admin: As, tmp_path: Path
) -> None:
    if is_stopped:
        data = tmp_path / "data"
        done = tidelog("user", "add", name, "--generate", "--data-dir", str(data))
        assert (done.returncode, data.exists()) == (ExitCode.USAGE, False)
        refusal = done.stderr
    else:
        refusal = admin.run("user", "add", name, "--generate", code=ExitCode.USAGE)
        assert f'"{name}"' not in admin.run("user", "list", "--json")
    assert f"the name {name} stands for" in refusal


def test_a_user_without_rights_may_not_see_or_change_users(admin: As, bob: As) -> None:
    for words in (["user", "list"], ["acl", "list"], ["user", "remove", "admin"]):
        refusal = bob.run(*words, code=1)
        assert "CLUSTER_AUTHORIZATION_FAILED" in refusal
        assert "--admin to administer" in refusal
    assert "admin" in admin.run("user", "list")


def test_users_of_a_running_broker(admin: As, server: RunningBroker, tmp_path: Path) -> None:
    password = admin.run("user", "add", "eve", "--generate", "--mechanism", "SCRAM-SHA-256")
    secret = tmp_path / "eve"
    secret.write_text(password)
    login = {"TIDELOG_USER": "eve", "TIDELOG_PASSWORD_FILE": str(secret)}
    words = ("topic", "list", "--sasl-mechanism", "SCRAM-SHA-256")
    assert tidelog(*words, server=server, **login).returncode == 0
    rows = json.loads(admin.run("user", "list", "--json"))
    assert {"name": "eve", "mechanism": "SCRAM-SHA-256", "iterations": 8192} in rows
    secret.write_text("changed\n")
    admin.run("user", "passwd", "eve", "--password-file", str(secret))
    assert tidelog(*words, server=server, **login).returncode == 0
    admin.run("user", "remove", "eve")
    refused = tidelog(*words, server=server, **login)
    assert (refused.returncode, "check the user name" in refused.stderr) == (1, True)
    gone = admin.run("user", "remove", "eve", code=ExitCode.NOT_FOUND)
    assert "there is no user 'eve' with a password" in gone


def test_the_rules_of_a_user_who_is_removed_are_named_and_can_be_taken(admin: As) -> None:
    """The next user of the name would have them."""
    for name in ("zoe", "zo"):
        admin.run("user", "add", name, "--generate")
        admin.run("acl", "add", "--user", name, "--produce", "x")
    said = admin.notes("user", "remove", "zoe")
    cure = "tidelog acl remove --user zoe --all"
    assert "rules that name zoe: 3" in said
    assert said.rstrip().endswith(cure)
    refused = admin.run(*cure.split()[1:], "--produce", "x", code=ExitCode.USAGE)
    assert "--all takes every rule of the user" in refused
    assert len(admin.run(*cure.split()[1:]).splitlines()) == 3
    left = {rule["principal"] for rule in json.loads(admin.run("acl", "list", "--json"))}
    assert "User:zo" in left
    assert "User:zoe" not in left
    assert "no such rule" in admin.run(*cure.split()[1:], code=ExitCode.NOT_FOUND)
    admin.run("acl", "remove", "--user", "zo", "--all")
    assert admin.notes("user", "remove", "zo") == "removed zo\n"


def test_a_login_takes_the_only_line_of_its_file(server: RunningBroker, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    for content, sentence in ((b"", "first line is empty"), (b"b0b\nx\n", "more than one line")):
        secret.write_bytes(content)
        done = tidelog(
            "topic", "list", "--user", "bob", "--password-file", str(secret), server=server
        )
        assert (done.returncode, sentence in done.stderr) == (ExitCode.USAGE, True), done.stderr
    for content in (b"b0b", b"b0b\r\n", b"b0b\n\n"):
        secret.write_bytes(content)
        assert _codes(server, "bob", secret) == [0]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_changed_password_counts_for_every_mechanism(
    is_stopped: bool, admin: As, server: RunningBroker, tmp_path: Path
) -> None:
    former, fresh, data = tmp_path / "former", tmp_path / "fresh", tmp_path / "data"
    former.write_text("pencil\n")
    fresh.write_text("eraser\n")
    place = ["--data-dir", str(data)] if is_stopped else []

    def run(*words: str) -> str:
        if not is_stopped:
            return admin.run(*words)
        done = tidelog(*words, *place)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        run("user", "add", "mia", "--password-file", str(former), "--mechanism", mechanism)
    run("user", "passwd", "mia", "--password-file", str(fresh), "--iterations", "4096")
    listed = json.loads(run("user", "list", "--json"))
    assert [(it["mechanism"], it["iterations"]) for it in listed if it["name"] == "mia"] == [
        ("SCRAM-SHA-256", 4096),
        ("SCRAM-SHA-512", 4096),
    ]

    def codes(running: RunningBroker) -> list[int]:
        return [
            tidelog(
                "topic", "list", "--sasl-mechanism", mechanism, server=running,
                TIDELOG_USER="mia", TIDELOG_PASSWORD_FILE=str(secret),
            ).returncode
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for secret in (former, fresh)
        ]  # fmt: skip

    if not is_stopped:
        assert codes(server) == [1, 0, 1, 0]
        return
    with running_broker(data, settings={"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as running:
        assert codes(running) == [1, 0, 1, 0]


def test_a_further_mechanism_has_a_password_of_its_own_and_add_says_so(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "data"), "--generate")
    assert tidelog("user", "add", "ann", *place).returncode == 0
    added = tidelog("user", "add", "ann", "--mechanism", "SCRAM-SHA-256", *place)
    assert added.returncode == 0
    assert "ann logs in with SCRAM-SHA-512 too" in added.stderr


@pytest.mark.parametrize("is_stopped", [False, True])
def test_add_leaves_the_password_of_a_user_as_it_is(
    is_stopped: bool, admin: As, server: RunningBroker, passwords: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    first, second = passwords / "bob", tmp_path / "second"
    second.write_text("another\n")
    if is_stopped:
        place = ("--data-dir", str(data))
        assert tidelog("user", "add", "bob", *place, "--password-file", str(first)).returncode == 0
        done = tidelog("user", "add", "bob", *place, "--password-file", str(second))
        assert done.returncode == ExitCode.FAILED
        refusal = done.stderr
        generated = tidelog("user", "add", "bob", *place, "--generate")
        assert (generated.returncode, generated.stdout) == (ExitCode.FAILED, "")
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
        with running_broker(data, settings=settings) as running:
            assert _codes(running, "bob", first, second) == [0, 1]
    else:
        refusal = admin.run("user", "add", "bob", "--password-file", str(second), code=1)
        assert admin.run("user", "add", "bob", "--generate", code=1).count("tidelog:") == 1
        assert _codes(server, "bob", first, second) == [0, 1]
    assert "bob has a password for SCRAM-SHA-512 already" in refusal
    assert "tidelog user passwd bob" in refusal


def _codes(server: RunningBroker, name: str, *secrets: Path) -> list[int]:
    """How a command of user `name` ends with each of these passwords."""
    return [
        tidelog(
            "topic", "list", server=server, TIDELOG_USER=name, TIDELOG_PASSWORD_FILE=str(secret)
        ).returncode
        for secret in secrets
    ]


def test_the_password_of_a_user_that_does_not_exist(admin: As, tmp_path: Path) -> None:
    output = admin.run("user", "passwd", "nobody", "--generate", code=ExitCode.NOT_FOUND)
    assert "there is no user 'nobody' with a password" in output
    data = tmp_path / "data"
    assert tidelog("user", "add", "ann", "--generate", "--data-dir", str(data)).returncode == 0
    gone = tidelog("user", "passwd", "bob", "--generate", "--data-dir", str(data))
    assert (gone.returncode, gone.stdout) == (ExitCode.NOT_FOUND, "")
    assert "there is no user 'bob'" in gone.stderr


def test_a_directory_in_use_is_refused(server: RunningBroker, passwords: Path) -> None:
    done = tidelog(
        "user", "add", "eve", "--password-file", str(passwords / "bob"),
        "--data-dir", str(server.data_dir),
    )  # fmt: skip
    assert done.returncode == ExitCode.FAILED
    assert "another broker is using the data directory" in done.stderr


def test_users_of_a_stopped_directory(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text("\n")
    listed = tidelog("user", "list", "--data-dir", str(data))
    assert (listed.returncode, data.exists()) == (ExitCode.NOT_FOUND, False)
    add = ("user", "add", "ann", "--data-dir", str(data))
    empty = tidelog(*add, "--password-file", str(secret))
    assert (empty.returncode, "its first line is empty" in empty.stderr) == (2, True)
    secret.write_text("pencil\nanother\n")
    second = tidelog(*add, "--password-file", str(secret))
    assert (second.returncode, "it has more than one line" in second.stderr) == (2, True)
    secret.write_bytes(b"\xff\n")
    binary = tidelog(*add, "--password-file", str(secret))
    assert (binary.returncode, "is not UTF-8 text" in binary.stderr) == (2, True)
    both = tidelog(*add, "--password-file", str(secret), "--generate")
    assert (both.returncode, "give one of them" in both.stderr) == (2, True)
    unasked = tidelog(*add)
    assert (unasked.returncode, data.exists()) == (2, False)
    assert unasked.stderr.splitlines()[-2].endswith("give --password-file FILE, or --generate")
    assert "Warning" not in unasked.stderr
    made = tidelog(*add, "--generate")
    assert made.returncode == 0
    assert len(made.stdout.strip()) >= 20
    listed = tidelog("user", "list", "--data-dir", str(data), "--json")
    assert json.loads(listed.stdout) == [
        {"name": "ann", "mechanism": "SCRAM-SHA-512", "iterations": 8192}
    ]
    assert tidelog("user", "remove", "ann", "--data-dir", str(data)).returncode == 0
    gone = tidelog("user", "remove", "ann", "--data-dir", str(data))
    assert (gone.returncode, "there is no user 'ann'" in gone.stderr) == (4, True)
    assert made.stdout.strip().encode() not in (data / "metadata.journal").read_bytes()
