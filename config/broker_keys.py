"""Every setting of the broker, one row each.

Names, defaults and ranges are Apache Kafka's (4.3 unless a doc line says otherwise), so that a
user's server.properties works unchanged; our own settings are marked as such. The defaults of topic
settings are broker settings too; their rows are derived from `config.topic_keys`. Kafka's settings
without meaning here are in `config.not_applicable`.
"""

from types import MappingProxyType

from config.group import CONSUMER_KEYS, SHARE_KEYS, STREAMS_KEYS
from config.listeners import complaint_about_limits
from config.rows import flag, internal_topic, number, secret, word, words
from config.security.keys import SECURITY_KEYS
from config.store_lease import check_lease
from config.topic_keys import MS_PER_DAY, TOPIC_KEYS
from config.values import INT32_MAX, INT64_MAX, Key, Value, ValueType
from values.store_url import check_store_url


def _retention_check(value: Value) -> str | None:
    return "0 would delete everything at once; use -1 for no limit" if value == 0 else None


def _socket_buffer_check(value: Value) -> str | None:
    return "use -1 to let the kernel size it, or at least 1" if value == 0 else None


def _request_memory_check(value: Value) -> str | None:
    return "use 1048576 or more, or -1 for no bound" if value in range(1_048_576) else None


_TIMESTAMP_ALIASES: dict[str, tuple[str, ...]] = {
    f"log.{name}": (name, *older)
    for name, older in (
        ("message.timestamp.type", ()),
        (
            "message.timestamp.difference.max.ms",
            ("log.max.message.time.difference.ms", "max.message.time.difference.ms"),
        ),
        ("message.timestamp.before.max.ms", ()),
        ("message.timestamp.after.max.ms", ()),
    )
}
"""KIP-32 proposed these broker settings without `log.`, as for a topic."""


def _synonym_keys() -> list[Key]:
    """The broker settings that supply topics' defaults, one for each synonym of a topic setting."""
    keys: dict[str, Key] = {}
    for topic_key in TOPIC_KEYS.values():
        for name, factor in topic_key.synonyms:
            default = topic_key.default
            if factor > 1 and isinstance(default, int):
                default = default // factor
            low = topic_key.low if factor == 1 or topic_key.low != 1 else 1
            keys[name] = Key(
                name=name,
                type=topic_key.type if factor == 1 else ValueType.INT,
                default=default,
                low=low,
                high=topic_key.high if factor == 1 else INT32_MAX,
                choices=topic_key.choices,
                doc=f"Default of the topic setting {topic_key.name}. {topic_key.doc}",
                dynamic=factor == 1,
                check=_retention_check if topic_key.name == "retention.ms" else topic_key.check,
                aliases=_TIMESTAMP_ALIASES.get(name, ()),
            )
    return list(keys.values())


_IDENTITY = (
    number("node.id", 1, "This broker's number, as clients see it.", low=0, aliases=("broker.id",)),
    word("broker.rack", "", "The rack that Metadata names."),
    word(
        "cluster.id",
        "",
        "Cluster id of a new data directory; empty draws one. Afterwards the directory's own "
        "counts.",
    ),
    number(
        "workers",
        1,
        "Tidelog's own. Processes that share the partitions, each a broker with a port of its own "
        "(tidelog docs operations).",
        high=64,
    ),
    word("log.dirs", "./data", "The data directory. One only.", aliases=("log.dir", "data.dir")),
)

