"""The options of the source and the sink, checked before any task starts.

Owns the table of options: names (those of Kafka's source where it has one, so that code moves by
changing the format's name), allowed forms, defaults and cures. It queries no broker: names of
topics and times stay as the user gave them until `offsets` resolves them.

Spark passes options with lower-cased names; they are matched without case. All problems are
collected and raised as one `BadOptions`. An unknown name that starts with `kafka.` is accepted and
unused, because code that moves brings settings of the Java client. Any other unknown name is
refused with the nearest known one.

Source: Spark's Kafka integration guide, `KafkaSourceProvider`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from client.core.options import MECHANISMS, TOKEN_MECHANISM, ClusterOptions, Security, is_port
from client.errors import InvalidTime, InvalidUse
from client.times import UTC, parse_time
from pipeline.options.narrowing import NO_LIMITS, Narrowing, read_narrowing
from pipeline.options.reader import OptionReader, is_number
from protocol.records.layout import INT32_MAX, INT64_MAX, INT64_MIN, NO_TIMESTAMP

EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
FROM_FILES: Final = ("segments", "hybrid")
"""Values of `readFrom` by which tasks read the files of a data directory."""

TopicPartition = tuple[str, int]

_T = TypeVar("_T")
_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TIMEOUT_MS: Final = 15_000
"""How long a call is repeated while brokers are away: Spark repeats a failed task itself."""

_STREAM_TIMEOUT_MS: Final = 60_000
"""The same of a query, which ends if planning fails; as long as Kafka's own clients."""

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """Which partitions: names, a pattern, or an explicit assignment; exactly one is set."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where reading starts or ends, as the user gave it; exactly one of the forms is set.

    Attributes:
        place: "earliest" or "latest" for every partition.
        timestamp_text: one time for every partition, not yet resolved (it may be relative).
        timestamps: a time in ms for each partition.
        offsets: an offset for each partition, or EARLIEST_OFFSET / LATEST_OFFSET.
        topics: "earliest" or "latest" for whole topics, in addition to `offsets`.
        option: the option's name, for error messages.
    """

    option: str
    place: str = ""
    timestamp_text: str = ""
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fixed(self) -> bool:
        """Whether it means the same offsets whenever it is resolved."""
        return bool(self.offsets) and min(self.offsets.values()) >= 0 and not self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All settings of a reader. Sizes in bytes, times in ms."""

    connection: ClusterOptions
    choice: TopicChoice
    starting: Boundary
    ending: Boundary
    starting_strategy: str = "error"
    ending_strategy: str = "latest"
    strict_window: bool = False
    max_lateness_ms: int | None = None
    read_committed: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    target_bytes_per_task: int = 128 * _MIB
    on_malformed: str = "error"
    journal_dir: str = ""
    verify_checksums: bool = True
    fetch_bytes: int = 8 * _MIB
    read_from: str = "broker"
    segments_path: str = ""
    segments_remote: str = ""
    segments_statistics: str = ""
    archive: str = ""
    narrowing: Narrowing = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All settings of a writer."""

    connection: ClusterOptions
    topic: str = ""
    delivery: str = "at-least-once"
    transactional_id_prefix: str = ""
    acks: int = -1
    compression: str = "none"
    batch_bytes: int = 256 * 1024
    max_rows_per_second: int | None = None
    transaction_timeout_ms: int = 15 * 60_000
    verify_repeats: bool = True


_SOURCE_NAMES: Final = (
    "subscribe", "assign", "subscribePattern", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsets", "endingOffsets",
    "startingOffsetsByTimestampStrategy", "endingOffsetsByTimestampStrategy", "timeWindow",
    "maxLateness", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "targetBytesPerTask",
    "failOnDataLoss", "includeHeaders", "columns", "onMalformedTimestamp",
    "readFrom", "segments.path", "segments.remote", "segments.statistics", "archive", "journalDir",
    "narrowTo",
)  # fmt: skip
_SINK_NAMES: Final = (
    "topic", "delivery", "transactionalIdPrefix", "acks", "compression", "batchBytes",
    "maxRowsPerSecond", "verifyRepeats", "includeHeaders",
)  # fmt: skip


