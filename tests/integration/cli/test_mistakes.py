"""Wrong input to commands: what is said, and that nothing is changed, read or left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import ExitCode
from tests.support.cli import environment, ok, tidelog
from tidelog.testing import RunningBroker, running_broker


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


def said(*words: str, server: RunningBroker, given: str | bytes = b"") -> str:
    """What a command that fails says."""
    done = tidelog(*words, server=server, given=given)
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


def positions(group: str, server: RunningBroker) -> list[tuple[str, int]]:
    document = json.loads(ok("group", "describe", group, "--json", server=server))
    return [(row["topic"], row["position"]) for row in document["positions"]]


def test_the_calendars_end_is_a_time(server: RunningBroker) -> None:
    """A traceback in UTC, and a number that looked like microseconds."""
    ok("produce", "end", "-q", server=server, given="1\n")
    for words in (
        ["offsets", "end", "--at", "9999-12-31"],
        ["consume", "end", "-f", "earliest", "-u", "9999-12-31", "-n", "1"],
        ["consume", "end", "-f", "9999-12-31", "-e"],
    ):
        done = tidelog(*words, server=server, TZ="UTC")
        assert (done.returncode, done.stderr) == (0, "")


def test_an_offset_outside_of_the_log_is_named_with_the_range(server: RunningBroker) -> None:
    """It used to start at 0 without a word."""
    ok("produce", "range", "-q", server=server, given="1\n2\n3\n")
    for words in ([], ["-e"]):
        sentence = said("consume", "range", "-f", "offset:99", *words, server=server)
        assert "range-0 has no offset 99: it has 0 to 3" in sentence
    assert ok("consume", "range", "-f", "3", "-e", server=server) == ""
    shown = ok("consume", "range", "-f", "2", "-e", "--format", "{value}", server=server)
    assert shown == "3\n"


def test_a_start_may_be_in_capitals(server: RunningBroker) -> None:
    ok("produce", "capitals", "-q", server=server, given="1\n")
    words = ["-f", "EARLIEST", "-e", "--format", "{value}"]
    assert ok("consume", "capitals", *words, server=server) == "1\n"


def test_contradicting_places_move_no_group(server: RunningBroker) -> None:
    ok("produce", "both", "-q", server=server, given="1\n2\n")
    ok("consume", "both", "-g", "both", "-f", "earliest", "-n", "1", server=server)
    moves = ["--to-earliest", "--to-latest", "--to-time", "now"]
    for pair in (moves[:2], moves[1:], [moves[0], *moves[2:]]):
        sentence = said("group", "reset", "both", *pair, "--execute", server=server)
        assert "contradict each other" in sentence
    assert positions("both", server) == [("both", 1)]


def test_a_group_moves_only_with_execute_and_is_made_only_with_new(server: RunningBroker) -> None:
    ok("produce", "moved", "-q", server=server, given="1\n2\n")
    words = ["group", "reset", "fresh", "--to-latest", "-t", "moved"]
    sentence = said(*words, "--execute", server=server)
    assert "there is no group fresh: see tidelog group list, or give --new" in sentence
    assert said("group", "describe", "fresh", server=server)
    document = json.loads(tidelog(*words, "--new", "--json", server=server).stdout)
    assert document["dry_run"] is True
    assert said("group", "describe", "fresh", server=server)
    ok(*words, "--new", "--execute", server=server)
    assert positions("fresh", server) == [("moved", 2)]


def test_an_unknown_setting_is_not_unset(server: RunningBroker) -> None:
    ok("topic", "create", "unset", "--set", "retention.ms=5000", server=server)
    words = ["topic", "alter", "unset", "--unset", "retention.ms"]
    sentence = said(*words, "--unset", "retention.m", server=server)
    assert "no setting retention.m; did you mean retention.ms? (nothing was changed)" in sentence
    facts = json.loads(ok("topic", "describe", "unset", "--json", server=server))
    assert facts["configs"] == {"retention.ms": "5000"}
    ok(*words, server=server)


def test_an_unknown_setting_is_not_set(server: RunningBroker) -> None:
    """With the code and the sentence of ``--unset``; a wrong value is the broker's to refuse."""
    ok("topic", "create", "set", server=server)
    for words in (["topic", "alter", "set"], ["topic", "create", "other"], ["retention", "set"]):
        done = tidelog(*words, "--set", "retention.m=1", server=server)
        assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, "")
        assert "topics have no setting retention.m; did you mean retention.ms?" in done.stderr
    assert "other" not in ok("topic", "list", server=server)
    sentence = said("cluster", "alter", "--set", "log.retention.m=1", server=server)
    assert "brokers have no setting log.retention.m; did you mean log.retention.ms?" in sentence
    both = ["--set", "retention.ms=x", "--set", "retention.bytes=1"]
    assert "not a whole number" in said("topic", "alter", "set", *both, server=server)


