"""Spark's own Kafka connector, fetched from Maven Central with what it needs.

Not every release of the token provider is to be had everywhere, so each artifact is taken from the
newest release that is; the pair below is known to work on PySpark 4.2 and 4.3. Spark's own way of
fetching (`spark.jars.packages`) is not used: it does not honour Maven's settings.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

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
def spark_settings(spark_settings: dict[str, str]) -> dict[str, str]:
    return {**spark_settings, "spark.jars": ",".join(map(str, fetch_jars()))}


@pytest.fixture(scope="session")
def source_format() -> str:
    return "kafka"
