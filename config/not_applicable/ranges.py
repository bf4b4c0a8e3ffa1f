"""The values that Apache Kafka 4.3.1 accepts for its settings that mean nothing here.

A file with a value that Kafka refuses has a mistake in it, so it is refused here too. Settings of
older releases, and those that take any text, are not in the tables.

Source: the `ConfigDef`s that `AbstractKafkaConfig.CONFIG_DEF` joins; `tests/unit/config` has all of
them.
"""

from types import MappingProxyType
from typing import Final

from config.listeners import PROTOCOLS
from config.rows import word, words
from config.values import Key, Value, ValueType

_NUMBERS: Final[dict[tuple[ValueType, float | None, float | None], str]] = {
    (ValueType.BOOLEAN, None, None): """
        auto.leader.rebalance.enable controlled.shutdown.enable
        controller.quorum.auto.join.enable follower.fetch.last.tiered.offset.enable
        remote.log.storage.system.enable sasl.oauthbearer.assertion.claim.jti.include
        transaction.partition.verification.enable transaction.two.phase.commit.enable
        """,
    (ValueType.INT, None, None): """
        broker.heartbeat.interval.ms broker.session.timeout.ms controller.socket.timeout.ms
        delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests initial.broker.registration.timeout.ms
        num.replica.alter.log.dirs.threads offsets.topic.compression.codec
        producer.purgatory.purge.interval.requests replica.fetch.min.bytes
        replica.fetch.wait.max.ms replica.socket.receive.buffer.bytes
        replica.socket.timeout.ms request.timeout.ms sasl.login.connect.timeout.ms
        sasl.login.read.timeout.ms share.coordinator.state.topic.compression.codec
        share.fetch.purgatory.purge.interval.requests
        """,
    (ValueType.INT, -32_768, 32_767): """
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        """,
    (ValueType.INT, -1, None): """
        group.coordinator.append.linger.ms share.coordinator.append.linger.ms
        """,
    (ValueType.INT, 0, 3_600): "sasl.oauthbearer.assertion.claim.nbf.seconds",
    (ValueType.INT, 0, 86_400): "sasl.oauthbearer.assertion.claim.exp.seconds",
    (ValueType.INT, 0, None): """
        add.partitions.to.txn.retry.backoff.max.ms controller.quorum.append.linger.ms
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms log.cleaner.io.buffer.size
        metadata.max.idle.interval.ms remote.log.metadata.custom.metadata.max.bytes
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.response.max.bytes
        """,
    (ValueType.INT, 1, None): """
        add.partitions.to.txn.retry.backoff.ms alter.log.dirs.replication.quota.window.num
        alter.log.dirs.replication.quota.window.size.seconds background.threads
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        group.coordinator.background.threads group.coordinator.threads
        group.share.initialize.retry.interval.ms kafka.metrics.polling.interval.secs
        max.request.partition.size.limit metrics.num.samples num.io.threads
        num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
        offsets.commit.timeout.ms offsets.load.buffer.size queued.max.requests
        remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.copy.quota.window.num
        remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.fetch.quota.window.num
        remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.thread.pool.size
        remote.log.reader.max.pending.tasks remote.log.reader.threads
        replication.quota.window.num replication.quota.window.size.seconds
        share.coordinator.cold.partition.snapshot.interval.ms
        share.coordinator.load.buffer.size share.coordinator.state.topic.prune.interval.ms
        share.coordinator.threads share.coordinator.write.timeout.ms
        transaction.remove.expired.transaction.cleanup.interval.ms
        transaction.state.log.load.buffer.size
        """,
    (ValueType.INT, 524_288, None): """
        group.coordinator.cached.buffer.max.bytes share.coordinator.cached.buffer.max.bytes
        """,
    (ValueType.INT, 8_388_608, None): "metadata.log.segment.bytes",
    (ValueType.LONG, None, None): """
        log.flush.scheduler.interval.ms metadata.log.segment.ms metadata.max.retention.bytes
        metadata.max.retention.ms replica.high.watermark.checkpoint.interval.ms
        replica.lag.time.max.ms sasl.kerberos.min.time.before.relogin
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        """,
    (ValueType.LONG, -1, None): "remote.log.index.file.cache.ttl.ms",
    (ValueType.LONG, 0, None): """
        controller.performance.always.log.threshold.ms follower.replication.throttled.rate
        leader.replication.throttled.rate metadata.log.max.snapshot.interval.ms
        replica.alter.log.dirs.io.max.bytes.per.second
        """,
    (ValueType.LONG, 1, None): """
        leader.imbalance.check.interval.seconds log.dir.failure.timeout.ms
        metadata.log.max.record.bytes.between.snapshots metrics.sample.window.ms
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.fetch.max.bytes.per.second remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms
        remote.log.manager.task.retry.backoff.ms
        """,
    (ValueType.LONG, 100, None): "controller.performance.sample.period.ms",
    (ValueType.DOUBLE, None, None): """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        """,
    (ValueType.DOUBLE, 0, 0.5): "remote.log.manager.task.retry.jitter",
}
"""The names of the settings of each type, with the least and the largest value."""

_WORDS: Final = MappingProxyType(
    {
        key.name: key
        for key in (
            words("process.roles", (), "", choices=("broker", "controller")),
            words(
                "group.coordinator.rebalance.protocols",
                (),
                "",
                choices=("classic", "consumer", "share", "streams"),
            ),
            word("security.inter.broker.protocol", "", "", choices=PROTOCOLS),
            word(
                "sasl.oauthbearer.assertion.algorithm",
                "",
                "",
                choices=("es256", "rs256"),
                ignores_case=True,
            ),
        )
    }
)
"""The settings that take certain words."""

_NOT_EMPTY: Final = """
    controller.quorum.bootstrap.servers controller.quorum.voters
    remote.log.metadata.manager.class.name remote.log.metadata.manager.impl.prefix
    remote.log.metadata.manager.listener.name remote.log.storage.manager.class.name
    remote.log.storage.manager.impl.prefix
"""
"""Names of the settings that take any text but none."""


def _empty(value: Value) -> str | None:
    return None if value else "empty"


def range_of(name: str) -> Key | None:
    """What the setting `name` may be; None where any text will do."""
    for (value_type, low, high), names in _NUMBERS.items():
        if name in names.split():
            return Key(name=name, type=value_type, default="", doc="", low=low, high=high)
    if name in _NOT_EMPTY.split():
        return word(name, "", "", check=_empty, form="some text")
    return _WORDS.get(name)
