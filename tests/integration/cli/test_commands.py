"""The command line as a user meets it: a process, its output and its exit code."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import ExitCode
from tests.support.cli import environment, ok, tidelog
from tidelog.testing import BrokerDidNotStart, RunningBroker, running_broker

ROOT = Path(__file__).resolve().parents[3]
NOON = "2013-07-04T12:00-04:00"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    """One broker for this file; each test has topics of its own.

    Its first retention is due long after the tests: the records of 2013 outlive them.
    """
    settings = {"num.partitions": "2", "log.initial.task.delay.ms": "3600000"}
    with running_broker(settings=settings) as running:
        yield running


def parsed(*words: str, server: RunningBroker) -> Any:
    return json.loads(ok(*words, "--json", server=server))


def test_lines_go_in_and_come_out_with_their_times(server: RunningBroker) -> None:
    ok("produce", "lines", "-q", "-K", ":", "--timestamp", NOON, server=server, given="a:1\na:2\n")
    shown = ok("consume", "lines", "--from", "earliest", "--exit-at-end", server=server)
    lines = [line.split("  ") for line in shown.splitlines()]
    assert [line[0] for line in lines] == ["2013-07-04T12:00:00.000-04:00"] * 2
    assert [line[2:] for line in lines] == [["a", "1"], ["a", "2"]]


def test_offsets_of_a_partition_that_is_not_there_are_refused_at_once(
    server: RunningBroker,
) -> None:
    ok("topic", "create", "narrow", "-p", "2", server=server)
    started = time.monotonic()
    done = tidelog("offsets", "narrow", "-p", "7", "--at", NOON, server=server)
    assert done.returncode == ExitCode.NOT_FOUND
    assert done.stderr == "tidelog: narrow has no partition 7: it has 0 to 1\n"
    assert time.monotonic() - started < 10


def test_the_readmes_commands_show_their_record(server: RunningBroker) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ {4}((?:echo .* \| )?tidelog .*)$", text, re.M)
    assert len(commands) == 3
    directory = Path(sys.executable).parent
    shown = [
        subprocess.run(
            ["bash", "-c", f"PATH={directory}:$PATH; {command}"],
            capture_output=True,
            env=environment(server),
            timeout=60,
            check=True,
        ).stdout.decode()
        for command in commands
    ]
    assert "1h 0m" in shown[1] or "59m" in shown[1]
    assert shown[2].endswith("high water\n")


def test_the_readmes_snippet_shows_its_record(server: RunningBroker) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippet = text.partition("```python\n")[2].partition("```")[0]
    assert "127.0.0.1:9092" in snippet
    snippet = snippet.replace("127.0.0.1:9092", server.bootstrap).replace("harbour", "snippet")
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        capture_output=True,
        env=environment(server),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rb"20\d\d-\d\d-\d\d [\d:.]+\+00:00 b'low water'\n", done.stdout)


def test_json_output_is_json_input(server: RunningBroker) -> None:
    first = (
        '{"key":"k","value":"v","timestamp_ms":1372953600000,"headers":[["h","1"]]}\n'
        '{"key":null,"value":{"base64":"/wA="},"time":"2013-07-04T12:00:01-04:00"}\n'
    )
    ok("produce", "one", "-q", "--format", "json", "-p", "0", server=server, given=first)
    dump = ok("consume", "one", "-f", "earliest", "-e", "--json", server=server)
    ok("produce", "two", "-q", "--format", "json", server=server, given=dump)
    again = ok("consume", "two", "-f", "earliest", "-e", "--json", server=server)
    kept = ("partition", "timestamp_ms", "key", "value", "headers")
    for before, after in zip(dump.splitlines(), again.splitlines(), strict=True):
        old, new = json.loads(before), json.loads(after)
        assert [old[name] for name in kept] == [new[name] for name in kept]
    assert json.loads(again.splitlines()[1])["value"] == {"base64": "/wA="}


def test_a_reader_that_begins_at_the_end_learns_why_nothing_comes(server: RunningBroker) -> None:
    ok("produce", "here", "-q", server=server, given="a\n")
    done = tidelog("consume", "here", "-e", server=server)
    assert (done.returncode, done.stdout) == (0, "")
    assert "--from earliest shows what is there" in done.stderr
    for chosen in ("latest", "earliest"):
        assert not tidelog("consume", "here", "-e", "--from", chosen, server=server).stderr


def test_what_consume_writes_by_a_format_produce_reads_by_it(server: RunningBroker) -> None:
    template = r"{time}\t{partition}\t{key}\t{header.h}\t{value}"
    given = "2013-07-04T12:00:00.000-04:00\t0\tN1\t1\tup\tdown\n"
    ok("produce", "formatted", "-q", "--format", template, server=server, given=given)
    shown = ok("consume", "formatted", "-f", "0", "-e", "--format", template, server=server)
    assert shown == given
    (record,) = ok("consume", "formatted", "-f", "0", "-e", "--json", server=server).splitlines()
    found = json.loads(record)
    assert (found["key"], found["value"], found["headers"]) == ("N1", "up\tdown", [["h", "1"]])


def test_times_and_keys_may_come_from_fields(server: RunningBroker) -> None:
    given = '{"at":{"t":"2013-07-04T12:00:00-04:00"},"user":7}\n'
    words = ("--timestamp-field", "at.t", "--key-field", "user")
    ok("produce", "fields", "-q", *words, server=server, given=given)
    shown = ok("consume", "fields", "-f", "0", "-e", "--format", "{key} {time}", server=server)
    assert shown == "7 2013-07-04T12:00:00.000-04:00\n"


def test_bytes_go_in_and_come_out_unchanged(server: RunningBroker, tmp_path: Path) -> None:
    picture = tmp_path / "picture"
    picture.write_bytes(bytes(range(256)) * 3)
    ok("produce", "raw", "-q", "-p", "0", "--end", "", str(picture), server=server)
    given = b"a\t1\0b\tNULL\0"
    ok(
        *("produce", "raw", "-q", "-p", "0", "-K", r"\t", "--end", r"\0", "--null", "NULL"),
        server=server,
        given=given,
    )
    words = "consume raw -f 0 -n 1 -p 0 --raw --end"
    shown = subprocess.run(
        [sys.executable, "-m", "tidelog", *words.split(), ""],
        capture_output=True,
        env=environment(server),
        timeout=60,
        check=True,
    )
    assert shown.stdout == picture.read_bytes()
    rest = ok("consume", "raw", "-f", "1", "-p", "0", "-e", "--json", server=server)
    assert [(r["key"], r["value"]) for r in map(json.loads, rest.splitlines())] == [
        ("a", "1"),
        ("b", None),
    ]


def test_records_are_filtered_and_shown_by_what_is_in_them(server: RunningBroker) -> None:
    given = "".join(f'{{"user":{{"id":{n}}},"kind":"k{n % 2}"}}\n' for n in range(6))
    ok("produce", "inside", "-q", "-p", "0", server=server, given=given)
    words = ("consume", "inside", "-f", "0", "-p", "0", "-e")
    where = ("--where", "value.kind = k1 and value.user.id > 1")
    shown = ok(*words, *where, "--format", r"{offset}\t{value.user.id}", server=server)
    assert shown == "3\t3\n5\t5\n"
    grouped = ("consume", "inside", "-f", "earliest", "-g", "sieve", "-e")
    assert ok(*grouped, *where, "--format", "{offset}", server=server) == "3\n5\n"
    (row,) = parsed("group", "describe", "sieve", server=server)["positions"][:1]
    assert (row["position"], row["lag"]) == (6, 0)


def test_a_window_of_time_is_exact_over_records_out_of_order(server: RunningBroker) -> None:
    minutes = [5, 50, 10, 61, 20, 70, 30, 0]
    given = "".join(
        f'{{"value":"{m}","timestamp_ms":{1_372_953_600_000 + m * 60_000}}}\n' for m in minutes
    )
    ok("produce", "window", "-q", "--format", "json", "-p", "0", server=server, given=given)
    window = ("--from", "2013-07-04T12:10", "--until", "2013-07-04T13:00")
    shown = ok("consume", "window", *window, "--format", "{value}", server=server)
    assert shown.split() == ["50", "10", "20", "30"]


def test_offsets_at_a_time(server: RunningBroker) -> None:
    for minute in ("00", "30"):
        stamp = ("--timestamp", f"2013-07-04T12:{minute}", "-p", "1")
        ok("produce", "at", "-q", *stamp, server=server, given="x\n")
    document = parsed("offsets", "at", "--at", "2013-07-04T12:10", server=server)
    assert document["at_ms"] == 1_372_954_200_000
    empty, found = document["partitions"]
    assert (empty["offset"], empty["timestamp_ms"]) == (None, None)
    assert (found["offset"], found["time"]) == (1, "2013-07-04T12:30:00.000-04:00")
    table = ok("offsets", "at", "--at", "2013-07-04T12:10", server=server)
    assert "no such record" in table
    assert table.splitlines()[-1].split() == ["1", "1", "2013-07-04T12:30:00.000-04:00", "20m"]


def test_the_ends_of_partitions(server: RunningBroker) -> None:
    ok("produce", "ends", "-q", "-p", "0", server=server, given="x\ny\n")
    document = parsed("offsets", "ends", server=server)
    assert document["partitions"][0] == {
        "partition": 0,
        "earliest_offset": 0,
        "latest_offset": 2,
    }
    assert parsed("offsets", "ends", "--latest", server=server)["partitions"][0]["offset"] == 2


def test_a_topic_from_creation_to_deletion(server: RunningBroker) -> None:
    ok("topic", "create", "life", "-p", "3", "--set", "retention.ms=-1", server=server)
    ok("topic", "alter", "life", "--set", "segment.bytes=2000000", server=server)
    ok("topic", "partitions", "life", "4", server=server)
    facts = parsed("topic", "describe", "life", server=server)
    assert [p["partition"] for p in facts["partitions"]] == [0, 1, 2, 3]
    assert facts["configs"] == {"retention.ms": "-1", "segment.bytes": "2000000"}
    assert "life" in [topic["topic"] for topic in parsed("topic", "list", server=server)]
    refused = tidelog("topic", "delete", "life", server=server)
    assert refused.returncode == ExitCode.USAGE
    ok("topic", "delete", "life", "--yes", server=server)
    gone = tidelog("topic", "describe", "life", server=server)
    assert gone.returncode == ExitCode.NOT_FOUND


def test_records_before_a_time_are_deleted(server: RunningBroker) -> None:
    """One is late and stays; none that is newer goes."""
    ok("topic", "create", "aging", "-p", "2", "--set", "retention.ms=-1", server=server)
    for partition, minutes in ("0", (0, 10, 50, 5, 55)), ("1", (1, 2)):
        for minute in minutes:
            stamp = ("--timestamp", f"2013-07-04T12:{minute:02}", "-p", partition)
            ok("produce", "aging", "-q", *stamp, server=server, given="x\n")
    words = ("topic", "delete-records", "aging", "--before", "2013-07-04T12:30")
    table = tidelog(*words, server=server).stdout
    assert table.startswith("Would delete the records of aging before 2013-07-04T12:30")
    plan = parsed(*words, server=server)
    assert [(one["from"], one["to"], one["end"]) for one in plan["partitions"]] == [
        (0, 2, 5),
        (0, 2, 2),
    ]
    assert plan["partitions"][0]["next"]["time"] == "2013-07-04T12:50:00.000-04:00"
    assert plan["partitions"][1]["next"] is None
    starts = parsed("offsets", "aging", server=server)["partitions"]
    assert [one["earliest_offset"] for one in starts] == [0, 0]
    ok(*words, "-p", "0", "--execute", server=server)
    starts = parsed("offsets", "aging", server=server)["partitions"]
    assert [one["earliest_offset"] for one in starts] == [2, 0]
    shown = ok("consume", "aging", "-p", "0", "--from", "earliest", "--exit-at-end",
               "--format", "{offset}", server=server)  # fmt: skip
    assert shown.split() == ["2", "3", "4"]


def test_records_before_an_offset_or_all_are_deleted(server: RunningBroker) -> None:
    ok("topic", "create", "long", "-p", "2", "--set", "retention.ms=-1", server=server)
    ok("produce", "long", "-q", "-p", "1", server=server, given="1\n2\n3\n4\n5\n6\n")

    def plan(*words: str) -> tuple[bool, list[tuple[Any, ...]]]:
        found = parsed("topic", "delete-records", "long", *words, server=server)
        names = ("partition", "from", "to", "end")
        return found["dry_run"], [tuple(map(row.get, names)) for row in found["partitions"]]

    def left() -> list[str]:
        shown = ("consume", "long", "-f", "earliest", "-e", "--format", "{value}")
        return ok(*shown, server=server).split()

    assert plan("--before", "offset:2", "-p", "1") == (True, [(1, 0, 2, 6)])
    assert left() == list("123456")
    assert plan("--before", "2", "-p", "1", "--execute") == (False, [(1, 0, 2, 6)])
    assert left() == list("3456")
    words = ("topic", "delete-records", "long", "--before")
    for outside in (["offset:7", "-p", "1"], ["offset:1"], ["offset:2", "-p", "0", "-p", "1"]):
        refused = tidelog(*words, *outside, "--execute", server=server)
        assert refused.returncode == ExitCode.FAILED, outside
    assert refused.stderr.startswith("tidelog: long-0 has no offset 2: it has 0 to 0;")
    assert left() == list("3456")
    table = tidelog(*words, "offset:3", "-p", "1", server=server)
    assert table.stdout.startswith("Would delete the records of long before offset 3:\n")
    assert plan("--before", "latest", "--execute") == (False, [(0, 0, 0, 0), (1, 2, 6, 6)])
    assert left() == []


def test_a_group_reads_is_described_and_moved_in_time(server: RunningBroker) -> None:
    topic, group = f"grouped-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    ok("produce", topic, "-q", "-p", "0", "--timestamp", NOON, server=server, given="a\nb\n")
    words = ("--group", group, "--from", "earliest", "--max", "2", "--format", "{value}")
    assert ok("consume", topic, *words, server=server) == "a\nb\n"
    position = parsed("group", "describe", group, server=server)["positions"][0]
    assert (position["position"], position["end"], position["lag"]) == (2, 2, 0)
    move = ("group", "reset", group, "--to-time", "2013-07-04")
    moved = parsed(*move, "--dry-run", server=server)["positions"][0]
    assert (moved["from"], moved["to"]) == (2, 0)
    shown = tidelog(*move, server=server)
    assert shown.stderr == "Nothing was changed; add --execute to do it.\n"
    assert parsed("group", "describe", group, server=server)["positions"][0]["lag"] == 0
    ok(*move, "--execute", server=server)
    assert parsed("group", "describe", group, server=server)["positions"][0]["lag"] == 2
    ok("group", "delete", group, "-y", server=server)
    assert tidelog("group", "describe", group, server=server).returncode == ExitCode.NOT_FOUND


def test_a_group_of_the_consumer_protocol_reads_its_backlog(server: RunningBroker) -> None:
    topic, group = f"grouped-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    ok("produce", topic, "-q", server=server, given="one\ntwo\n")
    words = ("-g", group, "--group-protocol", "consumer", "-f", "earliest", "-e")
    assert ok("consume", topic, *words, "--format", "{value}", server=server) == "one\ntwo\n"
    assert ok("consume", topic, *words, "--format", "{value}", server=server) == ""
    (listed,) = [each for each in parsed("group", "list", server=server) if each["group"] == group]
    assert listed["type"] == "consumer"
    refused = tidelog("consume", topic, "--group-protocol", "consumer", server=server)
    assert refused.returncode == ExitCode.USAGE
    assert "--group-protocol needs --group" in refused.stderr


def test_a_group_is_moved_by_offset_by_a_shift_and_by_a_file(
    server: RunningBroker, tmp_path: Path
) -> None:
    ok(
        "produce",
        "moved",
        "-q",
        "-p",
        "0",
        server=server,
        given="".join(f"{n}\n" for n in range(9)),
    )
    ok("consume", "moved", "-g", "mover", "-f", "earliest", "-e", server=server)
    before = ok("group", "describe", "mover", "--json", server=server)
    (tmp_path / "before.json").write_text(before)

    def moved(*words: str) -> list[tuple[int, int]]:
        found = parsed("group", "reset", "mover", *words, "--execute", server=server)
        return [(row["partition"], row["to"]) for row in found["positions"]]

    assert moved("--to-offset", "4") == [(0, 4), (1, 0)]
    assert moved("--shift-by", "-3") == [(0, 1), (1, 0)]
    assert moved("--shift-by", "100") == [(0, 9), (1, 0)]
    dry = parsed("group", "reset", "mover", "--to-offset", "2", server=server)
    (tmp_path / "dry.json").write_text(json.dumps(dry))
    assert moved("--from-file", str(tmp_path / "dry.json")) == [(0, 2), (1, 0)]
    assert moved("--from-file", str(tmp_path / "before.json")) == [(0, 9), (1, 0)]
    assert ok("group", "describe", "mover", "--json", server=server) == before


def test_the_cluster_and_its_settings_are_shown_and_changed(server: RunningBroker) -> None:
    facts = parsed("cluster", "describe", server=server)
    (one,) = facts["brokers"]
    assert (one["address"], one["is_controller"]) == (server.bootstrap, True)
    assert server.bootstrap in ok("cluster", "describe", server=server)
    ok("cluster", "alter", "--set", "log.cleaner.threads=2", server=server)
    rows = parsed("cluster", "configs", "log.cleaner.threads", server=server)
    assert [(row["name"], row["value"]) for row in rows] == [("log.cleaner.threads", "2")]
    ok("cluster", "alter", "--unset", "log.cleaner.threads", server=server)
    assert tidelog("cluster", "configs", "log.cleaner.threads", server=server).returncode == 4
    names = [row["name"] for row in parsed("cluster", "configs", "--all", server=server)]
    assert "log.cleaner.threads" in names


def test_a_misspelt_topic_is_answered_with_the_nearest(server: RunningBroker) -> None:
    ok("topic", "create", "lighthouse", server=server)
    for words in (("topic", "describe"), ("consume",), ("offsets",), ("topic", "delete", "-y")):
        done = tidelog(*words, "lighthuose", server=server)
        assert done.returncode == ExitCode.NOT_FOUND
        assert done.stderr.endswith("did you mean the topic lighthouse?\n"), done.stderr


def test_creating_is_answered_for_programs(server: RunningBroker) -> None:
    words = ("topic", "create", "made", "-r", "1", "--if-not-exists")
    assert parsed(*words, server=server) == {"topic": "made", "created": True}
    assert parsed(*words, server=server) == {"topic": "made", "created": False}


def test_a_group_has_settings_of_its_own(server: RunningBroker) -> None:
    name, key = "set-up", "share.auto.offset.reset"
    ok("produce", "before", "-q", "-p", "0", server=server, given="early\n")
    assert ok("share", "alter", name, "--set", f"{key}=earliest", server=server).startswith("Chan")
    read = ("share", "consume", "before", "-g", name, "--max", "1", "--format", "{value}")
    assert ok(*read, server=server) == "early\n"
    entries = parsed("share", "configs", name, server=server)
    assert {"name": key, "value": "earliest", "source": "group"} in entries
    assert "share.isolation.level" in ok("group", "configs", name, server=server)
    wrong = tidelog("group", "alter", name, "--set", "share.session.timeout.ms=1", server=server)
    assert wrong.returncode == ExitCode.FAILED
    assert "group.share.min.session.timeout.ms" in wrong.stderr
    ok("group", "alter", name, "--unset", key, server=server)
    (entry,) = (e for e in parsed("group", "configs", name, server=server) if e["name"] == key)
    assert entry == {"name": key, "value": "latest", "source": "default"}
    ok("share", "delete", name, "-y", server=server)


def test_a_group_of_another_kind_is_named_as_one(server: RunningBroker) -> None:
    words = ("share", "reset", "queue", "--to-earliest", "-t", "kinds", "--new", "--execute")
    ok("topic", "create", "kinds", server=server)
    ok(*words, server=server)
    moves = ("--to-earliest", "-t", "kinds", "--new")
    for given in (("describe",), ("reset", *moves)):
        done = tidelog("group", given[0], "queue", *given[1:], server=server)
        assert done.returncode == ExitCode.NOT_FOUND
        assert done.stderr == "tidelog: queue is a share group: use 'tidelog share'\n"
    ok("group", "reset", "usual", *moves, "--execute", server=server)
    for given in (("describe",), ("reset", *moves)):
        done = tidelog("share", given[0], "usual", *given[1:], server=server)
        assert done.returncode == ExitCode.NOT_FOUND
        assert done.stderr == "tidelog: usual is no share group: use 'tidelog group'\n"
    ok("group", "delete", "usual", "-y", server=server)
    ok("share", "delete", "queue", "-y", server=server)


def test_a_share_group_reads_is_described_moved_and_deleted(
    server: RunningBroker, tmp_path: Path
) -> None:
    ok("produce", "jobs", "-q", "-p", "0", server=server, given="a\nb\nc\n")
    moved = parsed("share", "reset", "s", "--to-earliest", "-t", "jobs", "--new", server=server)
    assert moved["dry_run"] is True
    assert tidelog("share", "describe", "s", server=server).returncode == ExitCode.NOT_FOUND
    begin = ("share", "reset", "s", "--to-earliest", "-t", "jobs", "--new", "--execute")
    assert "Moved s to the beginning" in ok(*begin, server=server)
    words = ("--format", "{value} {deliveries}", "--max")
    read = ("share", "consume", "jobs", "-g", "s", *words)
    assert ok(*read, "1", "--then", "release", server=server) == "a 1\n"
    assert ok(*read, "2", server=server) == "a 2\nb 1\n"
    found = parsed("share", "describe", "s", server=server)
    assert (found["state"], found["members"]) == ("Empty", [])
    assert (found["protocol_type"], found["assignor"]) == ("share", "simple")
    position = next(each for each in found["positions"] if each["partition"] == 0)
    assert (position["lag"], position["client_ids"]) == (1, [])
    idle = ("share", "consume", "jobs", "-g", "s", "--idle", "500ms", "--json")
    (record,) = ok(*idle, server=server).splitlines()
    assert json.loads(record)["delivery_count"] == 1
    reset = ("share", "reset", "s", "--execute")
    ok(*reset, "--to-offset", "2", "-t", "jobs", server=server)
    (tmp_path / "s.json").write_text(ok("share", "describe", "s", "--json", server=server))
    row = {"topic": "jobs", "partition": 0, "from": 2, "to": 1}
    assert row in parsed(*reset, "--shift-by", "-1", server=server)["positions"]
    row |= {"from": 1, "to": 2}
    back = ("--from-file", str(tmp_path / "s.json"))
    assert row in parsed(*reset, *back, server=server)["positions"]
    (record,) = ok(*idle, server=server).splitlines()
    assert json.loads(record)["value"] == "c"
    assert {"group": "s", "state": "Empty"} in parsed("share", "list", server=server)
    shown = ok("share", "describe", "s", server=server)
    assert "s: Empty, 0 members" in shown
    assert "jobs" in shown
    ok("share", "delete", "s", "-t", "jobs", "-y", server=server)
    assert parsed("share", "describe", "s", server=server)["positions"] == []
    ok("share", "delete", "s", "-y", server=server)
    assert parsed("share", "list", server=server) == []


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["offsets", "t", "--at", "1372953600"], ExitCode.USAGE, "looks like seconds"),
        (["offsets", "nope", "--at", "now"], ExitCode.NOT_FOUND, "create the topic first"),
        (["consume", "t", "-f", "1372953600"], ExitCode.USAGE, "write offset:1372953600"),
        (["consume", "t", "--format", "{x}"], ExitCode.USAGE, "no field {x}"),
        (["produce", "t", "--format", "xml"], ExitCode.USAGE, "raw, json, or a template"),
        (["produce", "t", "--format", "{value}{key}"], ExitCode.USAGE, "no text between"),
        (["produce", "t", "--format", "{key} {value}", "-K", ":"], ExitCode.USAGE, "contradict"),
        (["topic", "create", "a b"], ExitCode.USAGE, "INVALID_TOPIC"),
        (["group", "describe", "nope"], ExitCode.NOT_FOUND, "GROUP_ID_NOT_FOUND"),
        (["topic", "list", "-b", "127.0.0.1:1"], ExitCode.UNREACHABLE, "nothing listens"),
        (["topic", "list", "-b", "h:x"], ExitCode.USAGE, "write host:port"),
    ],
)
def test_mistakes_are_one_sentence_and_an_exit_code(
    server: RunningBroker, words: list[str], code: ExitCode, sentence: str
) -> None:
    done = tidelog(*words, server=server)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("tidelog: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_line_is_named_and_what_came_before_is_kept(server: RunningBroker) -> None:
    given = '{"value":"1"}\nnonsense\n'
    done = tidelog("produce", "bad", "--format", "json", server=server, given=given)
    assert done.returncode == ExitCode.FAILED
    assert "stdin, line 2: not JSON" in done.stderr
    shown = ok("consume", "bad", "-f", "earliest", "-e", "--format", "{value}", server=server)
    assert shown == "1\n"


def test_following_shows_new_records_and_ends_cleanly_with_ctrl_c(server: RunningBroker) -> None:
    ok("topic", "create", "follow", server=server)
    words = [sys.executable, "-m", "tidelog", "consume", "follow", "--format", "{value}"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A test run in the background of a shell ignores SIGINT, and its children inherit that.
    pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with (
        subprocess.Popen(words, env=environment(server), bufsize=0, **pipes) as process,
        contextlib.ExitStack() as at_last,
    ):
        at_last.callback(process.kill)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        seen = b""
        deadline = time.monotonic() + 30
        while b"hello" not in seen and time.monotonic() < deadline:
            ok("produce", "follow", "-q", server=server, given="hello\n")
            seen += process.stdout.read() or b""
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(30)
    assert b"hello\n" in seen
    assert (process.returncode, errors) == (ExitCode.INTERRUPTED, b"")


def test_a_reader_that_goes_away_is_no_error(server: RunningBroker) -> None:
    lines = "".join(f"{n}\n" for n in range(50_000))
    ok("produce", "pipe", "-q", server=server, given=lines)
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "consume", "pipe", "-f", "earliest", "-e"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(server),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=20), errors) == (ExitCode.BROKEN_PIPE, b"")


def test_a_stopped_directory_is_sound_and_its_segments_too(tmp_path: Path) -> None:
    with running_broker(tmp_path) as server:
        ok("produce", "t", "-q", "-z", "lz4", server=server, given="1\n2\n3\n")
        assert server.stop() == 0
    assert tidelog("fsck", str(tmp_path)).returncode == 0
    log = tmp_path / "t-0" / f"{0:020}.log"
    done = tidelog("dump-segment", str(log), "--records")
    assert done.returncode == 0
    assert "3 records, no problem found" in done.stdout
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    damaged = tidelog("dump-segment", "--json", str(log))
    assert damaged.returncode == ExitCode.DAMAGED
    assert json.loads(damaged.stdout.splitlines()[-1])["problems"]
    assert tidelog("fsck", "--json", str(tmp_path)).returncode == ExitCode.DAMAGED


def test_all_problems_of_a_configuration_are_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text("num.partitons=3\nlog.retention.ms=abc\n")
    for words in (["config", "check", str(file)], ["serve", "--config", str(file)]):
        done = tidelog(*words)
        assert done.returncode == ExitCode.CONFIG
        assert "did you mean num.partitions?" in done.stderr
        assert "log.retention.ms = 'abc'" in done.stderr


def test_a_second_broker_on_a_directory_learns_which_process_has_it(tmp_path: Path) -> None:
    with (
        running_broker(tmp_path) as first,
        pytest.raises(BrokerDidNotStart, match=f"process {first.process.pid}"),
        running_broker(tmp_path),
    ):
        pass


def test_a_taken_port_is_reported(server: RunningBroker, tmp_path: Path) -> None:
    done = tidelog("serve", "--data-dir", str(tmp_path), "--listen", server.bootstrap)
    assert done.returncode == ExitCode.FAILED
    assert f"{server.bootstrap} is taken" in done.stderr


def test_records_older_than_the_retention_are_warned_of(server: RunningBroker) -> None:
    old = ("produce", "old", "--timestamp", NOON)
    assert "retention.ms=-1" in tidelog(*old, server=server, given="1\n").stderr
    ok("topic", "alter", "old", "--set", "retention.ms=-1", server=server)
    assert "Warning" not in tidelog(*old, server=server, given="2\n").stderr
    assert "Warning" not in tidelog("produce", "new", server=server, given="3\n").stderr
