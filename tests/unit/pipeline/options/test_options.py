"""Good options are understood as Kafka's source understands them; bad ones name their cure."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BadOptions
from pipeline.options.options import (
    _SINK_NAMES,
    _SOURCE_NAMES,
    SourceOptions,
    parse_sink_options,
    parse_source_options,
)

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}


def parse(*, is_stream: bool = False, **options: Any) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_source_options({**BASE, **named}, is_stream=is_stream)


def problems(*, is_stream: bool = False, **options: Any) -> str:
    with pytest.raises(BadOptions) as caught:
        parse(is_stream=is_stream, **options)
    return str(caught.value)


def test_names_are_matched_without_case() -> None:
    assert parse(MINPARTITIONS="4").min_partitions == 4
    assert parse(minpartitions="4").min_partitions == 4


def test_batch_reads_everything_by_default_and_a_stream_what_is_new() -> None:
    assert (parse().starting.place, parse().ending.place) == ("earliest", "latest")
    assert parse(is_stream=True).starting.place == "latest"


def test_a_global_time_wins_over_times_and_times_over_offsets() -> None:
    """Spark: 'preferences on offset related options'."""
    everything: dict[str, Any] = {
        "startingTimestamp": "1700000000000",
        "startingOffsetsByTimestamp": '{"t":{"0":1700000000001}}',
        "startingOffsets": '{"t":{"0":3}}',
    }
    assert parse(**everything).starting.timestamp_text == "1700000000000"
    del everything["startingTimestamp"]
    assert parse(**everything).starting.timestamps == {("t", 0): 1_700_000_000_001}
    del everything["startingOffsetsByTimestamp"]
    assert parse(**everything).starting.offsets == {("t", 0): 3}


@pytest.mark.parametrize("text", ["1700000000000", "2013-07-04T12:00Z", "-15m", "today"])
def test_times_may_be_milliseconds_iso_or_relative(text: str) -> None:
    assert parse(startingTimestamp=text).starting.timestamp_text == text


def test_times_per_partition_may_be_iso_but_not_relative() -> None:
    parsed = parse(startingOffsetsByTimestamp='{"t":{"0":"2013-07-04T12:00Z","1":1372939200000}}')
    assert set(parsed.starting.timestamps.values()) == {1_372_939_200_000}
    assert "is relative" in problems(startingOffsetsByTimestamp='{"t":{"0":"-15m"}}')


def test_long_max_is_a_time_that_nothing_matches() -> None:
    text = json.dumps({"t": {"0": 2**63 - 1}})
    assert parse(startingOffsetsByTimestamp=text).starting.timestamps == {("t", 0): 2**63 - 1}


def test_a_whole_topic_can_start_at_a_place() -> None:
    assert parse(startingOffsets='{"t":"earliest"}').starting.topics == {"t": "earliest"}


def test_only_explicit_offsets_are_the_same_tomorrow() -> None:
    assert parse(startingOffsets='{"t":{"0":5}}').starting.is_fixed
    assert not parse(startingOffsets='{"t":{"0":-2}}').starting.is_fixed
    assert not parse(startingTimestamp="1700000000000").starting.is_fixed


def test_all_problems_come_at_once_each_with_option_value_form_and_cure() -> None:
    with pytest.raises(BadOptions) as caught:
        parse_source_options(
            {
                "kafka.bootstrap.servers": "nowhere",
                "subscrib": "t",
                "failOnDataLoss": "maybe",
                "maxBytesPerTrigger": "lots",
            },
            is_stream=True,
        )
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 5
    assert "did you mean subscribe?" in text
    assert "kafka.bootstrap.servers='nowhere': write host:port" in text
    assert "failOnDataLoss='maybe': write true or false" in text
    assert "maxBytesPerTrigger='lots': write a size such as 64m" in text
    assert "exactly one of subscribe, subscribePattern and assign" in text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "1700000000"}, "looks like seconds"),
        ({"startingTimestamp": "-1"}, "lacks a unit"),
        ({"startingOffsets": "newest"}, "write earliest, latest, or JSON"),
        ({"endingOffsets": "earliest"}, "cannot end before it starts"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "write latest, or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-2 earliest, -1 latest"),
        ({"assign": '{"t":[0]}'}, "found subscribe and assign"),
        ({"columns": "key,valu"}, "valu is none of key, value"),
        ({"readFrom": "hybrid"}, "needs segments.path"),
        ({"readFrom": "remote"}, "needs segments.remote, the remote.storage.url of the broker"),
        ({"segments.remote": "s3://key:secret@b"}, "is for readFrom=remote alone"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"kafka.bootstrap.server": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.ssl.truststore.location": "/x/trust.jks"}, "give a PEM file"),
        ({"timeWindow": "strict", "startingOffsets": '{"t":{"0":1}}'}, "startingTimestamp instead"),
        ({"minPartitions": "0"}, "from 1 to 2147483647"),
        ({"minPartitions": "99999999999999999999"}, "from 1 to 2147483647"),
        ({"maxOffsetsPerTrigger": "1_000"}, "write a whole number from 1 to 9223372036854775807"),
        ({"maxOffsetsPerTrigger": "\u0663"}, "write a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger=5 is"),
        ({"kafka.max.partition.fetch.bytes": "99999999999"}, "from 1 to 2147483647"),
        ({"targetBytesPerTask": "9999999999999g"}, "up to 9223372036854775807 bytes"),
        ({"maxLateness": "99999999999999999999d"}, "up to 36500d"),
        ({"maxLateness": "36501d"}, "up to 36500d"),
        ({"startingTimestamp": "-99999999999999999999d"}, "before the smallest timestamp"),
        ({"kafka.bootstrap.servers": "h:\u00b2"}, "write host:port"),
        ({"kafka.bootstrap.servers": "h:70000"}, "write host:port"),
        ({"startingOffsets": '{"t":{"\u00b2":1}}'}, "-2 earliest, -1 latest"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "-2 earliest, -1 latest"),
        ({"startingOffsets": '{"t":{"0":9223372036854775808}}'}, "-2 earliest, -1 latest"),
        ({"startingOffsetsByTimestamp": '{"t":{"\u00b2":5}}'}, "write JSON such as"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":99999999999999999999999}}'}, "beyond"),
        ({"archive": ""}, "it is empty: give a directory"),
        ({"columns": ","}, "write each wanted column once, some of key, value"),
        ({"columns": "key,KEY"}, "write each wanted column once"),
        ({"segments.statistics": "h:99999"}, "write host:port of the broker's metrics.listener"),
        ({"segments.statistics": "h"}, "write host:port of the broker's metrics.listener"),
        ({"kafka.security.protocol": "SASL_SSL"}, 'required username="NAME"'),
    ],
)
def test_a_bad_option_is_answered_with_its_cure(options: dict[str, Any], expected: str) -> None:
    named: dict[str, Any] = {name.replace(".", "__"): text for name, text in options.items()}
    assert expected in problems(**named)


def test_a_kafka_address_may_name_the_protocol() -> None:
    parsed = parse(kafka__bootstrap__servers="PLAINTEXT://a:1, SASL_SSL://[::1]:2,b:3")
    assert parsed.connection.bootstrap == (("a", 1), ("::1", 2), ("b", 3))


def test_a_topic_that_is_named_twice_counts_once() -> None:
    assert parse(subscribe="a, b,a").choice.names == ("a", "b")


def test_a_stream_has_no_end() -> None:
    assert "a stream has no end" in problems(is_stream=True, endingOffsets="latest")


def test_settings_of_the_java_client_pass_unused() -> None:
    parse(kafka__max__poll__records="10000", kafka__group__id="g", groupIdPrefix="x")


def test_secrets_are_in_no_message_and_in_no_repr() -> None:
    jaas = 'org.apache.kafka.X required username="u" password="hush";'
    parsed = parse(kafka__security__protocol="SASL_PLAINTEXT", kafka__sasl__jaas__config=jaas)
    assert parsed.connection.security.password == "hush"
    assert "hush" not in repr(parsed)
    broken = problems(
        kafka__security__protocol="SASL_SSL", kafka__sasl__jaas__config='password="hush"'
    )
    assert "hush" not in broken
    for name in ("kafka__ssl__keystore__key", "kafka__ssl__keystore__certificate__chain"):
        given: dict[str, Any] = {name: "-----BEGIN PRIVATE KEY----- hush"}
        assert "hush" not in problems(**given)


def test_exactly_once_needs_a_name_that_stays() -> None:
    with pytest.raises(BadOptions, match="transactionalIdPrefix"):
        parse_sink_options({**BASE_SINK, "delivery": "exactly-once"})


BASE_SINK = {"kafka.bootstrap.servers": "a:1", "topic": "t"}


def test_the_sink_knows_kafkas_names_for_acks_and_compression() -> None:
    parsed = parse_sink_options({**BASE_SINK, "kafka.acks": "1", "kafka.compression.type": "zstd"})
    assert (parsed.acks, parsed.compression) == (1, "zstd")


def test_every_option_of_sparks_kafka_source_and_sink_is_accepted() -> None:
    """Spark 4.3: KafkaSourceProvider; what has no effect here does no harm."""
    given = {
        "failOnDataLoss": "false", "minPartitions": "3", "maxRecordsPerPartition": "10",
        "includeHeaders": "true", "maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "1m", "startingOffsets": "earliest", "endingOffsets": "latest",
        "startingTimestamp": "1700000000000", "endingTimestamp": "1700000000001",
        "startingOffsetsByTimestamp": '{"t":{"0":1700000000000}}',
        "endingOffsetsByTimestamp": '{"t":{"0":1700000000000}}',
        "startingOffsetsByTimestampStrategy": "latest", "kafkaConsumer.pollTimeoutMs": "500",
        "fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "10", "groupIdPrefix": "g",
        "kafka.group.id": "g", "kafka.check.crcs": "false", "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": "1048576", "kafka.isolation.level": "read_committed",
    }  # fmt: skip
    parsed = parse_source_options({**BASE, **given}, is_stream=False)
    assert (parsed.verify_checksums, parsed.fetch_bytes) == (False, 1 << 20)
    named = {"topic": "t", "includeHeaders": "true", "kafka.batch.size": "65536"}
    sink = parse_sink_options({"kafka.bootstrap.servers": "a:1", **named, "kafka.linger.ms": "5"})
    assert sink.batch_bytes == 65_536


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "did you mean startingOffsets?"),
        ("subscribePatern", "did you mean subscribePattern?"),
        ("starting.offsets", "did you mean startingOffsets?"),
        ("kafka.isolation.levels", "did you mean kafka.isolation.level?"),
        ("kafka.check.crc", "did you mean kafka.check.crcs?"),
        ("verifyChecksums", "it is kafka.check.crcs now"),
        ("rowsPerBatch", "leave it out"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, hint: str) -> None:
    given: dict[str, Any] = {name: "x"}
    assert hint in problems(**given)


def test_the_documentation_has_every_option_and_no_other() -> None:
    page = (Path(__file__).parents[4] / "docs" / "spark.md").read_text(encoding="utf-8")
    reading, writing = page.split("## Writing", 1)
    writing = writing.split("## Jobs", 1)[0]
    for section, known in ((reading, _SOURCE_NAMES), (writing, _SINK_NAMES)):
        lines = [line for line in section.splitlines() if line.startswith("| `")]
        named = {name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])}
        # A copying query may leave the source's word in the sink's options.
        assert {name for name in named if not name.startswith("kafka.")} == (
            set(known) - {"includeHeaders"} if known is _SINK_NAMES else set(known)
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kafka.acks": "0"}, "option kafka.acks='0': write all or -1 or 1"),
        ({"kafka.compression.type": "best"}, "option kafka.compression.type='best': write none"),
        (
            {"acks": "1", "delivery": "exactly-once", "transactionalIdPrefix": "p"},
            "option acks='1': exactly-once needs all",
        ),
        ({"kafka.ssl.keystore.key": "-----BEGIN"}, "give a file by kafka.ssl.keystore.location"),
    ],
)
def test_a_sinks_option_is_named_as_it_was_given(options: dict[str, str], expected: str) -> None:
    with pytest.raises(BadOptions) as caught:
        parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", **options})
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        r'x.PlainLoginModule required username="a\"b" password="c\\d";',
        r"""x.PlainLoginModule required username='a"b' password='c\\d';""",
    ],
    ids=["double quotes", "single quotes"],
)
def test_users_and_passwords_are_read_as_java_reads_them(text: str) -> None:
    named = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": text}
    connection = parse_source_options({**BASE, **named}, is_stream=False).connection
    assert (connection.security.username, connection.security.password) == ('a"b', "c\\d")


def test_a_token_is_read_from_a_file() -> None:
    named: dict[str, Any] = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
    }
    url = {"kafka.sasl.oauthbearer.token.endpoint.url": "file:///etc/token"}
    security = parse_source_options({**BASE, **named, **url}, is_stream=False).connection.security
    assert (security.mechanism, security.token_file) == ("OAUTHBEARER", "/etc/token")
    assert "token.endpoint.url='': write file:///PATH" in problems(**named)


def test_a_query_waits_longer_for_brokers_that_are_away() -> None:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "journalDir": "/j"}
    given = {**base, "kafka.default.api.timeout.ms": "120000"}
    for options, batch_ms, stream_ms in ((base, 15_000, 60_000), (given, 120_000, 120_000)):
        named = {name: value for name, value in options.items() if name != "journalDir"}
        batch = parse_source_options(named, is_stream=False)
        assert batch.connection.timeout_ms == batch_ms
        stream = parse_source_options(options, is_stream=True)
        assert stream.connection.timeout_ms == stream_ms
    with pytest.raises(BadOptions, match=r"endingOffsets=.*write latest"):
        parse_source_options({**base, "endingOffsets": '{"t":"earliest"}'}, is_stream=False)