def time_of(text: str, now_ms: int) -> int:
    """The time (ms) that a user's text names in UTC; before 1970 it is negative.

    Raises:
        InvalidTime: it is not a time.
    """
    return parse_time(text, now_ms=now_ms, zone=UTC, before_1970=True)


def parse_source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """The options of a reader.

    Raises:
        BadOptions: with every problem that can be found without a broker.
    """
    reader = OptionReader(options)
    reader.check_names(_SOURCE_NAMES, ("topic",))
    connection = parse_connection(reader, _STREAM_TIMEOUT_MS if is_stream else _TIMEOUT_MS)
    choice = _topic_choice(reader)
    starting = _boundary(reader, "starting", "latest" if is_stream else "earliest")
    ending = _boundary(reader, "ending", "latest")
    if is_stream:
        _refuse_endings(reader)
    parsed = SourceOptions(
        connection=connection,
        choice=choice,
        starting=starting,
        ending=ending,
        starting_strategy=reader.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest", "earliest"), "error"
        ),
        ending_strategy=reader.choice(
            "endingOffsetsByTimestampStrategy", ("latest", "error"), "latest"
        ),
        strict_window=_strict_window(reader, is_stream=is_stream),
        max_lateness_ms=reader.duration("maxLateness", None),
        read_committed=reader.choice(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
        )
        == "read_committed",
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        include_headers=reader.flag("includeHeaders", False),
        columns=_columns(reader),
        max_offsets_per_trigger=reader.number("maxOffsetsPerTrigger", None),
        max_bytes_per_trigger=reader.size("maxBytesPerTrigger", None),
        min_offsets_per_trigger=reader.number("minOffsetsPerTrigger", None),
        max_trigger_delay_ms=reader.duration("maxTriggerDelay", 15 * 60_000),
        min_partitions=reader.number("minPartitions", None, INT32_MAX),
        max_records_per_partition=reader.number("maxRecordsPerPartition", None),
        target_bytes_per_task=reader.size("targetBytesPerTask", 128 * _MIB),
        on_malformed=reader.choice("onMalformedTimestamp", ("error", "null", "clamp"), "error"),
        journal_dir=reader.place("journalDir"),
        verify_checksums=reader.flag("kafka.check.crcs", True),
        fetch_bytes=reader.number("kafka.max.partition.fetch.bytes", 8 * _MIB, INT32_MAX),
        read_from=_read_from(reader),
        segments_path=reader.directory("segments.path"),
        segments_remote=reader.text("segments.remote"),
        segments_statistics=_statistics_address(reader),
        archive=reader.place("archive"),
        narrowing=read_narrowing(reader, is_stream=is_stream),
    )
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        reader.refuse("minOffsetsPerTrigger", f"maxOffsetsPerTrigger={most} is less: lower it")
    reader.raise_problems()
    return parsed


