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
    from pyspark.sql import SparkSession

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
    """
    from pyspark.sql import SparkSession

    existing = SparkSession.getActiveSession()
    if existing is None:
        prepare_environment()
        builder = SparkSession.builder.master(master).appName(app_name)
        defaults = LOCAL_SETTINGS if master.startswith("local") else {}
        for name, value in {**defaults, **(settings or {})}.items():
            builder = builder.config(name, value)
        existing = builder.getOrCreate()
    register(existing)
    return existing


def prepare_environment() -> None:
    """Set JAVA_HOME and the workers' Python for a Spark that this process starts."""
    os.environ["JAVA_HOME"] = str(find_java())
    # Otherwise workers run the first python3 of the PATH, which has no pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
