"""Statistics of segments spare reading at both ends of a window, and never a row of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from client.core.options import NOT_SECURED, Security
from client.errors import UnsupportedByBroker
from client.types import OffsetAndTimestamp
from pipeline.jobs.plan import describe_plan
from pipeline.options.narrowing import NO_UPPER_TIME
from pipeline.options.options import SourceOptions, TopicPartition, parse_source_options
from pipeline.plan.offsets import ReadPlan, _end_by_lateness, resolve
from pipeline.plan.pruning import (
    MANIFEST,
    Counted,
    Pruned,
    SegmentTimes,
    from_manifest,
    from_named_port,
    parse_segments,
    prune,
)
from pipeline.plan.reading import RangeReader
from pipeline.plan.splits import OffsetRange, arrange
from pipeline.records.batches import DecodeRules
from protocol.records.checksums import crc32c
from protocol.records.layout import INT64_MAX, INT64_MIN
from tests.unit.pipeline.partition_double import PartitionDouble

WHOLE = OffsetRange("t", 0, 0, 50)


def options(**named: str) -> SourceOptions:
    dotted = {name.replace("__", "."): value for name, value in named.items()}
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    return parse_source_options({**base, **dotted}, is_stream=False)


def line(kind: str, **values: int) -> bytes:
    body = " ".join([kind, *(f"{name}={value}" for name, value in values.items())]).encode()
    return body + b" %08x\n" % crc32c(body)


def write_partition(data_dir: Path, times: list[tuple[int, int]]) -> Path:
    """Segments of ten offsets with these (oldest, youngest) times; the last one is open."""
    folder = data_dir / "t-0"
    folder.mkdir(parents=True, exist_ok=True)
    content = b"tidelog segment manifest 1\n"
    for number, (oldest, youngest) in enumerate(times):
        (folder / f"{number * 10:020d}.log").write_bytes(b"x" * 100)
        content += line(
            "segment", base_offset=number * 10, next_offset=number * 10 + 10, size_bytes=100,
            max_timestamp=youngest, min_timestamp=oldest,
        )  # fmt: skip
    (folder / f"{len(times) * 10:020d}.log").touch()
    (folder / MANIFEST).write_bytes(content + line("start", offset=0))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The five segments of the module's drawing, the fifth one open."""
    return write_partition(tmp_path, [(800, 904), (900, 940), (850, 1010), (1005, 1100)])


def test_a_window_keeps_what_overlaps_it_at_both_ends(folder: Path) -> None:
    hybrid = options(readFrom="hybrid", segments__path=str(folder.parent))
    kept, pruned = prune(hybrid, [WHOLE], 910, 1000)
    assert kept == [OffsetRange("t", 0, 10, 30), OffsetRange("t", 0, 40, 50)]
    assert (pruned.known, pruned.skipped, pruned.offsets) == (4, 2, 20)
    assert pruned.by_partition == {("t", 0): 20}


def test_a_range_inside_a_pruned_segment_disappears(folder: Path) -> None:
    hybrid = options(readFrom="hybrid", segments__path=str(folder.parent))
    kept, pruned = prune(hybrid, [OffsetRange("t", 0, 32, 38)], 910, 1000)
    assert (kept, pruned.offsets) == ([], 6)


def test_without_a_window_or_statistics_nothing_is_pruned(folder: Path) -> None:
    hybrid = options(readFrom="hybrid", segments__path=str(folder.parent))
    assert prune(hybrid, [WHOLE], INT64_MIN, INT64_MAX)[0] == [WHOLE]
    assert prune(options(), [WHOLE], 910, 1000)[0] == [WHOLE]