def _statistics_address(reader: OptionReader) -> str:
    name = "segments.statistics"
    host, _, port = reader.text(name).rpartition(":")
    if reader.has(name) and not (host and is_port(port)):
        reader.refuse(name, "write host:port of the broker's metrics.listener")
    return reader.text(name)


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a writer; raises BadOptions as `parse_source_options`."""
    reader = OptionReader(options)
    reader.check_names(_SINK_NAMES, ())
    delivery = reader.choice("delivery", ("at-least-once", "exactly-once"), "at-least-once")
    if delivery == "exactly-once" and not reader.text("transactionalIdPrefix"):
        reader.problems.append(
            "option delivery=exactly-once needs transactionalIdPrefix: a name of this query that "
            "no other query uses and that stays the same over restarts"
        )
    acks = reader.choice(reader.given("acks", "kafka.acks"), ("all", "-1", "1"), "all")
    if acks == "1" and delivery == "exactly-once":
        reader.refuse(reader.given("acks", "kafka.acks"), "exactly-once needs all")
    parsed = SinkOptions(
        connection=parse_connection(reader),
        topic=reader.text("topic"),
        delivery=delivery,
        transactional_id_prefix=reader.text("transactionalIdPrefix"),
        acks=1 if acks == "1" else -1,
        compression=reader.choice(
            reader.given("compression", "kafka.compression.type"),
            ("none", "gzip", "snappy", "lz4", "zstd"),
            "none",
        ),
        batch_bytes=reader.size(
            reader.given("batchBytes", "kafka.batch.size"), 256 * 1024, INT32_MAX
        ),
        max_rows_per_second=reader.number("maxRowsPerSecond", None),
        transaction_timeout_ms=reader.number(
            "kafka.transaction.timeout.ms", 15 * 60_000, INT32_MAX
        ),
        verify_repeats=reader.flag("verifyRepeats", True),
    )
    reader.raise_problems()
    return parsed


def parse_connection(reader: OptionReader, timeout_ms: int = _TIMEOUT_MS) -> ClusterOptions:
    """The `kafka.*` options of the connection; problems go into `reader`."""
    protocol = reader.choice("kafka.security.protocol", _SECURITY_PROTOCOLS, "PLAINTEXT")
    mechanism = reader.choice("kafka.sasl.mechanism", MECHANISMS, "PLAIN")
    login = _login(reader, mechanism) if protocol.startswith("SASL_") else {}
    for side in ("truststore", "keystore"):
        kind = reader.text(f"kafka.ssl.{side}.type", "PEM")
        location = reader.text(f"kafka.ssl.{side}.location")
        if location and (kind.upper() != "PEM" or location.endswith((".jks", ".p12", ".pfx"))):
            reader.refuse(
                f"kafka.ssl.{side}.location",
                "give a PEM file; Java key stores cannot be read here (convert one with "
                "keytool -exportcert -rfc, or openssl pkcs12 -in STORE -out FILE.pem -nodes)",
            )
    is_tls, is_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    bootstrap = _bootstrap(reader)
    try:
        security = Security(
            tls=is_tls,
            ca_file=reader.text("kafka.ssl.truststore.location") if is_tls else "",
            certificate_file=reader.text("kafka.ssl.keystore.location") if is_tls else "",
            key_password=reader.text("kafka.ssl.key.password"),
            check_hostname=reader.text("kafka.ssl.endpoint.identification.algorithm", "https")
            != "",
            mechanism=mechanism if is_sasl else "",
            **login,
        )
        return ClusterOptions(
            bootstrap=bootstrap,
            client_id=reader.text("kafka.client.id", "tidelog-spark"),
            request_timeout_ms=reader.number("kafka.request.timeout.ms", 30_000, INT32_MAX),
            timeout_ms=reader.number("kafka.default.api.timeout.ms", timeout_ms, INT32_MAX),
            security=security,
            software="tidelog-spark",
        )
    except InvalidUse as error:
        if not reader.problems:
            reader.problems.append(f"options kafka.*: {error}")
        return ClusterOptions(bootstrap=())


def _bootstrap(reader: OptionReader) -> tuple[tuple[str, int], ...]:
    name = "kafka.bootstrap.servers"
    form = "write host:port, several with commas, for example 127.0.0.1:9092"
    if not reader.text(name):
        reader.problems.append(f"option {name} is missing: {form}")
        return ()
    addresses = []
    for part in reader.text(name).split(","):
        # A prefix such as PLAINTEXT:// is taken and has no meaning, as in Kafka's clients.
        host, _, port = part.rpartition("://")[2].strip().rpartition(":")
        if not host or not is_port(port):
            reader.refuse(name, form)
            return ()
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)


def _login(reader: OptionReader, mechanism: str) -> dict[str, Any]:
    """The file with the token, or the user out of the JAAS text that Java clients are given."""
    if mechanism == TOKEN_MECHANISM:
        name = "kafka.sasl.oauthbearer.token.endpoint.url"
        url = reader.text(name)
        if not url.startswith("file:///"):
            reader.refuse(name, "write file:///PATH of a file with the token, there on every node")
        return {"token_file": unquote(url.removeprefix("file://"))}
    name = "kafka.sasl.jaas.config"
    found = re.findall(
        r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""",
        reader.text(name),
    )
    pairs = {word: re.sub(r"\\(.)", r"\1", double or single) for word, double, single in found}
    if len(pairs) != 2:
        reader.refuse(name, 'write ...LoginModule required username="NAME" password="SECRET";')
    return pairs


