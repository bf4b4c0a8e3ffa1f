"""Spark: ``from tidelog import spark; session = spark.session()``; see docs/spark.md.

`register` adds ``format("tidelog")`` to a session of your own, `session` makes one that needs no
set-up, and the jobs are functions that take a session. `where` reads only what a condition can
leave. `decode` and `encode` are values with a schema of a registry, `watch` reports how far behind
streams are. Spark is imported on first use
only, so this module is importable without it.
"""

from client.serde.registry import RegistryAddress
from pipeline.spark.progress import StreamProgress, watch
from pipeline.spark.session import by_partition, register, session, where
from pipeline.spark.values import decode, encode

__all__ = [
    "RegistryAddress",
    "StreamProgress",
    "by_partition",
    "decode",
    "encode",
    "register",
    "session",
    "watch",
    "where",
]