def test_a_setting_of_one_listener_is_one_that_listeners_have(server: RunningBroker) -> None:
    """Brokers list those that are set alone, so that the rest of the name decides."""
    for option, value in (("--set", "=1"), ("--unset", "")):
        done = tidelog("cluster", "alter", option, f"listener.name.x.foo{value}", server=server)
        assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, "")
        assert "brokers have no setting listener.name.x.foo" in done.stderr
    for key in ("max.connections", "plain.sasl.jaas.config"):
        ok("cluster", "alter", "--unset", f"listener.name.plaintext.{key}", server=server)
    sentence = said("cluster", "alter", "--set", "listener.name.x.plain.sasl.jaas.config=1",
                    server=server)  # fmt: skip
    assert "no setting" not in sentence


def test_a_missing_group_is_named_with_the_nearest(server: RunningBroker) -> None:
    ok("produce", "bills", "-q", server=server, given="1\n")
    ok("consume", "bills", "-g", "billing", "-f", "earliest", "-n", "1", server=server)
    for words in (["group", "describe"], ["group", "delete", "-y"], ["share", "describe"]):
        done = tidelog(*words, "biling", server=server)
        assert done.returncode == ExitCode.NOT_FOUND
        assert "did you mean the group billing?" in done.stderr
    sentence = said("group", "reset", "biling", "--to-earliest", server=server)
    assert "no group biling: did you mean billing? Or give --new" in sentence
    assert "did you mean" not in said("group", "describe", "quite-other", server=server)


def test_too_many_partitions_are_not_answered_with_more(server: RunningBroker) -> None:
    sentence = said("topic", "create", "many", "-p", "1000000", server=server)
    assert "max.partitions allows" in sentence
    assert "larger number" not in sentence


def test_a_refused_time_is_named_with_the_limit(server: RunningBroker) -> None:
    words = ["produce", "future", "--timestamp", "2099-01-01T00:00Z"]
    sentence = said(*words, server=server, given="1\n2\n")
    assert "2 of 2 records in the batch are refused" in sentence
    assert "the first, which has the time 2098-12-31T19:00:00.000-05:00" in sentence
    assert "4070908800000 (2099-01-01T00:00:00.000Z) is too new" in sentence
    assert "message.timestamp.after.max.ms of the topic and the broker's clock" in sentence
    ok("topic", "alter", "future", "--set", "message.timestamp.before.max.ms=1000", server=server)
    sentence = said("produce", "future", "--timestamp", "2013", server=server)
    assert "write 2013-01-01" in sentence
    sentence = said("produce", "future", "--timestamp", "2013-01-01", server=server, given="1\n")
    assert "is too old: by message.timestamp.before.max.ms" in sentence


def test_a_record_that_is_too_large_is_named_with_size_and_limit(server: RunningBroker) -> None:
    ok("topic", "create", "large", "--set", "max.message.bytes=1000", server=server)
    sentence = said("produce", "large", server=server, given="x" * 2000)
    assert "its largest record about 2000" in sentence
    assert "(max.message.bytes of large is 1000)" in sentence


def test_an_address_that_is_empty_is_not_the_default_one() -> None:
    """As `-b "$BROKER"` is where the variable is not set."""
    done = tidelog("topic", "list", "-b", "")
    assert done.returncode == ExitCode.USAGE
    assert "-b is empty: write -b HOST:PORT" in done.stderr


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    done = tidelog("serve", "--config", str(tmp_path))
    assert done.returncode == ExitCode.USAGE
    assert f"cannot read the configuration {tmp_path}: Is a directory" in done.stderr