def _topic_choice(reader: OptionReader) -> TopicChoice:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if reader.has(name)]
    if len(given) != 1:
        what = "none" if not given else " and ".join(given)
        reader.problems.append(
            f"exactly one of subscribe, subscribePattern and assign must be given, found {what}: "
            "write for example subscribe=flights"
        )
        return TopicChoice()
    if given == ["assign"]:
        return _assignment(reader)
    value = reader.text(given[0])
    if given == ["subscribePattern"]:
        try:
            re.compile(value)
        except re.error as error:
            reader.refuse("subscribePattern", f"is no regular expression: {error}")
        if not value:
            reader.refuse("subscribePattern", "write a regular expression such as events-.*")
        return TopicChoice(pattern=value)
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not names:
        reader.refuse("subscribe", "write topic names with commas, for example a,b")
    return TopicChoice(names=names)


def _assignment(reader: OptionReader) -> TopicChoice:
    form = 'write JSON such as {"flights":[0,1]}'
    document = _json_object(reader, "assign", form)
    pairs = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(_is_whole(one) for one in partitions):
            reader.refuse("assign", form)
            return TopicChoice()
        pairs |= {(topic, one) for one in partitions}
    if not pairs and not reader.problems:
        reader.refuse("assign", form)
    return TopicChoice(assigned=frozenset(pairs))


def _is_whole(value: object, lowest: int = 0, highest: int = INT32_MAX) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _is_partition(key: str) -> bool:
    return is_number(key) and _is_whole(int(key))


def _json_object(reader: OptionReader, name: str, form: str) -> dict[str, Any]:
    try:
        document = json.loads(reader.text(name))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        reader.refuse(name, form)
        return {}
    return document


def _boundary(reader: OptionReader, side: str, default: str) -> Boundary:
    """The boundary on one side; a global time wins over times, and times over offsets."""
    if reader.has(f"{side}Timestamp"):
        return _global_time(reader, f"{side}Timestamp")
    if reader.has(f"{side}OffsetsByTimestamp"):
        return _times(reader, f"{side}OffsetsByTimestamp")
    name = f"{side}Offsets"
    value = reader.text(name, default)
    if value.lower() in ("earliest", "latest"):
        if side == "ending" and value.lower() == "earliest":
            reader.refuse(name, "reading cannot end before it starts: write latest, or JSON")
        return Boundary(option=name, place=value.lower())
    return _offsets(reader, name, side)


def _global_time(reader: OptionReader, name: str) -> Boundary:
    text = reader.text(name)
    try:
        # Checks the form only; the plan resolves a relative time, once.
        time_of(text, 4_000_000_000_000)
    except InvalidTime as error:
        reader.refuse(name, str(error))
    return Boundary(option=name, timestamp_text=text)


def _times(reader: OptionReader, name: str) -> Boundary:
    form = 'write JSON such as {"flights":{"0":1372939200000,"1":"2013-07-04T12:00Z"}}'
    times: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(reader, name, form).items():
        if not isinstance(partitions, dict):
            reader.refuse(name, form)
            break
        for partition, value in partitions.items():
            if not _is_partition(partition):
                reader.refuse(name, form)
                continue
            try:
                times[topic, int(partition)] = _time_value(value)
            except InvalidTime as error:
                reader.refuse(name, f"partition {topic}-{partition}: {error}")
    return Boundary(option=name, timestamps=times)


def _time_value(value: object) -> int:
    """A time inside JSON: a number of ms, or a text with a fixed meaning.

    Raises:
        InvalidTime: it is not a time, or a relative one, whose meaning changes each day.
    """
    # Long.MaxValue and similar values request "no such record", as in Spark's own tests. Below -1
    # there are only times before 1970, whatever the unit.
    is_long = _is_whole(value, INT64_MIN, INT64_MAX)
    if isinstance(value, int) and is_long and (value >= 1 << 62 or value < NO_TIMESTAMP):
        return value
    text = str(value)
    first = time_of(text, 4_000_000_000_000)
    if time_of(text, 5_000_000_000_000) != first:
        raise InvalidTime(f"'{text}' is relative: write the time itself, or use startingTimestamp")
    return first


