"""Values with a schema in Spark: encoded and decoded through topics, in batch and in a stream."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from client.serde.registry import JSON
from pipeline.errors import BadOptions
from tests.pipeline.conftest import Broker, finish
from tests.support.schema_registry import FakeRegistry, fake_registry
from tidelog import spark as tidelog_spark

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "tail", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "crew", "type": {"type": "map", "values": "int"}},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}
NEWER: dict[str, Any] = {
    **AVRO,
    "fields": [*AVRO["fields"], {"name": "airline", "type": "string", "default": "UA"}],
}
WHEN = dt.datetime(2013, 7, 4, 12, 30)
COLUMNS = (
    "named_struct('tail', concat('N', id), 'delay', cast(id as int), "
    "'at', timestamp'2013-07-04 12:30:00', 'crew', map('captain', 1), 'stops', array('JFK')) value"
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as running:
        yield running


@pytest.mark.core
def test_values_come_back_as_columns_and_bad_records_beside_them(
    spark: SparkSession, broker: Broker, read: Any, registry: FakeRegistry
) -> None:
    topic = broker.topic(2)
    subject = f"{topic}-value"
    old, new = (registry.register(subject, one) for one in (AVRO, NEWER))
    frame = spark.range(20).selectExpr(COLUMNS, "cast(id as string) key")
    encoded = tidelog_spark.encode(frame, registry.url, subject, version=1)
    sink = encoded.write.format("tidelog").mode("append").options(**broker.options, topic=topic)
    sink.save()
    broker.produce(topic, 1, 2)
    newer = frame.withColumn("value", F.col("value").withField("airline", F.lit("DL")))
    newer = newer.where("key = '7'")
    encoded = tidelog_spark.encode(newer, registry.url, subject)
    encoded.write.format("tidelog").mode("append").options(**broker.options, topic=topic).save()

    decoded = tidelog_spark.decode(read(topic), registry.url, subject)
    assert decoded.columns == [*read(topic).columns, "value_bad"]
    good = decoded.where("value_bad is null").select("value.*", "offset").orderBy("delay", "offset")
    rows = good.collect()
    assert [row.tail for row in rows] == [f"N{number}" for number in sorted([*range(20), 7])]
    assert {row.airline for row in rows} == {"UA", "DL"}
    assert [row.airline for row in rows if row.tail == "N7"] == ["UA", "DL"]
    assert rows[0].crew == {"captain": 1}
    assert rows[0].stops == ["JFK"]
    assert good.where("at = timestamp'2013-07-04 12:30:00'").count() == 21
    bad = decoded.where("value_bad is not null").select("value", "value_bad.*").collect()
    assert sorted(bytes(row.bytes) for row in bad) == [b"v0", b"v1"]
    assert all(row.value is None and "no schema" in row.error for row in bad)
    assert old != new


def test_a_stream_encodes_json_and_registers_its_schema(
    spark: SparkSession, broker: Broker, read: Any, registry: FakeRegistry, tmp_path: Path
) -> None:
    origin, copy = broker.topic(1), broker.topic(1)
    broker.produce(origin, 0, 10)
    stream = spark.readStream.format("tidelog").options(**broker.options, subscribe=origin)
    stream = stream.options(startingOffsets="earliest", journalDir=str(tmp_path / "journal"))
    frame = stream.load().selectExpr("named_struct('text', string(value), 'at', offset) value")
    schema = '{"type":"object","properties":{"text":{"type":"string"},"at":{"type":"integer"}}}'
    encoded = tidelog_spark.encode(frame, registry.url, f"{copy}-value", schema=schema, kind=JSON)
    finish(
        encoded.writeStream.format("tidelog").options(**broker.options, topic=copy)
        .option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
    )  # fmt: skip
    decoded = tidelog_spark.decode(read(copy), registry.url, f"{copy}-value", bad="broken")
    rows = decoded.where("broken is null").selectExpr("value.at", "value.text").orderBy("at")
    assert rows.collect() == [Row(at=number, text=f"v{number}") for number in range(10)]


def test_what_cannot_be_decoded_or_encoded_is_refused_at_once(
    spark: SparkSession, registry: FakeRegistry
) -> None:
    registry.register("s", AVRO)
    frame = spark.range(1).selectExpr("id", "binary('') value", "1 value_bad")
    with pytest.raises(BadOptions, match=r"'v' is not in the frame.*'id' is in the frame already"):
        tidelog_spark.decode(frame, registry.url, "s", column="v", bad="id")
    with pytest.raises(BadOptions, match="'id' is bigint"):
        tidelog_spark.decode(frame, registry.url, "s", column="id")
    wide = spark.range(1).selectExpr("named_struct('delay', id, 'other', 1) value")
    with pytest.raises(BadOptions, match=r"value.delay is int64.*value.other is not in"):
        tidelog_spark.encode(wide, registry.url, "s")
