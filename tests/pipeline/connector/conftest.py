"""Spark's own Kafka connector, fetched from Maven Central with what it needs.

Not every release of the token provider is to be had everywhere, so each artifact is taken from the
newest release that is; the pair below is known to work on PySpark 4.2 and 4.3. Spark's own way of
fetching (`spark.jars.packages`) is not used: it does not honour Maven's settings.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from pipeline.session import prepare_environment, session
from tests.pipeline.conftest import Broker

JARS = Path(__file__).parents[3] / ".cache" / "spark-kafka-jars"
ARTIFACTS = (
    ("org.apache.spark:spark-sql-kafka-0-10_2.13", ("4.3.0", "4.2.0", "4.1.1", "4.0.0")),
    ("org.apache.spark:spark-token-provider-kafka-0-10_2.13", ("4.3.0", "4.2.0", "4.0.0")),
    ("org.apache.kafka:kafka-clients", ("3.9.1",)),
    ("org.apache.commons:commons-pool2", ("2.12.0",)),
)


def fetch_jars() -> list[Path]:
    """The connector's JARs, fetched once.

    Raises:
        pytest.skip.Exception: Maven is missing or reaches nothing.
    """
    done = JARS / ".complete"
    if not done.exists():
        JARS.mkdir(parents=True, exist_ok=True)
        for artifact, versions in ARTIFACTS:
            if not any(_copy(f"{artifact}:{version}") for version in versions):
                pytest.skip(f"Maven cannot get {artifact}")
        done.touch()
    return sorted(JARS.glob("*.jar"))


def _copy(coordinates: str) -> bool:
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}",
               f"-DoutputDirectory={JARS}"]  # fmt: skip
    try:
        return (
            subprocess.run(command, capture_output=True, check=False, timeout=300).returncode == 0
        )
    except FileNotFoundError:
        pytest.skip("the connector comes by Maven: install it (Debian: apt-get install maven)")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    jars = ",".join(map(str, fetch_jars()))
    prepare_environment()
    running = session(
        "local[2,2]",
        settings={
            "spark.jars": jars,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield running
    running.stop()


@pytest.fixture
def read(spark: SparkSession, broker: Broker) -> Any:
    """`read(topic, option=value)` through `format("kafka")`; `__` in a name stands for a dot."""

    def make(topic: str = "", **options: str) -> DataFrame:
        named = {name.replace("__", "."): value for name, value in options.items()}
        if topic:
            named.setdefault("subscribe", topic)
        return spark.read.format("kafka").options(**broker.options, **named).load()

    return make