def _offsets(reader: OptionReader, name: str, side: str) -> Boundary:
    form = (
        'write earliest, latest, or JSON such as {"flights":{"0":23,"1":-2},"other":"latest"} '
        "(-2 earliest, -1 latest)"
        if side == "starting"
        else 'write latest, or JSON such as {"flights":{"0":23,"1":-1},"other":"latest"} '
        "(-1 latest)"
    )
    offsets: dict[TopicPartition, int] = {}
    topics: dict[str, str] = {}
    for topic, partitions in _json_object(reader, name, form).items():
        if partitions == "latest" or (partitions == "earliest" and side == "starting"):
            topics[topic] = partitions
            continue
        if not isinstance(partitions, dict):
            reader.refuse(name, form)
            break
        for partition, offset in partitions.items():
            lowest = EARLIEST_OFFSET if side == "starting" else LATEST_OFFSET
            if not _is_partition(partition) or not _is_whole(offset, lowest, INT64_MAX):
                reader.refuse(name, form)
                continue
            offsets[topic, int(partition)] = offset
    return Boundary(option=name, offsets=offsets, topics=topics)


def _strict_window(reader: OptionReader, *, is_stream: bool) -> bool:
    strict = reader.choice("timeWindow", ("offsets", "strict"), "offsets") == "strict"
    if strict and not is_stream:
        for side in ("starting", "ending"):
            if reader.has(f"{side}Offsets") or reader.has(f"{side}OffsetsByTimestamp"):
                reader.refuse(
                    "timeWindow",
                    f"a strict window is one of times: give {side}Timestamp instead of offsets",
                )
    return strict


def _refuse_endings(reader: OptionReader) -> None:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        if reader.has(name):
            reader.refuse(name, "a stream has no end: remove it, or read with spark.read")


def _read_from(reader: OptionReader) -> str:
    read_from = reader.choice("readFrom", ("broker", "segments", "hybrid", "remote"), "broker")
    _check_bucket(reader, is_read=read_from == "remote")
    if read_from in FROM_FILES and not reader.has("segments.path"):
        reader.problems.append(
            f"option readFrom={read_from} needs segments.path, the data directory whose "
            "closed segments every executor can read"
        )
    if read_from == "segments" and reader.has("archive"):
        reader.refuse(
            "archive",
            "the broker has what is not archived yet: set readFrom to hybrid or broker",
        )
    return read_from


def _check_bucket(reader: OptionReader, *, is_read: bool) -> None:
    """What `segments.remote` needs, and what does not go with it; its value may hold secrets."""
    if not is_read and reader.has("segments.remote"):
        reader.problems.append(
            "option segments.remote is for readFrom=remote alone: set that, or leave it out"
        )
    if is_read and not reader.text("segments.remote"):
        reader.problems.append(
            "option readFrom=remote needs segments.remote, the remote.storage.url of the broker, "
            "for example s3://bucket/prefix"
        )
    if is_read and reader.has("segments.path"):
        reader.refuse(
            "segments.path",
            "readFrom=remote reads a bucket: leave it out, or set readFrom to hybrid or segments",
        )


def _columns(reader: OptionReader) -> tuple[str, ...]:
    allowed = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")  # noqa: E501  # fmt: skip
    by_lower: Mapping[str, str] = {name.lower(): name for name in allowed}
    names = [part.strip() for part in reader.text("columns").split(",") if part.strip()]
    find: Callable[[str], str | None] = lambda name: by_lower.get(name.lower())  # noqa: E731
    if reader.has("columns") and (not names or len({*map(str.lower, names)}) < len(names)):
        reader.refuse("columns", f"write each wanted column once, some of {', '.join(allowed)}")
    if unknown := [name for name in names if find(name) is None]:
        reader.refuse("columns", f"{', '.join(unknown)} is none of {', '.join(allowed)}")
        return ()
    return tuple(by_lower[name.lower()] for name in names)
