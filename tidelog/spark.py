"""Spark: ``from tidelog import spark; session = spark.session()``; see docs/spark.md.

`register` adds ``format("tidelog")`` to a session of your own, `session` makes one that needs no
set-up, and the jobs are functions that take a session. Spark is imported on first use only, so this
module is importable without it.
"""

from pipeline.spark.session import by_partition, register, session

__all__ = ["by_partition", "register", "session"]