def test_a_maximum_that_is_a_markers_keeps_no_segment(tmp_path: Path) -> None:
    """The broker's clock in a segment of 2013 once had every segment of transactions read."""
    folder = write_partition(tmp_path, [(800, 904)])
    hybrid = options(readFrom="hybrid", segments__path=str(tmp_path))
    one = OffsetRange("t", 0, 0, 10)
    facts = {"base_offset": 0, "next_offset": 10, "size_bytes": 100, "min_timestamp": 800}
    for data_max, kept in ((904, []), (INT64_MAX, [one])):
        known = {**facts, "max_timestamp": 10**12, "data_max_timestamp": data_max}
        heading = b"tidelog segment manifest 1\n"
        (folder / MANIFEST).write_bytes(heading + line("segment", **known))
        assert prune(hybrid, [one], 910, 1000)[0] == kept
    segment = {**facts, "max_timestamp": 10**12, "data_max_timestamp": None}
    for newest_data, youngest in ((None, 10**12), (904, 904)):
        segment["data_max_timestamp"] = newest_data
        document = {"partitions": [{"partition": 0, "segments": [segment]}]}
        assert parse_segments("t", document)["t", 0][0].youngest_ms == youngest


def test_a_minimum_that_was_not_measured_prunes_no_end(tmp_path: Path) -> None:
    write_partition(tmp_path, [(INT64_MIN, 904), (INT64_MIN, 2000)])
    hybrid = options(readFrom="hybrid", segments__path=str(tmp_path))
    assert prune(hybrid, [OffsetRange("t", 0, 0, 20)], 910, 1000)[0] == [
        OffsetRange("t", 0, 10, 20)
    ]


def test_a_line_about_a_segment_that_was_rewritten_is_not_believed(folder: Path) -> None:
    (folder / f"{30:020d}.log").write_bytes(b"x" * 99)
    (folder / f"{20:020d}.log").unlink()
    assert [one.base_offset for one in from_manifest(folder)] == [0]


def test_a_torn_manifest_is_believed_up_to_the_tear(folder: Path) -> None:
    path = folder / MANIFEST
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b"max_timestamp=1010", b"max_timestamp=1")
    path.write_bytes(b"\n".join(lines))
    assert [one.base_offset for one in from_manifest(folder)] == [0, 10]
    path.write_bytes(b"something else\n")
    assert list(from_manifest(folder)) == []
    path.unlink()
    assert list(from_manifest(folder)) == []


