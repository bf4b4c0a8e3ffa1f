"""Shells complete commands, options, topics and groups; profiles say how to connect."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import ExitCode
from tests.support.cli import environment, ok, tidelog
from tidelog.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with running_broker() as running:
        ok("topic", "create", "harbour", server=running)
        ok("topic", "create", "harvest", server=running)
        ok("consume", "harbour", "-g", "pilots", "-f", "earliest", "-e", server=running)
        yield running


def completed(server: RunningBroker, *words: str) -> list[str]:
    """What bash gets for a line of these words, the last of which is being typed."""
    done = tidelog(
        server=server,
        _TIDELOG_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(("tidelog", *words)),
        COMP_CWORD=str(len(words)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_commands_options_topics_and_groups_are_completed(server: RunningBroker) -> None:
    assert completed(server, "conf") == ["config"]
    assert completed(server, "topic", "de") == ["delete", "delete-records", "describe"]
    assert "--timestamp-field" in completed(server, "produce", "--t")
    assert completed(server, "produce", "harbour", "--format", "j") == ["json"]
    assert completed(server, "consume", "harb") == ["harbour"]
    assert completed(server, "docs", "tut") == ["tutorial"]
    assert completed(server, "topic", "describe", "har") == ["harbour", "harvest"]
    assert completed(server, "group", "reset", "pi") == ["pilots"]
    assert completed(server, "consume", "-b", "127.0.0.1:1", "har") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one(shell: str, server: RunningBroker, tmp_path: Path) -> None:
    script = ok("completion", shell, server=server)
    assert "_TIDELOG_COMPLETE" in script
    if shutil.which(shell) is None:
        return
    file = tmp_path / "script"
    file.write_text(script)
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_with_the_script(server: RunningBroker) -> None:
    place = Path(sys.executable).parent
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'PATH={place}:$PATH; eval "$(tidelog completion bash)"; COMP_WORDS=(tidelog consume '
            'harb); COMP_CWORD=2; _tidelog_completion tidelog; echo "${COMPREPLY[@]}"',
        ],
        capture_output=True,
        text=True,
        env=environment(server),
        check=False,
    )
    assert done.stdout.split() == ["harbour"], done.stderr


def test_zsh_takes_the_script_without_a_set_up(tmp_path: Path) -> None:
    """Where no .zshrc has run compinit; a file of functions may have it already."""
    if shutil.which("zsh") is None:
        return
    place = Path(sys.executable).parent
    line = f'PATH={place}:$PATH; eval "$(tidelog completion zsh)"; echo $_comps[tidelog]'
    done = subprocess.run(
        ["zsh", "-f", "-c", line],
        capture_output=True,
        text=True,
        env=environment(None) | {"HOME": str(tmp_path)},
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("_tidelog_completion", "")


def test_a_profile_says_how_to_connect(server: RunningBroker, tmp_path: Path) -> None:
    home: dict[str, Any] = {"XDG_CONFIG_HOME": str(tmp_path)}
    empty = tidelog("profile", "list", **home)
    assert "no profiles yet" in empty.stderr
    stored = tidelog("profile", "set", "lab", f"bootstrap.servers={server.bootstrap}", **home)
    assert stored.returncode == 0, stored.stderr
    file = tmp_path / "tidelog" / "profiles" / "lab.properties"
    assert file.stat().st_mode & 0o777 == 0o600
    named = tidelog("topic", "list", "--profile", "lab", **home)
    assert "harbour" in named.stdout
    by_variable = tidelog("topic", "list", TIDELOG_PROFILE="lab", **home)
    assert by_variable.stdout == named.stdout
    # A variable for other programs does not turn the named cluster into another one.
    elsewhere: dict[str, Any] = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", **home}
    assert tidelog("topic", "list", "--profile", "lab", **elsewhere).stdout == named.stdout
    assert tidelog("topic", "list", **elsewhere).returncode == 3
    assert tidelog("topic", "list", "--profile", "lab", "-b", "127.0.0.1:1", **home).returncode == 3


def test_a_profile_is_changed_key_by_key_or_not_at_all(tmp_path: Path) -> None:
    home: dict[str, Any] = {"XDG_CONFIG_HOME": str(tmp_path)}
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="s3cret";'
    )
    words = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256")
    given = ("bootstrap.servers=h:1", *words, f"sasl.jaas.config={login}")
    assert tidelog("profile", "set", "lab", *given, **home).returncode == 0
    refused = tidelog("profile", "set", "lab", "sasl.mechanism=NONE", **home)
    assert refused.returncode == ExitCode.USAGE
    assert "sasl.mechanism" in refused.stderr
    typo = tidelog("profile", "set", "lab", "security.protocl=SSL", **home)
    assert typo.returncode == ExitCode.USAGE, "a connection without TLS"
    assert "security.protocl" in typo.stderr
    assert tidelog("profile", "set", "lab", "bootstrap.servers=i:2", **home).returncode == 0
    other = tidelog("profile", "set", "lab", "fetch.min.bytes=1", **home)
    assert (other.returncode, "without effect here" in other.stderr) == (0, True)
    shown = tidelog("profile", "list", **home).stdout
    assert shown.splitlines()[1].split() == ["lab", "i:2", "no", "ann", "SCRAM-SHA-256"]
    assert "s3cret" not in shown
    assert tidelog("profile", "remove", "lab", **home).returncode == 0
    assert not list((tmp_path / "tidelog" / "profiles").iterdir())
