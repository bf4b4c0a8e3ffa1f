"""A SparkSession that needs no set-up: Java found, this Python for the workers, loopback only.

Owns the settings that a local session needs and users should not have to know, and the registration
of the source. Settings given by the caller win. An existing session (a notebook, a `spark-submit`)
is used as it is; `register` adds the source to it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import BadOptions
from pipeline.spark.java import find_java

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

_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_NO_NULL_CHECK: Final = "-Darrow.enable_null_check_for_get=false"
"""For local masters: Arrow checks no value for null. Spark itself checks each column that may have
nulls, and the second check costs a fifth of the CPU of a read.
"""

_STARTING: Final = threading.Lock()
"""Held while the environment of this process is changed."""

_IMPORT_TIMEOUT_S: Final = 120


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to `spark`, also where Spark does not find it by itself.

    Spark looks in the environment of its workers, not in a zip of `--py-files`.

    A local session gets this Python for its workers too, unless PYSPARK_PYTHON names another one.

    Raises:
        BadOptions: the workers would run a Python that has no such package.
    """
    from pyspark.errors import AnalysisException

    from pipeline.spark.source import TidelogSource

    _check_python(spark)
    try:
        spark.dataSource.register(TidelogSource)
    except AnalysisException as error:
        # Spark 4.0 does not take the name of a source that it has found by itself: this one.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _check_python(spark: SparkSession) -> None:
    """Whether Spark starts a Python that has this package: by default the first of the PATH."""
    context = getattr(spark, "_sc", None)
    # A session of Spark Connect has none, and its workers are the server's.
    program = None if context is None else shutil.which(context.pythonExec)
    if context is None or (program and Path(program).absolute() == Path(sys.executable).absolute()):
        return
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
        return
    package = __name__.rpartition(".")[0]
    # Packages shipped by --py-files are a zip on the path of the driver too.
    zips = [entry for entry in sys.path if entry.endswith((".zip", ".egg"))]
    path = os.pathsep.join(filter(None, [*zips, os.environ.get("PYTHONPATH", "")]))
    works = program is not None and not subprocess.run(
        [program, "-c", f"import pyarrow, {package}"], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, check=False, timeout=_IMPORT_TIMEOUT_S,
    ).returncode  # fmt: skip
    if not works:
        raise BadOptions(
            f"Spark starts {program or context.pythonExec} for its workers, which cannot "
            f"import {package} and pyarrow, and this process is {sys.executable}: set "
            f"PYSPARK_PYTHON={sys.executable} (or activate its environment) before the "
            "session is made, or bring the package by --py-files (tidelog spark bundle)"
        )


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
        chosen = settings or {}
        starting: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        # Under spark-submit the Java side runs already, with a master of its own.
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            prepare_environment()
            builder = builder.master(master)
            if master.startswith("local"):
                chosen = {**LOCAL_SETTINGS, **chosen}
                starting = _java_options(_NO_NULL_CHECK)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        with starting:
            existing = builder.getOrCreate()
    register(existing)
    return existing


@contextlib.contextmanager
def _java_options(options: str) -> Iterator[None]:
    """Have a JVM that Spark starts meanwhile get `options`; all others, of any origin, win.

    Source: `SparkSubmitCommandBuilder`, which puts this variable before what settings give.
    """
    with _STARTING:
        before = os.environ.get(_JAVA_OPTIONS)
        os.environ[_JAVA_OPTIONS] = f"{options} {before or ''}".rstrip()
        try:
            yield
        finally:
            if before is None:
                del os.environ[_JAVA_OPTIONS]
            else:
                os.environ[_JAVA_OPTIONS] = before


def where(session: SparkSession, options: Mapping[str, str], condition: str) -> DataFrame:
    """The rows of `format("tidelog")` with `options` that meet `condition`, read no further.

    `condition` is a condition in SQL, such as `timestamp >= '2013-07-04' AND partition = 2`. Its
    comparisons of `timestamp`, `offset`, `partition` and `topic` with constants, joined by AND,
    narrow what is read; Spark evaluates all of it on the rows. The rows are those of
    `.where(condition)` on a frame with `options`. Filters that are added to the frame later narrow
    nothing.

    Raises:
        AnalysisException: `condition` is no condition on the source's columns.
    """
    from pipeline.spark.conditions import narrowing_of

    narrowed = narrowing_of(condition, functools.partial(_micros, session)).to_option()
    reader = session.read.format("tidelog").options(**options)
    return reader.option("narrowTo", narrowed).load().where(condition)


def _micros(session: SparkSession, constants: Sequence[str]) -> list[int]:
    """Constant times in SQL as us since the epoch; none where one is no time for `session`."""
    from pyspark.errors import PySparkException

    columns = (f"unix_micros(CAST({one} AS TIMESTAMP_LTZ))" for one in constants)
    try:
        row = session.sql(f"SELECT {', '.join(columns)}").first()
    except PySparkException:
        # The query with this condition gives the error, where it is one.
        return []
    found = [] if row is None else list(row)
    return [] if None in found else found


def by_partition(
    frame: DataFrame,
    bootstrap: str,
    topic: str,
    options: Mapping[str, str] | None = None,
    *,
    partitions: int | None = None,
) -> DataFrame:
    """`frame` with a target partition for every row, and all rows of one in one task.

    An existing `partition` is kept; otherwise the key decides as in every Kafka client, and a row
    without a key goes by its value. Exactly-once delivery requires this. `options` are further
    `kafka.*` options that the broker requires, such as those of TLS. `partitions` is how many the
    keys are spread over, by default as many as the topic has: a batch that is repeated after
    partitions were added needs the number that it was written with.

    Raises:
        BadOptions: `partitions` is not one of 1 to the number that the topic has.
        BrokerRefused: the topic does not exist.
        BrokerUnreachable: no broker answers at `bootstrap`.
    """
    from pyspark.sql import functions as F

    from pipeline.net.cluster import Cluster
    from pipeline.options.options import TopicChoice, parse_sink_options
    from pipeline.spark.choosing import choose_partition

    named = {**(options or {}), "kafka.bootstrap.servers": bootstrap, "topic": topic}
    with Cluster(parse_sink_options(named).connection) as cluster:
        count = len(cluster.partitions(TopicChoice(names=(topic,))))
    if partitions is not None and not 1 <= partitions <= count:
        raise BadOptions(
            f"partitions={partitions}: topic {topic} has {count}, so 1 to {count} are allowed"
        )
    basis = F.col("value").cast("binary")
    if "key" in frame.columns:
        basis = F.coalesce(F.col("key").cast("binary"), basis)
    chosen = choose_partition(basis, partitions or count)
    if "partition" in frame.columns:
        chosen = F.coalesce(F.col("partition"), chosen)
    return frame.withColumn("partition", chosen).repartition(F.col("partition"))


def prepare_environment() -> None:
    """Set JAVA_HOME and the workers' Python for a Spark that this process starts."""
    os.environ["JAVA_HOME"] = str(find_java())
    # Otherwise workers run the first python3 of the PATH, which has no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
