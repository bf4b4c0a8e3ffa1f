"""compact: the last record of each key, as Parquet.

A key is always in one partition, so the largest offset is the last word about it. A tombstone (a
null value) is kept until it is older than `tombstone_ms`, then the key is gone. Records without a
key say nothing about any key and are left out, as Kafka's own compaction refuses them.

Read next: `pipeline.source`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.times import MS_PER_DAY
from pipeline.jobs.outcome import JobCode, Outcome, Progress, silent
from pipeline.option_reader import spark_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """What to compact and where to; `options` are those of the source.

    `target` is overwritten. `tombstone_ms` is the age at which a deleted key disappears.
    """

    options: Mapping[str, str]
    target: str
    tombstone_ms: int = 7 * MS_PER_DAY
    dry_run: bool = False


def compact(spark: SparkSession, settings: CompactSettings, progress: Progress = silent) -> Outcome:
    """Write the last record of each key to `target`.

    Raises:
        BadOptions: options of the source that cannot be carried out.
    """
    from pyspark.sql import functions as F

    progress("read")
    rows = (
        spark.read.format("tidelog")
        .options(**{"includeHeaders": "true", **settings.options})
        .load()
        .where("key is not null")
    )
    fields = [name for name in rows.columns if name != "key"]
    last = (
        rows.groupBy("topic", "key")
        .agg(F.max_by(F.struct(*(one for one in fields if one != "topic")), "offset").alias("last"))
        .select("key", "topic", "last.*")
    )
    oldest = F.timestamp_millis(F.lit(time.time_ns() // 1_000_000 - settings.tombstone_ms))
    kept = last.where(F.col("value").isNotNull() | (F.col("timestamp") >= oldest))
    if settings.dry_run:
        counts = {"records": rows.count(), "keys": kept.count()}
        return Outcome(
            sentence=f"would keep {counts['keys']:,} of {counts['records']:,} records",
            report=counts,
        )
    progress("write")
    target = spark_path(settings.target)
    kept.write.mode("overwrite").parquet(target)
    keys = spark.read.parquet(target).count()
    if not keys:
        return Outcome(code=JobCode.NOTHING_TO_DO, sentence="no record has a key")
    return Outcome(sentence=f"kept the last record of {keys:,} keys", report={"keys": keys})