_NETWORK = (
    words(
        "listeners",
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the broker listens: NAME://HOST:PORT, several separated by commas; port 0 "
        "picks a free one.",
    ),
    words(
        "advertised.listeners",
        (),
        "The addresses that Metadata names, by listener name; empty: the same as listeners.",
    ),
    words(
        "listener.security.protocol.map",
        (
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "SASL_SSL:SASL_SSL",
        ),
        "Security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    number("socket.request.max.bytes", 104_857_600, "The largest request accepted.", low=64),
    number(
        "socket.listen.backlog.size",
        4_096,
        "Connections that may wait to be accepted. With Kafka's 50 one of 80 clients that"
        " come at once waits a second for its second try.",
    ),
    number(
        "socket.send.buffer.bytes",
        -1,
        "The kernel's buffer for bytes that a client has not read, per connection: SO_SNDBUF, "
        "at most net.core.wmem_max, which Linux doubles. -1 lets the kernel size it; Kafka's "
        "default is 102400. A small one slows clients far away.",
        low=-1,
        check=_socket_buffer_check,
    ),
    number(
        "socket.receive.buffer.bytes",
        -1,
        "The kernel's buffer for bytes that the broker has not read, per connection: SO_RCVBUF, "
        "at most net.core.rmem_max, which Linux doubles. -1 lets the kernel size it; Kafka's "
        "default is 102400.",
        low=-1,
        check=_socket_buffer_check,
    ),
    number(
        "connections.max.idle.ms",
        600_000,
        "A connection silent for this long is closed.",
        wide=True,
    ),
    number(
        "max.connections.per.ip",
        10_000,
        "Connections open at once from one address. 0 admits only the addresses that "
        "max.connections.per.ip.overrides names.",
        low=0,
        dynamic=True,
    ),
    words(
        "max.connections.per.ip.overrides",
        (),
        "Other limits for some addresses: 10.0.0.7:50,[2001:db8::1]:5. Host names are not "
        "looked up.",
        check=complaint_about_limits,
        dynamic=True,
    ),
    number(
        "queued.max.request.bytes",
        268_435_456,
        "Bytes of requests held at once, over all connections; reading pauses above it. At least "
        "1048576, or -1 for no bound.",
        low=-1,
        wide=True,
        check=_request_memory_check,
    ),
    number(
        "queued.max.response.bytes",
        268_435_456,
        "Tidelog's own. Bytes of answers that clients have not read, over all connections: as they "
        "become more, fetches get smaller answers; above it the connection that left most unread "
        "is closed.",
        low=1_048_576,
        wide=True,
    ),
    number(
        "queued.max.decompressed.bytes",
        268_435_456,
        "Tidelog's own. Bytes that the batches of one Produce may decompress to; those beyond are "
        "refused with MESSAGE_TOO_LARGE. One batch may have 64 MiB.",
        low=67_108_864,
        wide=True,
    ),
    number("fetch.max.bytes", 57_671_680, "The most that one fetch returns.", low=1024),
    number(
        "telemetry.max.bytes",
        1_048_576,
        "The largest push of a client's metrics, also when it is decompressed.",
    ),
    number(
        "max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept at once.", low=0
    ),
    word(
        "metrics.listener",
        "127.0.0.1:9464",
        "Tidelog's own. HOST:PORT of /metrics, probes and operators' queries; port "
        "0 picks a free one, empty serves none.",
    ),
    word(
        "metrics.listener.security",
        "none",
        "Tidelog's own. tls serves that port as https with the ssl.* settings; "
        "listener.name.metrics.ssl.* count for this port alone.",
        choices=("none", "tls"),
    ),
    word(
        "metrics.auth",
        "none",
        "Tidelog's own. How clients of that port prove who they are, apart from TLS "
        "certificates: basic checks name and password against the SCRAM credentials, bearer "
        "takes the token of metrics.auth.token, which stands for User:metrics. /healthz and "
        "/readyz need no proof.",
        choices=("none", "basic", "bearer"),
    ),
    secret(
        "metrics.auth.token",
        "Tidelog's own. The token for metrics.auth=bearer, best as file:/PATH; the file is "
        "read for every request, so a new token needs no restart.",
    ),
)

_TOPICS = (
    flag(
        "auto.create.topics.enable",
        True,
        "Create a topic when a client asks for one that does not exist.",
    ),
    flag("delete.topic.enable", True, "Allow topics to be deleted."),
    flag(
        "time.windows.enable",
        False,
        "Tidelog's own. Serve time windows: the topic name TOPIC.__t__FROM__TO reads the records "
        "of TOPIC from FROM to below TO. No topic of such a name can be created then.",
    ),
    number("num.partitions", 1, "Partitions of a topic created without a number.", high=100_000),
    number(
        "default.replication.factor", 1, "Accepted for compatibility: one node has one replica."
    ),
    number("max.partitions", 100_000, "Tidelog's own. Partitions that may exist in all."),
)

_LOG = (
    number(
        "log.retention.check.interval.ms", 300_000, "How often retention is checked.", wide=True
    ),
    number(
        "log.clock.trust.delay.ms",
        600_000,
        "Tidelog's own. How long a wall clock that was set ahead, or does not fit the newest "
        "append at start, has to stand before anything is deleted by it; 0 believes it at once, "
        "as Kafka does.",
        low=0,
        wide=True,
    ),
    number(
        "log.reserved.bytes",
        64 * 1024 * 1024,
        "Tidelog's own. Appends of clients are refused while less than this is free on the disk, "
        "so that retention, commits and checkpoints still work; at most a twentieth of the disk.",
        low=0,
        wide=True,
    ),
    word(
        "remote.storage.url",
        "",
        "Tidelog's own. The object store of topics with remote.storage.enable: "
        "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIR. "
        "Credentials are in the environment. Empty: there is none.",
        check=check_store_url,
    ),
    flag(
        "remote.standby.enable",
        False,
        "Tidelog's own. Follow the bucket of remote.storage.url, which another broker owns: serve "
        "reads, refuse writes, until tidelog promote. Same as tidelog serve --standby URL.",
    ),
    number(
        "remote.lease.ms",
        0,
        "Tidelog's own. The owner of a bucket renews its lease within this time, or accepts "
        "nothing until it has; a standby that has the setting, too, takes the bucket over when "
        "the owner's lease has ended. 0: no lease, only tidelog promote; else at least 3000.",
        low=0,
        high=3_600_000,
        check=check_lease,
    ),
    number(
        "remote.log.manager.copy.max.bytes.per.second",
        INT64_MAX,
        "The most bytes per second that are uploaded to the object store.",
        low=65_536,
        wide=True,
    ),
    number(
        "log.initial.task.delay.ms",
        30_000,
        "How long after start the first background job runs.",
        low=0,
        wide=True,
    ),
    number(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are written."
    ),
    number(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "Accepted for compatibility: a log's start is written down when it moves.",
    ),
    flag("log.cleaner.enable", True, "Whether compacted topics are compacted."),
    number(
        "log.cleaner.backoff.ms",
        15_000,
        "Pause of the cleaner when nothing is to be done.",
        low=0,
        wide=True,
        dynamic=True,
    ),
    number(
        "log.cleaner.threads", 1, "Accepted for compatibility: one cleaner works.", dynamic=True
    ),
    number(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory that one cleaning may use for its key map.",
        low=1_048_576,
        wide=True,
        dynamic=True,
    ),
    number(
        "producer.id.expiration.ms",
        MS_PER_DAY,
        "A producer id whose last timestamp is older than this expires.",
        dynamic=True,
    ),
    number(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often expired producer ids are removed.",
    ),
)

_GROUPS = (
    number(
        "group.initial.rebalance.delay.ms",
        100,
        "How long the first member of an empty group waits for others. Members that start "
        "together then share from the first generation on, and kafka-python 3, which loses its "
        "assignment when it joins before it has metadata, works. Kafka has 3000.",
        low=0,
    ),
    number(
        "group.min.session.timeout.ms",
        6_000,
        "The shortest session timeout that a member may ask for.",
    ),
    number(
        "group.max.session.timeout.ms",
        1_800_000,
        "The longest session timeout that a member may ask for.",
    ),
    number("group.max.size", INT32_MAX, "Members that a group may have."),
    *internal_topic("offsets.topic", "__consumer_offsets"),
    number("offsets.retention.minutes", 10_080, "How long an empty group's offsets are kept."),
    number(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often expired offsets are looked for.",
        wide=True,
    ),
    number("offset.metadata.max.bytes", 4096, "The largest metadata of a committed offset.", low=0),
    number(
        "group.consumer.max.size", INT32_MAX, "Members that a group of the new protocol may have."
    ),
    word(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group changes between the classic and the new protocol while it has "
        "members: upgrade with the first member of the new one, downgrade when the last one goes.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        ignores_case=True,
    ),
    *CONSUMER_KEYS,
    *SHARE_KEYS,
    *STREAMS_KEYS,
    *internal_topic("transaction.state.log", "__transaction_state"),
    number("transaction.state.log.min.isr", 1, "Accepted for compatibility."),
    number(
        "transaction.max.timeout.ms",
        900_000,
        "The longest transaction timeout that a producer may ask for.",
    ),
    number(
        "transactional.id.expiration.ms",
        604_800_000,
        "An unused transactional id expires after this.",
    ),
    number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "Accepted for compatibility: timed-out transactions are aborted within a second.",
    ),
)

BROKER_KEYS = MappingProxyType(
    {
        key.name: key
        for key in (
            *_IDENTITY,
            *_NETWORK,
            *SECURITY_KEYS.values(),
            *_TOPICS,
            *_LOG,
            *_synonym_keys(),
            *_GROUPS,
        )
    }
)
"""Every broker setting by its name."""

BROKER_ALIASES = MappingProxyType(
    {alias: key.name for key in BROKER_KEYS.values() for alias in key.aliases}
)
"""Older names of broker settings, each with the name it stands for."""
