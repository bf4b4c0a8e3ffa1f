"""A SparkSession that needs no set-up: Java found, this Python for the workers, loopback only.

Owns the settings a local session needs and nobody should have to know, and the registration of
the source. Settings given by the caller win. A session that exists already (a notebook, a
`spark-submit`) is used as it is; `register` adds the source to it.

Read next: `java`, `bundle`, `source`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
"""For masters that start with `local`; event dates are days of UTC whatever the machine's zone."""

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, pushdown: bool = True) -> None:
    """Make `format("tidelog")` known to `spark`.

    With `pushdown`, filters on time, offset, partition and topic narrow what is read; that turns
    on Spark's setting for it, which concerns other Python sources of the session too.
    """
    from pipeline.source import TidelogPushdownSource, TidelogSource

    if pushdown:
        spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(TidelogPushdownSource if pushdown else TidelogSource)


def session(
    master: str = "local[*]",
    *,
    app_name: str = "tidelog",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with the source registered; the running one if there is one.

    Raises:
        NoJava: Spark cannot be started for want of a Java runtime.
        ImportError: Spark itself is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        hint = "Spark is not installed: pip install 'tidelog[spark]'"
        raise ModuleNotFoundError(hint, name=error.name) from error

    existing = SparkSession.getActiveSession()
    if existing is None:
        builder = SparkSession.builder.appName(app_name)
        defaults: Mapping[str, str] = {}
        # Under spark-submit the Java side runs already, with a master of its own.
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            prepare_environment()
            builder = builder.master(master)
            defaults = LOCAL_SETTINGS if master.startswith("local") else {}
        for name, value in {**defaults, **(settings or {})}.items():
            builder = builder.config(name, value)
        existing = builder.getOrCreate()
    register(existing)
    return existing


def by_partition(
    frame: DataFrame, bootstrap: str, topic: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """`frame` with a target partition for every row, and all rows of one in one task.

    A `partition` that is there is kept; otherwise the key decides as in every Kafka client, and a
    row without a key goes by its value. This is what exactly-once delivery asks for. `options` are
    further `kafka.*` options that the broker asks for, such as those of TLS.

    Raises:
        BrokerRefused: the topic does not exist.
        BrokerUnreachable: no broker answers at `bootstrap`.
    """
    from pyspark.sql import functions as F

    from client.partitioner import partition_for_key
    from pipeline.cluster import Cluster
    from pipeline.options import TopicChoice, parse_sink_options

    named = {**(options or {}), "kafka.bootstrap.servers": bootstrap, "topic": topic}
    with Cluster(parse_sink_options(named).connection) as cluster:
        count = len(cluster.partitions(TopicChoice(names=(topic,))))
    # A row with neither goes where an empty key goes: any place is good that is always the same.
    choose = F.udf(lambda key: partition_for_key(bytes(key or b""), count), "int")
    basis = F.col("value").cast("binary")
    if "key" in frame.columns:
        basis = F.coalesce(F.col("key").cast("binary"), basis)
    chosen = choose(basis)
    if "partition" in frame.columns:
        chosen = F.coalesce(F.col("partition"), chosen)
    return frame.withColumn("partition", chosen).repartition(F.col("partition"))


def prepare_environment() -> None:
    """Set JAVA_HOME and the workers' Python for a Spark that this process starts."""
    os.environ["JAVA_HOME"] = str(find_java())
    # Otherwise workers run the first python3 of the PATH, which has no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
