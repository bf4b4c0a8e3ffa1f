"""Kafka's settings without meaning for one node without a JVM, and those that are refused.

The broker accepts the former within Kafka's ranges (`config.not_applicable.ranges`), reports each
with the reason, and does nothing with it.
"""

from types import MappingProxyType

_ONE_NODE = "one process is broker and controller; there is no quorum to configure"
_NO_REPLICAS = "one node has no replicas"
_NO_CLIENT = "the broker logs in nowhere"
_NO_JVM = "there is no JVM to plug into"
_EXPIRED_IDS = "expired ids are removed when transactions that time out are looked for"


def _reason_by_name(names: dict[str, str]) -> MappingProxyType[str, str]:
    return MappingProxyType(
        {name: reason for reason, many in names.items() for name in many.split()}
    )


NOT_APPLICABLE: MappingProxyType[str, str] = _reason_by_name(
    {
        _ONE_NODE: """
            process.roles controller.quorum.voters controller.quorum.bootstrap.servers
            controller.listener.names sasl.mechanism.controller.protocol metadata.log.dir
            initial.broker.registration.timeout.ms broker.heartbeat.interval.ms
            broker.session.timeout.ms log.dir.failure.timeout.ms
        """,
        _NO_REPLICAS: """
            inter.broker.listener.name security.inter.broker.protocol
            inter.broker.protocol.version num.replica.fetchers auto.leader.rebalance.enable
            leader.replication.throttled.rate leader.imbalance.check.interval.seconds
            leader.imbalance.per.broker.percentage sasl.mechanism.inter.broker.protocol
            early.start.listeners add.partitions.to.txn.retry.backoff.ms
            add.partitions.to.txn.retry.backoff.max.ms request.timeout.ms
            controlled.shutdown.enable eligible.leader.replicas.enable
        """,
        "set node.id": "broker.id.generation.enable",
        "one event loop serves all; there are no thread pools to size": """
            num.network.threads num.io.threads num.recovery.threads.per.data.dir
            background.threads
        """,
        "bounded by queued.max.request.bytes": "queued.max.requests",
        "flushing is driven by appends": "log.flush.scheduler.interval.ms",
        "the cleaner paces itself": """
            log.cleaner.io.max.bytes.per.second log.cleaner.io.buffer.size
            log.cleaner.io.buffer.load.factor
        """,
        "offsets are stored uncompressed": "offsets.topic.compression.codec",
        "a commit is answered once it is on disk": "offsets.commit.timeout.ms",
        "offsets are loaded at start": "offsets.load.buffer.size",
        _NO_CLIENT: """
            ssl.endpoint.identification.algorithm sasl.oauthbearer.header.urlencode
            sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.scope
            sasl.oauthbearer.token.endpoint.url
        """,
        _NO_JVM: """
            ssl.secure.random.implementation ssl.keymanager.algorithm ssl.trustmanager.algorithm
            ssl.provider security.providers group.share.persister.class.name
        """,
        "uniform is the default, and a member may choose range": "group.consumer.assignors",
        "the one assignor of share groups is simple": "group.share.assignors",
        "an assignment takes no thread": "group.streams.assignor.offload.enable",
        "states of share groups are stored in one step": "group.share.initialize.retry.interval.ms",
        "a producer adds partitions by producing": "transaction.partition.verification.enable",
        _EXPIRED_IDS: "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transactions are loaded at start": "transaction.state.log.load.buffer.size",
        "two-phase commit (KIP-939) is not served": "transaction.two.phase.commit.enable",
        "an answer has at most 2000 partitions": "max.request.partition.size.limit",
        "there is one data directory": "cordoned.log.dirs",
        "nothing waits in a purgatory": """
            fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests
            delete.records.purgatory.purge.interval.requests
        """,
        "use advertised.listeners": "advertised.host.name advertised.port",
        "use listeners": "host.name port",
    }
)
"""Kafka settings of a server.properties that mean nothing here, with the reason."""

NOT_APPLICABLE_PREFIXES: MappingProxyType[str, str] = _reason_by_name(
    {
        "there is no ZooKeeper": "zookeeper.",
        _NO_REPLICAS: "replica. num.replica. follower. replication.quota.",
        _ONE_NODE: "controller.",
        "the metadata journal is compacted by its size": "metadata.",
        "there is one data directory": "alter.log.dirs.",
        _NO_CLIENT: """
            socket.connection.setup. sasl.login. sasl.oauthbearer.client.
            sasl.oauthbearer.assertion.
        """,
        "a request waits ten seconds for the object store": "remote.fetch. remote.list.offsets.",
        "the object store is remote.storage.url, and no class is loaded": "remote.log.",
        "the states of share groups have no thread, buffer or linger time": "share.coordinator.",
        "nothing of a share group waits in a purgatory": "share.fetch.",
        "the coordinator runs on the one event loop": "group.coordinator.",
        "a broker without peers has no ticket to renew": "sasl.kerberos.",
        "metrics are Prometheus's; see metrics.listener": """
            metric. metrics.num. metrics.recording. metrics.sample.
        """,
        _NO_JVM: "kafka.",
        "not a setting of Apache Kafka": "confluent.",
    }
)
"""Families of such settings, by the prefix of their names."""

REFUSED_PREFIXES: MappingProxyType[str, str] = MappingProxyType(
    {
        "ssl.": "tidelog docs security lists the TLS settings that are served; remove this one",
        "sasl.": "tidelog docs security lists the SASL settings that are served; remove this one",
        "listener.name.": "tidelog docs security lists the settings that a listener may have",
        "principal.builder.": "no class is loaded; ssl.principal.mapping.rules maps names",
        "create.topic.policy.": "no class is loaded; rights say who may create topics",
        "alter.config.policy.": "no class is loaded; rights say who may change settings",
        "client.quota.callback.": "no class is loaded; quotas are set for users and clients",
    }
)
"""Families of settings whose protection would silently be missing, with the cure."""


def reason_not_applicable(name: str) -> str | None:
    """Why the Kafka setting `name` means nothing here; None when it is not such a setting."""
    if name in NOT_APPLICABLE:
        return NOT_APPLICABLE[name]
    return next(
        (reason for prefix, reason in NOT_APPLICABLE_PREFIXES.items() if name.startswith(prefix)),
        None,
    )