def test_what_is_no_data_directory_is_not_audited(tmp_path: Path) -> None:
    """It used to warn of the mode of every file below, by the ten thousand."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "notes.txt").write_text("mine")
    done = tidelog("fsck", str(tmp_path))
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.count("\n") == 1
    assert "is not a data directory: it holds neither meta.properties" in done.stderr
    # A directory that lost its meta.properties is still one.
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"")
    assert "is not a data directory" not in tidelog("fsck", str(tmp_path)).stderr


def test_a_refused_export_or_import_leaves_nothing(server: RunningBroker, tmp_path: Path) -> None:
    target = tmp_path / "target"
    locked = tidelog("export-kraft", str(server.data_dir), str(target))
    assert (locked.returncode, "is using" in locked.stderr) == (ExitCode.FAILED, True)
    assert not target.exists()
    source = tmp_path / "source"
    source.mkdir()
    (source / "meta.properties").write_text("version=9\n")
    assert tidelog("import", str(source), str(target)).returncode == ExitCode.FAILED
    assert not target.exists()


def test_a_reader_that_has_gone_is_code_141_for_tables_too(server: RunningBroker) -> None:
    """rich ends the process with code 1."""
    ok("topic", "create", "piped", server=server)
    for words in (["topic", "list"], ["offsets", "piped"], ["config", "list"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            env=environment(server),
            timeout=60,
            check=False,
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (ExitCode.BROKEN_PIPE, b"")


def test_a_closed_standard_output_is_a_sentence_and_closed_input_is_empty(
    server: RunningBroker,
) -> None:
    def shell(line: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", f'exec "$0" -m tidelog {line}', sys.executable],
            capture_output=True,
            text=True,
            env=environment(server),
            timeout=60,
            check=False,
        )

    done = shell("topic list >&-")
    assert done.returncode == ExitCode.FAILED
    assert done.stderr == (
        "tidelog: standard output is closed: let it go somewhere, such as >/dev/null\n"
    )
    assert shell("topic list <&-").returncode == 0
    assert shell("topic list 2>&-").returncode == 0
    assert "0 records" in shell("produce piped <&-").stderr


# Draining the backlog of a group.


def test_a_group_reads_its_backlog_and_stops(server: RunningBroker) -> None:
    ok("topic", "create", "drain", "-p", "3", server=server)
    ok("produce", "drain", "-q", "-p", "0", server=server, given="a\nb\n")
    ok("produce", "drain", "-q", "-p", "1", server=server, given="c\n")
    words = ["consume", "drain", "-g", "drain", "-f", "earliest", "-e", "--format", "{value}"]
    assert sorted(ok(*words, server=server).split()) == ["a", "b", "c"]
    assert ok(*words, server=server) == ""
    ok("produce", "drain", "-q", "-p", "2", server=server, given="d\n")
    assert ok(*words, server=server) == "d\n"
    lags = json.loads(ok("group", "describe", "drain", "--json", server=server))["positions"]
    assert sum(row["lag"] for row in lags) == 0


def test_a_group_stops_before_the_first_record_of_a_time_and_skips_none(
    server: RunningBroker,
) -> None:
    """What follows that record is the next run's, though some of it may be older."""
    minutes = [0, 10, 30, 20, 50, 70]
    given = "".join(
        f'{{"value":"{m}","timestamp_ms":{1_372_953_600_000 + m * 60_000}}}\n' for m in minutes
    )
    ok("topic", "create", "until", "--set", "retention.ms=-1", server=server)
    ok("produce", "until", "-q", "--format", "json", server=server, given=given)
    words = ["consume", "until", "-g", "until", "-f", "earliest", "--format", "{value}"]

    def run(until: str) -> list[str]:
        return ok(*words, "--until", f"2013-07-04T{until}", server=server).split()

    assert run("12:25") == ["0", "10"]
    assert run("12:25") == []
    assert run("12:45") == ["30", "20"]
    assert run("14:00") == ["50", "70"]
    assert positions("until", server) == [("until", 6)]


def test_two_members_drain_a_topic_between_them(server: RunningBroker) -> None:
    ok("topic", "create", "shared", "-p", "4", server=server)
    for number in range(4):
        lines = "".join(f"{number}.{n}\n" for n in range(50))
        ok("produce", "shared", "-q", "-p", str(number), server=server, given=lines)
    words = ["consume", "shared", "-g", "shared", "-f", "earliest", "-e", "--format", "{value}"]
    members = [
        subprocess.Popen(
            [sys.executable, "-m", "tidelog", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(server),
        )
        for _ in range(2)
    ]
    shown = [line for member in members for line in member.communicate(timeout=60)[0].split()]
    assert [member.returncode for member in members] == [0, 0]
    assert set(shown) == {f"{p}.{n}" for p in range(4) for n in range(50)}
    lags = json.loads(ok("group", "describe", "shared", "--json", server=server))["positions"]
    assert sum(row["lag"] for row in lags) == 0


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
def test_a_number_that_no_request_can_hold_is_named_with_the_range(
    option: str, server: RunningBroker
) -> None:
    sentence = said("topic", "create", "many", option, "9" * 20, server=server)
    assert f"{'9' * 20} is not in the range 1<=x<=" in sentence


def test_a_text_that_is_no_number_is_named_with_the_range(server: RunningBroker) -> None:
    sentence = said("offsets", "flights", "-p", "one", server=server)
    assert "'one' is not a whole number; the range is x>=0" in sentence


def test_a_shift_that_is_no_number_is_named_with_the_range(server: RunningBroker) -> None:
    sentence = said("group", "reset", "g", "--shift-by", "one", server=server)
    assert "'one' is not a whole number; the range is -9223372036854775807<=x<=" in sentence


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--set", "nope=1"], "nope = '[hidden]' (command line): no such setting"),
        (["--data-dir", "/dev/null"], "the data directory cannot be used: /dev/null"),
    ],
)
def test_the_log_has_why_a_start_failed(tmp_path: Path, given: list[str], sentence: str) -> None:
    """A collector of JSON lines finds no plain text, and a log file does not end without a word."""
    done = tidelog("serve", *given, "--log-format", "json")
    line = json.loads(done.stderr)
    assert line["level"] == "critical"
    assert sentence in line["message"]
    log = tmp_path / "log"
    other = tidelog("serve", *given, "--log-file", str(log))
    assert done.returncode == other.returncode != 0
    assert sentence in log.read_text()
    assert sentence in other.stderr
