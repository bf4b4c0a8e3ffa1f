"""Kafka's settings without meaning for one node without a JVM, and those that are refused.

The broker accepts the former within Kafka's ranges (`config.not_applicable.ranges`), reports each
with the reason, and does nothing with it.
"""

from types import MappingProxyType

_ONE_NODE = "one process is broker and controller; there is no quorum to configure"
_NO_REPLICAS = "one node has no replicas"
_NO_THREADS = "one event loop serves all; there are no thread pools to size"
_NO_ZOOKEEPER = "there is no ZooKeeper"
_NO_CLIENT = "the broker logs in nowhere"
_NO_JVM = "there is no JVM to plug into"
_ONE_CLEANER = "the cleaner paces itself"
_STORE_WAIT = "a request waits ten seconds for the object store"
_EXPIRED_IDS = "expired ids are removed when transactions that time out are looked for"

NOT_APPLICABLE: MappingProxyType[str, str] = MappingProxyType(
    {
        "process.roles": _ONE_NODE,
        "controller.quorum.voters": _ONE_NODE,
        "controller.quorum.bootstrap.servers": _ONE_NODE,
        "controller.listener.names": _ONE_NODE,
        "inter.broker.listener.name": _NO_REPLICAS,
        "security.inter.broker.protocol": _NO_REPLICAS,
        "inter.broker.protocol.version": _NO_REPLICAS,
        "broker.id.generation.enable": "set node.id",
        "num.network.threads": _NO_THREADS,
        "num.io.threads": _NO_THREADS,
        "num.recovery.threads.per.data.dir": _NO_THREADS,
        "background.threads": _NO_THREADS,
        "queued.max.requests": "bounded by queued.max.request.bytes",
        "num.replica.fetchers": _NO_REPLICAS,
        "auto.leader.rebalance.enable": _NO_REPLICAS,
        "leader.replication.throttled.rate": _NO_REPLICAS,
        "leader.imbalance.check.interval.seconds": _NO_REPLICAS,
        "leader.imbalance.per.broker.percentage": _NO_REPLICAS,
        "log.flush.scheduler.interval.ms": "flushing is driven by appends",
        "log.cleaner.io.max.bytes.per.second": _ONE_CLEANER,
        "log.cleaner.io.buffer.size": _ONE_CLEANER,
        "log.cleaner.io.buffer.load.factor": _ONE_CLEANER,
        "offsets.topic.compression.codec": "offsets are stored uncompressed",
        "offsets.commit.timeout.ms": "a commit is answered once it is on disk",
        "offsets.load.buffer.size": "offsets are loaded at start",
        "ssl.endpoint.identification.algorithm": _NO_CLIENT,
        "ssl.secure.random.implementation": _NO_JVM,
        "ssl.keymanager.algorithm": _NO_JVM,
        "ssl.trustmanager.algorithm": _NO_JVM,
        "ssl.provider": _NO_JVM,
        "security.providers": _NO_JVM,
        "sasl.mechanism.inter.broker.protocol": _NO_REPLICAS,
        "sasl.mechanism.controller.protocol": _ONE_NODE,
        "sasl.oauthbearer.header.urlencode": _NO_CLIENT,
        "sasl.oauthbearer.jwt.retriever.class": _NO_CLIENT,
        "sasl.oauthbearer.scope": _NO_CLIENT,
        "sasl.oauthbearer.token.endpoint.url": _NO_CLIENT,
        "early.start.listeners": _NO_REPLICAS,
        "group.consumer.assignors": "uniform is the default, and a member may choose range",
        "group.share.assignors": "the one assignor of share groups is simple",
        "group.share.persister.class.name": _NO_JVM,
        "group.streams.assignor.offload.enable": "an assignment takes no thread",
        "group.share.initialize.retry.interval.ms": "states of share groups are stored in one step",
        "add.partitions.to.txn.retry.backoff.ms": _NO_REPLICAS,
        "add.partitions.to.txn.retry.backoff.max.ms": _NO_REPLICAS,
        "transaction.partition.verification.enable": "a producer adds partitions by producing",
        "transaction.remove.expired.transaction.cleanup.interval.ms": _EXPIRED_IDS,
        "transaction.state.log.load.buffer.size": "transactions are loaded at start",
        "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not served",
        "max.request.partition.size.limit": "an answer has at most 2000 partitions",
        "cordoned.log.dirs": "there is one data directory",
        "metadata.log.dir": _ONE_NODE,
        "initial.broker.registration.timeout.ms": _ONE_NODE,
        "request.timeout.ms": _NO_REPLICAS,
        "broker.heartbeat.interval.ms": _ONE_NODE,
        "broker.session.timeout.ms": _ONE_NODE,
        "controlled.shutdown.enable": _NO_REPLICAS,
        "eligible.leader.replicas.enable": _NO_REPLICAS,
        "fetch.purgatory.purge.interval.requests": "nothing waits in a purgatory",
        "producer.purgatory.purge.interval.requests": "nothing waits in a purgatory",
        "delete.records.purgatory.purge.interval.requests": "nothing waits in a purgatory",
        "log.dir.failure.timeout.ms": _ONE_NODE,
        "advertised.host.name": "use advertised.listeners",
        "advertised.port": "use advertised.listeners",
        "host.name": "use listeners",
        "port": "use listeners",
    }
)
"""Kafka settings of a server.properties that mean nothing here, with the reason."""

NOT_APPLICABLE_PREFIXES: MappingProxyType[str, str] = MappingProxyType(
    {
        "zookeeper.": _NO_ZOOKEEPER,
        "replica.": _NO_REPLICAS,
        "controller.": _ONE_NODE,
        "metadata.": "the metadata journal is compacted by its size",
        "num.replica.": _NO_REPLICAS,
        "follower.": _NO_REPLICAS,
        "replication.quota.": _NO_REPLICAS,
        "alter.log.dirs.": "there is one data directory",
        "socket.connection.setup.": _NO_CLIENT,
        "remote.fetch.": _STORE_WAIT,
        "remote.list.offsets.": _STORE_WAIT,
        "remote.log.": "the object store is remote.storage.url, and no class is loaded",
        "share.coordinator.": "the states of share groups have no thread, buffer or linger time",
        "share.fetch.": "nothing of a share group waits in a purgatory",
        "group.coordinator.": "the coordinator runs on the one event loop",
        "sasl.login.": _NO_CLIENT,
        "sasl.kerberos.": "a broker without peers has no ticket to renew",
        "sasl.oauthbearer.client.": _NO_CLIENT,
        "sasl.oauthbearer.assertion.": _NO_CLIENT,
        "metric.": "metrics are Prometheus's; see metrics.listener",
        "metrics.num.": "metrics are Prometheus's; see metrics.listener",
        "metrics.recording.": "metrics are Prometheus's; see metrics.listener",
        "metrics.sample.": "metrics are Prometheus's; see metrics.listener",
        "kafka.": "there is no JVM to plug into",
        "confluent.": "not a setting of Apache Kafka",
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
