"""Which target partition a row goes to, decided in Spark as every Kafka client decides it.

A function over Arrow arrays, because Spark runs those without pandas; and over distinct keys, since
a key is hashed in Python.
"""

from typing import Any

import pyarrow as pa

from client.partitioner import partition_for_key


def chooser(count: int) -> Any:
    """A Spark function from a binary column to one of `count` partitions.

    A null goes where an empty key goes: any partition is good that is always the same.
    """
    from pyspark.sql import functions

    def choose(keys: pa.Array) -> pa.Array:
        distinct = keys.dictionary_encode(null_encoding="encode")
        chosen = [partition_for_key(key or b"", count) for key in distinct.dictionary.to_pylist()]
        return pa.array(chosen, pa.int32()).take(distinct.indices)

    # Spark looks at the types themselves, which are only text in this module.
    choose.__annotations__ = {"keys": pa.Array, "return": pa.Array}
    # Spark's own hints leave this function out.
    untyped: Any = functions
    return untyped.arrow_udf(choose, "int")