@settings(deadline=None)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    oldest=st.integers(-1, 61),
    length=st.integers(0, 30),
    start=st.integers(0, 20),
)
def test_no_row_of_the_window_is_ever_lost(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    oldest: int,
    length: int,
    start: int,
) -> None:
    chunks = [times[first : first + 10] for first in range(0, len(times) // 10 * 10, 10)]
    data_dir = tmp_path_factory.mktemp("data")
    write_partition(data_dir, [(min(chunk), max(chunk)) for chunk in chunks])
    hybrid = options(readFrom="hybrid", segments__path=str(data_dir))
    wanted = OffsetRange("t", 0, min(start, len(times)), len(times))
    kept, _ = prune(hybrid, [wanted], oldest, oldest + length)
    read = {offset for one in kept for offset in range(one.start, one.end)}
    asked = range(wanted.start, wanted.end)
    assert {at for at in asked if oldest <= times[at] < oldest + length} <= read <= set(asked)


def read_whole(
    log: PartitionDouble, kept: list[OffsetRange], pruned: Pruned, *, oldest_ms: int, newest_ms: int
) -> list[int]:
    """The offsets that tasks read of a plan."""
    found = []
    for one in kept:
        decoding = DecodeRules(
            columns=("offset",), oldest_ms=oldest_ms, newest_ms=newest_ms,
            stop=pruned.stops.get(one),
        )  # fmt: skip
        reader = RangeReader(log.cluster, one, decoding, fetch_bytes=200, fail_on_data_loss=True)
        found += [row for part in reader.batches() for row in part.column(0).to_pylist()]
    return found


@settings(deadline=None)
@given(
    batches=st.lists(
        st.lists(st.integers(-1, 60), min_size=1, max_size=4), min_size=1, max_size=30
    ),
    oldest=st.integers(1, 61),
    length=st.integers(1, 30),
    later=st.integers(0, 9),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    bounds=st.tuples(st.integers(0, 10), st.integers(0, 10)),
)
def test_the_rest_of_a_segment_is_read_up_to_its_last_late_record(
    batches: list[list[int]],
    oldest: int,
    length: int,
    later: int,
    sizes: list[int],
    bounds: tuple[int, int],
) -> None:
    """Whatever the order: the rows of the window, each once; counted for a time after its end."""
    log = PartitionDouble()
    for one in batches:
        log.write(one)
    times = [time for one in batches for time in one]
    newest = oldest + length
    segments, start = [], 0
    for size in [*sizes, len(times)]:
        here = times[start : start + size]
        if here:
            segments.append(
                SegmentTimes(
                    base_offset=start, next_offset=start + len(here),
                    oldest_ms=min(here), youngest_ms=max(here),
                    counted=Counted(
                        ms=newest + later, records=sum(time < newest + later for time in here)
                    ),
                )
            )  # fmt: skip
        start += len(here)
    begin = next((at for at, time in enumerate(times) if time >= oldest), len(times))
    wanted = OffsetRange(
        "t", 0, min(begin + bounds[0], len(times)), max(begin, len(times) - bounds[1])
    )
    if wanted.size <= 0:
        return
    firsts = {("t", 0): log.list_offsets({("t", 0): newest})["t", 0].offset}
    kept, pruned = prune(
        options(), [wanted], oldest, newest, lambda _: {("t", 0): segments}, firsts
    )
    rows = read_whole(log, kept, pruned, oldest_ms=oldest, newest_ms=newest)
    assert rows == [at for at in range(wanted.start, wanted.end) if oldest <= times[at] < newest]


def test_a_segment_in_order_is_not_read_beyond_the_window() -> None:
    """With counts for the window's end nothing is left; with later ones, little."""
    log = PartitionDouble()
    for when in range(0, 500, 10):
        log.write([when])
    known = SegmentTimes(
        base_offset=0, next_offset=50, oldest_ms=0, youngest_ms=490,
        counted=Counted(ms=100, records=10),
    )  # fmt: skip
    one = OffsetRange("t", 0, 5, 50)

    def planned(segment: SegmentTimes, first: int = 10) -> tuple[list[OffsetRange], Pruned]:
        return prune(options(), [one], 50, 100, lambda _: {("t", 0): [segment]}, {("t", 0): first})

    kept, pruned = planned(known)
    assert (kept, pruned.stops, pruned.offsets) == ([OffsetRange("t", 0, 5, 10)], {}, 40)
    kept, pruned = planned(replace(known, counted=Counted(ms=130, records=13)))
    rest = OffsetRange("t", 0, 10, 50)
    assert (kept, pruned.stops) == ([OffsetRange("t", 0, 5, 10), rest], {rest: (130, 3)})
    assert read_whole(log, kept, pruned, oldest_ms=50, newest_ms=100) == [5, 6, 7, 8, 9]
    found = ReadPlan(
        tasks=(tuple(kept),), oldest_ms=50, newest_ms=100, cluster_id="c", pruned=pruned
    )
    assert describe_plan(log.cluster, found, [("t", 0)]).sentence.endswith(
        "of 40 offsets only those up to the last late record are read"
    )
    assert log.fetches < 8
    # Without counts, with impossible ones, or where most has to be read, nothing is cut off.
    for counted in (None, Counted(ms=130, records=9), Counted(ms=490, records=49)):
        kept, pruned = planned(replace(known, counted=counted))
        assert (kept, pruned.stops) == ([one], {})
    assert planned(known, first=-1)[0] == [one]


def test_ranges_that_probably_end_early_are_not_cut_and_share_a_task() -> None:
    rest = OffsetRange("t", 0, 10, 1_000_000)
    ahead, other = OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 1_000_000)

    def sized(_: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        return {("t", 0): 100.0, ("t", 1): 100.0}

    tasks = arrange(options(), [ahead, rest, other], sized, likely={rest: 20})
    assert tasks[0] == (ahead, rest)
    assert len(tasks) > 2
    assert {one.partition for task in tasks[1:] for one in task} == {1}


@pytest.mark.parametrize(("log_start", "is_counted"), [(0, True), (1, False)])
def test_counts_of_a_segment_whose_start_is_deleted_are_not_used(
    log_start: int, is_counted: bool
) -> None:
    """A young record may have been there, so the first young offset proves nothing."""
    segment = {
        "base_offset": 0, "next_offset": 10, "min_timestamp": 0, "max_timestamp": 90,
        "before": {"ms": 50, "records": 5},
    }  # fmt: skip
    part = {"partition": 0, "log_start_offset": log_start, "segments": [segment]}
    (found,) = parse_segments("t", {"partitions": [part]})["t", 0]
    assert found.counted == (Counted(ms=50, records=5) if is_counted else None)
    del part["log_start_offset"]
    assert parse_segments("t", {"partitions": [part]})["t", 0][0].counted is None


class Answering(BaseHTTPRequestHandler):
    """The metrics port of a broker that knows two segments of t-0."""

    def do_GET(self) -> None:
        assert self.path == "/segments?topic=t"
        facts = [
            {"base_offset": 0, "next_offset": 30, "min_timestamp": 800, "max_timestamp": 905},
            {"base_offset": 30, "next_offset": 50, "min_timestamp": None, "max_timestamp": 999},
        ]
        document = {"topic_id": "5a0f", "partitions": [{"partition": 0, "segments": facts}]}
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_the_broker_tells_over_http() -> None:
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.handle_request, daemon=True).start()
        wire = options(segments__statistics=f"127.0.0.1:{server.server_port}")
        kept, pruned = prune(wire, [WHOLE], 910, 1000)
    assert kept == [OffsetRange("t", 0, 30, 50)]
    assert (pruned.skipped, pruned.problem) == (1, "")


def test_a_broker_of_an_earlier_release_is_asked_again_without_the_new_parameter() -> None:
    asked = []

    class Earlier(Answering):
        def do_GET(self) -> None:
            asked.append(self.path)
            if "before" in self.path:
                self.send_error(400, "before is no parameter of this path")
            else:
                super().do_GET()

    with HTTPServer(("127.0.0.1", 0), Earlier) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        wire = options(segments__statistics=f"127.0.0.1:{server.server_port}")
        kept, pruned = prune(wire, [WHOLE], 910, 1000, firsts={("t", 0): 31})
        server.shutdown()
    assert asked == ["/segments?topic=t&before=1000", "/segments?topic=t"]
    assert (kept, pruned.stops) == ([OffsetRange("t", 0, 30, 50)], {})


class Named(PartitionDouble):
    """A cluster of one broker that names this metrics port, and whose topic has this id."""

    def __init__(self, port: int, topic_id: str) -> None:
        super().__init__()
        self.port, self.named = port, topic_id

    def metrics_url(self) -> str:
        if not self.port:
            raise UnsupportedByBroker("it has no metrics port")
        return f"http://127.0.0.1:{self.port}"

    def topic_id(self, topic: str) -> str:
        assert topic == "t"
        return self.named


@pytest.mark.parametrize("topic_id", ["5a0f", "beef", ""])
def test_a_port_that_the_broker_names_is_believed_about_its_own_topic_alone(topic_id: str) -> None:
    """At an address of loopback another broker may listen, which has a topic of that name."""
    secured = Security(mechanism="PLAIN", username="alice", password="secret")
    asked: list[str | None] = []

    class Guarded(Answering):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            super().do_GET()

    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        Thread(target=server.handle_request, daemon=True).start()
        log = Named(server.server_port, topic_id)
        found = from_named_port(log.cluster, secured, [("t", 0)])
    assert [one.base_offset for one in found.get(("t", 0), [])] == ([0, 30] * (topic_id == "5a0f"))
    # Nor is a password sent to a place that the user has not named.
    assert asked == [None]


def test_another_program_at_the_named_port_prunes_nothing() -> None:
    class Strange(Answering):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

    with HTTPServer(("127.0.0.1", 0), Strange) as server:
        Thread(target=server.handle_request, daemon=True).start()
        log = Named(server.server_port, "5a0f")
        assert from_named_port(log.cluster, NOT_SECURED, [("t", 0)]) == {}


def test_a_broker_without_a_port_or_behind_a_wall_prunes_nothing() -> None:
    for port in (0, 1):
        assert from_named_port(Named(port, "5a0f").cluster, NOT_SECURED, [("t", 0)]) == {}


def test_a_broker_without_statistics_prunes_nothing_and_it_is_reported() -> None:
    kept, pruned = prune(options(segments__statistics="127.0.0.1:1"), [WHOLE], 910, 1000)
    assert kept == [WHOLE]
    assert "127.0.0.1:1" in pruned.problem


@pytest.mark.parametrize(
    "document", [{}, [], {"partitions": [{"partition": 0, "segments": [{"base_offset": 1}]}]}]
)
def test_an_answer_of_another_form_is_no_statistics(document: Any) -> None:
    with pytest.raises(ValueError, match="not understood"):
        parse_segments("t", document)


def every_ten_ms() -> PartitionDouble:
    """One record every ten ms, offset n at n * 10."""
    log = PartitionDouble()
    for when in range(0, 500, 10):
        log.write([when])
    return log


def test_a_promised_lateness_ends_reading_after_the_window() -> None:
    cluster = every_ten_ms().cluster

    def ended(newest_ms: int, **named: str) -> list[OffsetRange]:
        return _end_by_lateness(cluster, options(**named), [WHOLE], newest_ms)

    assert ended(100) == [WHOLE]
    assert ended(100, maxLateness="50ms") == [OffsetRange("t", 0, 0, 15)]
    assert ended(100, maxLateness="1h") == [WHOLE]
    assert ended(NO_UPPER_TIME, maxLateness="50ms") == [WHOLE]
    assert _end_by_lateness(
        cluster, options(maxLateness="0ms"), [OffsetRange("t", 0, 20, 50)], 100
    ) == []  # fmt: skip


def test_a_plan_shows_what_is_read_of_what_and_what_was_pruned(folder: Path) -> None:
    hybrid = options(readFrom="hybrid", segments__path=str(folder.parent))
    kept, pruned = prune(hybrid, [WHOLE], 910, 1000)
    found = ReadPlan(
        tasks=tuple((one,) for one in kept), oldest_ms=910, newest_ms=1000, cluster_id="c",
        pruned=pruned,
    )  # fmt: skip
    outcome = describe_plan(every_ten_ms().cluster, found, [("t", 0)])
    assert outcome.sentence == (
        "would read 30 of 50 offsets in 2 tasks; the times of 4 segments were known, "
        "2 of them pruned (20 offsets)"
    )
    assert outcome.rows == (
        {
            "topic": "t", "partition": 0, "first": 0, "end": 50, "read": "10-30, 40-50",
            "offsets": 30, "pruned": 20,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    "named", [{"timeWindow": "strict"}, {"startingOffsetsByTimestampStrategy": "latest"}]
)
def test_the_end_is_asked_before_the_time(named: dict[str, str]) -> None:
    """A record that comes in between lies after the end that is known; else it were skipped."""
    asked: list[int] = []

    class Asked(PartitionDouble):
        def list_offsets(
            self, questions: Mapping[TopicPartition, int], *, read_committed: bool = False
        ) -> dict[TopicPartition, OffsetAndTimestamp]:
            asked.extend(questions.values())
            return super().list_offsets(questions, read_committed=read_committed)

    log = Asked()
    log.write([1])
    starting = options(startingTimestamp="1000000000000", **named)
    assert resolve(log.cluster, starting, starting.starting, [("t", 0)], 0) == {("t", 0): 1}
    assert asked == [-1, 1_000_000_000_000]
